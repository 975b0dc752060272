"""The manager: runs controllers, caches, servers and the election together, and stops them in order."""

from ..election import ElectionTimes
from .diagnostics import Diagnostics, serving_certificate
from .manager import GRACE_PERIOD, LeaderElectionConfig, Manager
from .profiler import Profiler
from .runnables import Group, Runnable

__all__ = [
    "GRACE_PERIOD",
    "Diagnostics",
    "ElectionTimes",
    "Group",
    "LeaderElectionConfig",
    "Manager",
    "Profiler",
    "Runnable",
    "serving_certificate",
]
