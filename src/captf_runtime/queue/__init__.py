"""The work queue, its rate limiter and the named requeue policies."""

from .ratelimit import RateLimits
from .workqueue import AGING_SECONDS, DEFAULT, LOW, Item, WorkQueue

__all__ = ["AGING_SECONDS", "DEFAULT", "LOW", "Item", "RateLimits", "WorkQueue"]
