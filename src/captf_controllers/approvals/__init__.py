"""TerraformPlans: what waits for a person, as an object that the person approves.

A plan is made by a finished Job (a plan for review, or an apply that stopped before deletions nobody approved)
and ends applied, superseded or failed. The decisions are pure (:mod:`.plans`, :mod:`.changes`); :mod:`.store`
reads and writes.
"""
