"""The same work as `reconcile.py`, done with other libraries; each runs in an environment of its own."""
