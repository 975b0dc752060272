"""Leader election by a Lease, and the fence that a leader's writes pass."""

from .elector import ElectionTimes, LeaderElector, LeadershipLost, LeaseClient, default_identity
from .fence import Fence, NotLeader

__all__ = [
    "ElectionTimes",
    "Fence",
    "LeaderElector",
    "LeadershipLost",
    "LeaseClient",
    "NotLeader",
    "default_identity",
]
