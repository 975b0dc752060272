"""Controllers: sources, predicates, handlers, and the workers that call a reconciler."""

from ..election.fence import NotLeader
from .channel import Channel
from .context import Context, ReconcileTimeout, Stopping
from .controller import SYNC_TIMEOUT, Controller, SyncTimeout, Watch
from .handlers import EventHandler, enqueue_mapped, enqueue_own, enqueue_owner
from .predicates import (
    Predicate,
    all_of,
    annotations_changed,
    any_of,
    deleting_changed,
    generation_changed,
    label_selector,
    labels_changed,
    negate,
    resource_version_changed,
)
from .reconciler import ReconcileError, Reconciler, Request, Result, TerminalError

__all__ = [
    "SYNC_TIMEOUT",
    "Channel",
    "Context",
    "Controller",
    "EventHandler",
    "NotLeader",
    "Predicate",
    "ReconcileError",
    "ReconcileTimeout",
    "Reconciler",
    "Request",
    "Result",
    "Stopping",
    "SyncTimeout",
    "TerminalError",
    "Watch",
    "all_of",
    "annotations_changed",
    "any_of",
    "deleting_changed",
    "enqueue_mapped",
    "enqueue_own",
    "enqueue_owner",
    "generation_changed",
    "label_selector",
    "labels_changed",
    "negate",
    "resource_version_changed",
]
