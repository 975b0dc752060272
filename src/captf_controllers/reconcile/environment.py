"""What every pass of every kind works with: the manager's parts and its options."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from captf_controllers.jobs.lease_memory import LeaseMemory
from captf_controllers.jobs.slots import JobSlots
from captf_controllers.observability.metrics import Metrics
from captf_controllers.state.cache import StateCache
from captf_runtime.client import Client
from captf_runtime.clock import Clock
from captf_runtime.events import Recorder
from captf_runtime.objects import Kind, Object, ObjectKey


class CacheReader(Protocol):
    """The informers' side of reading: nothing here makes a request."""

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object: ...

    def list(self, kind: Kind, namespace: str = "", *, label_selector: str = "") -> list[Object]: ...

    def wait_for(self, kind: Kind, key: ObjectKey, resource_version: str, timeout: float) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The manager's flags as far as a pass reads them. Intervals are seconds."""

    runner_image: str
    runner_events: bool = True
    watch_filter: str = ""
    drift_default_interval: float = 1800.0
    cluster_operation_gate: bool = True
    max_active_jobs: int = 200
    cluster_max_active_jobs: int = 20
    state_backups: int = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The parts that a pass uses.

    ``api`` reads and writes the API server, ``cache`` reads informers; the call site always names one.
    """

    api: Client
    cache: CacheReader
    recorder: Recorder
    metrics: Metrics
    clock: Clock
    options: Options
    slots: JobSlots
    states: StateCache
    lease_memory: LeaseMemory = field(default_factory=LeaseMemory)
