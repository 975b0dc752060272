"""A controller library for Kubernetes: reconcilers in Python, with what they need around them.

The names here are the ones that a controller is made of; each lives in a module of its own, which is imported
when the name is first used, so that importing the package costs next to nothing.

* `Client` talks to the API server; `Cache` keeps objects of it in this process.
* `Controller` turns events into requests and hands them to a reconciler; `Watch`, handlers and predicates say
  which events.
* `Manager` runs controllers, caches, servers and the leader election together.
* `Recorder` writes events, `WebhookServer` answers admission reviews.

`captf_runtime.queue.policies` names the usual delays, `captf_runtime.testing` holds an embedded API server and
a virtual clock for tests.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .cache import Cache
    from .client import Client
    from .clock import Clock, SystemClock
    from .controller import (
        Channel,
        Context,
        Controller,
        ReconcileError,
        Reconciler,
        Request,
        Result,
        TerminalError,
        Watch,
        enqueue_mapped,
        enqueue_own,
        enqueue_owner,
    )
    from .election import ElectionTimes, NotLeader
    from .events import Recorder
    from .manager import LeaderElectionConfig, Manager
    from .metrics import Metrics
    from .objects import Kind, Object
    from .webhook import AdmissionRequest, AdmissionResponse, WebhookServer

_HOMES = {
    "cache": ("Cache",),
    "client": ("Client",),
    "clock": ("Clock", "SystemClock"),
    "controller": (
        "Channel",
        "Context",
        "Controller",
        "ReconcileError",
        "Reconciler",
        "Request",
        "Result",
        "TerminalError",
        "Watch",
        "enqueue_mapped",
        "enqueue_own",
        "enqueue_owner",
    ),
    "election": ("ElectionTimes", "NotLeader"),
    "events": ("Recorder",),
    "manager": ("LeaderElectionConfig", "Manager"),
    "metrics": ("Metrics",),
    "objects": ("Kind", "Object"),
    "webhook": ("AdmissionRequest", "AdmissionResponse", "WebhookServer"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "AdmissionRequest",
    "AdmissionResponse",
    "Cache",
    "Channel",
    "Client",
    "Clock",
    "Context",
    "Controller",
    "ElectionTimes",
    "Kind",
    "LeaderElectionConfig",
    "Manager",
    "Metrics",
    "NotLeader",
    "Object",
    "ReconcileError",
    "Reconciler",
    "Recorder",
    "Request",
    "Result",
    "SystemClock",
    "TerminalError",
    "Watch",
    "WebhookServer",
    "enqueue_mapped",
    "enqueue_own",
    "enqueue_owner",
]


def __getattr__(name: str) -> object:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{module}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
