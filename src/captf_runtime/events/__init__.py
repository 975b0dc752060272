"""The event recorder."""

from .correlation import COMBINED_PREFIX
from .recorder import DROP_REASONS, EventClient, EventType, NamedRecorder, Recorder

__all__ = ["COMBINED_PREFIX", "DROP_REASONS", "EventClient", "EventType", "NamedRecorder", "Recorder"]
