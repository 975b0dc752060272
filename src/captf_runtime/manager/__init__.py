"""The manager: runs controllers, caches, servers and the election together, and stops them in order."""

from ..election import ElectionTimes
from .manager import GRACE_PERIOD, LeaderElectionConfig, Manager
from .runnables import Group, Runnable

__all__ = ["GRACE_PERIOD", "ElectionTimes", "Group", "LeaderElectionConfig", "Manager", "Runnable"]
