"""Admission: the rules of each kind, and the validators that apply them.

The rules (:mod:`.policy`, :mod:`.workload`, :mod:`.templates`, :mod:`.identity`, :mod:`.plan`) are pure
functions over objects and return every violation. :mod:`.validators` decides which of them a request meets and
makes the few lookups that need the API server, only when nothing else is wrong.
"""
