"""The library's own series, declared once, in a registry of their own.

A `Metrics` object belongs to one manager, so two managers in one process do not collide. Everything that
counts takes one and falls back to a private one, so no call site asks whether metrics are on.

Series that follow from the state of a queue are computed when they are scraped (`add_queue`): a depth that is
counted up and down beside the queue drifts as soon as one path forgets it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

__all__ = [
    "CONTENT_TYPE",
    "QUEUE_DURATION_BUCKETS",
    "RECONCILE_TIME_BUCKETS",
    "RESULTS",
    "SERIES",
    "DurationCounts",
    "Metrics",
    "QueueStats",
    "Series",
]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""Media type of `Metrics.exposition`."""

RECONCILE_TIME_BUCKETS: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5),
    *(0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5),
    *(5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0),
)
"""Upper bounds, in seconds, of the duration of one reconcile."""

QUEUE_DURATION_BUCKETS: Final = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0)
"""Upper bounds, in seconds, of waiting in a queue and of working on an item."""

REQUEST_DURATION_BUCKETS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
WEBHOOK_LATENCY_BUCKETS: Final = RECONCILE_TIME_BUCKETS

RESULTS: Final = ("error", "requeue", "requeue_after", "success")
"""Values of the label `result` of `controller_runtime_reconcile_total`."""


@dataclass(frozen=True, slots=True)
class Series:
    """Declaration of one series: what it is called, what it counts, by what."""

    name: str
    type: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str
    buckets: tuple[float, ...] = ()


_QUEUE: Final = ("controller", "name")

SERIES: Final = (
    Series(
        "controller_runtime_reconcile_total",
        "counter",
        ("controller", "result"),
        "Reconciles that ended, by result.",
    ),
    Series(
        "controller_runtime_reconcile_errors_total", "counter", ("controller",), "Reconciles that failed."
    ),
    Series(
        "controller_runtime_terminal_reconcile_errors_total",
        "counter",
        ("controller",),
        "Reconciles that failed in a way that a retry cannot mend.",
    ),
    Series(
        "controller_runtime_reconcile_panics_total",
        "counter",
        ("controller",),
        "Reconciles that ended in an exception nobody expected.",
    ),
    Series(
        "controller_runtime_reconcile_timeouts_total",
        "counter",
        ("controller",),
        "Reconciles that ran past their time limit.",
    ),
    Series(
        "controller_runtime_reconcile_time_seconds",
        "histogram",
        ("controller",),
        "Duration of a reconcile.",
        RECONCILE_TIME_BUCKETS,
    ),
    Series(
        "controller_runtime_max_concurrent_reconciles",
        "gauge",
        ("controller",),
        "Number of workers of a controller.",
    ),
    Series(
        "controller_runtime_active_workers", "gauge", ("controller",), "Workers that are reconciling now."
    ),
    Series("workqueue_depth", "gauge", _QUEUE, "Items ready to be worked on."),
    Series("workqueue_adds_total", "counter", _QUEUE, "Items that became ready."),
    Series("workqueue_retries_total", "counter", _QUEUE, "Adds delayed by the rate limiter."),
    Series(
        "workqueue_queue_duration_seconds",
        "histogram",
        _QUEUE,
        "Time an item was ready before a worker took it.",
        QUEUE_DURATION_BUCKETS,
    ),
    Series(
        "workqueue_work_duration_seconds",
        "histogram",
        _QUEUE,
        "Time from taking an item to giving it back.",
        QUEUE_DURATION_BUCKETS,
    ),
    Series(
        "workqueue_unfinished_work_seconds",
        "gauge",
        _QUEUE,
        "Sum of the time that items now being worked on have taken so far.",
    ),
    Series(
        "workqueue_longest_running_processor_seconds",
        "gauge",
        _QUEUE,
        "Time that the longest item now being worked on has taken so far.",
    ),
    Series(
        "controller_runtime_webhook_requests_total",
        "counter",
        ("webhook", "code"),
        "Admission requests, by path and HTTP code.",
    ),
    Series(
        "controller_runtime_webhook_latency_seconds",
        "histogram",
        ("webhook",),
        "Duration of an admission request.",
        WEBHOOK_LATENCY_BUCKETS,
    ),
    Series(
        "controller_runtime_webhook_requests_in_flight",
        "gauge",
        ("webhook",),
        "Admission requests being answered now.",
    ),
    Series(
        "rest_client_requests_total",
        "counter",
        ("code", "method", "host"),
        "Requests to the API server; the code is <error> when there was no answer.",
    ),
    Series(
        "rest_client_request_duration_seconds",
        "histogram",
        ("verb", "host"),
        "Duration of a request to the API server.",
        REQUEST_DURATION_BUCKETS,
    ),
    Series(
        "rest_client_request_retries_total",
        "counter",
        ("code", "verb", "host"),
        "Requests to the API server that were repeated.",
    ),
    Series(
        "leader_election_master_status", "gauge", ("name",), "1 while this process is the leader, else 0."
    ),
    Series(
        "captf_runtime_thread_failures_total",
        "counter",
        ("component",),
        "Exceptions that left the main function of a thread.",
    ),
    Series(
        "captf_runtime_watch_idle_total",
        "counter",
        ("kind",),
        "Watches closed because nothing came through them.",
    ),
    Series(
        "captf_runtime_handler_failures_total",
        "counter",
        ("kind",),
        "Exceptions raised by event handlers, predicates, indexers and transforms.",
    ),
    Series(
        "captf_runtime_events_dropped_total",
        "counter",
        ("reason",),
        "Events that were not written, by reason.",
    ),
    Series(
        "captf_runtime_workqueue_depth",
        "gauge",
        ("controller", "priority"),
        "Items ready to be worked on, by priority.",
    ),
    Series("captf_runtime_informer_objects", "gauge", ("kind",), "Objects in the store."),
    Series("captf_runtime_informer_synced", "gauge", ("kind",), "1 once the first list has been handled."),
    Series(
        "captf_runtime_informer_last_event_seconds",
        "gauge",
        ("kind",),
        "Unix time of the last event that came through the watch.",
    ),
    Series("captf_runtime_informer_relists_total", "counter", ("kind",), "Lists after the first."),
    Series(
        "captf_runtime_informer_reconnects_total", "counter", ("kind",), "Watches opened after the first."
    ),
    Series(
        "captf_runtime_informer_decode_errors_total", "counter", ("kind",), "Watch lines that were no event."
    ),
)
"""Every series of the library."""

_BY_NAME: Final[Mapping[str, Series]] = {series.name: series for series in SERIES}
_AT_SCRAPE: Final = frozenset(
    name for name in _BY_NAME if name.startswith("workqueue_") or name == "captf_runtime_workqueue_depth"
)


@dataclass(frozen=True, slots=True)
class DurationCounts:
    """A histogram's content: observations per bucket (the last one is above all bounds) and their sum."""

    counts: tuple[int, ...]
    total: float


@dataclass(frozen=True, slots=True)
class QueueStats:
    """What a queue tells about itself at one moment; durations in seconds."""

    depth: int
    depth_by_priority: Mapping[int, int]
    adds: int
    retries: int
    unfinished: float
    longest_running: float
    queue_duration: DurationCounts
    work_duration: DurationCounts


class Gatherable(Protocol):
    """What has series to give: a registry, or a view of one."""

    def collect(self) -> Iterable[Metric]: ...


class Metrics:
    """The series of one manager, ready to be counted on; thread-safe.

    Args:
        registry: where the series are registered; default a new one. Registering a second `Metrics` in the
            same registry raises `ValueError`.
        process: also expose the `process_*` and the interpreter's series.
    """

    def __init__(self, registry: CollectorRegistry | None = None, *, process: bool = False) -> None:
        # auto_describe is off in a fresh registry; collectors computed at scrape describe themselves.
        self.registry: Final = registry if registry is not None else CollectorRegistry()
        self.reconciles: Final = self._counter("controller_runtime_reconcile_total")
        self.reconcile_errors: Final = self._counter("controller_runtime_reconcile_errors_total")
        self.terminal_errors: Final = self._counter("controller_runtime_terminal_reconcile_errors_total")
        self.panics: Final = self._counter("controller_runtime_reconcile_panics_total")
        self.reconcile_timeouts: Final = self._counter("controller_runtime_reconcile_timeouts_total")
        self.reconcile_time: Final = self._histogram("controller_runtime_reconcile_time_seconds")
        self.max_concurrent: Final = self._gauge("controller_runtime_max_concurrent_reconciles")
        self.active_workers: Final = self._gauge("controller_runtime_active_workers")
        self.webhook_requests: Final = self._counter("controller_runtime_webhook_requests_total")
        self.webhook_latency: Final = self._histogram("controller_runtime_webhook_latency_seconds")
        self.webhook_in_flight: Final = self._gauge("controller_runtime_webhook_requests_in_flight")
        self.rest_requests: Final = self._counter("rest_client_requests_total")
        self.rest_duration: Final = self._histogram("rest_client_request_duration_seconds")
        self.rest_retries: Final = self._counter("rest_client_request_retries_total")
        self.leader: Final = self._gauge("leader_election_master_status")
        self.thread_failures: Final = self._counter("captf_runtime_thread_failures_total")
        self.watch_idle: Final = self._counter("captf_runtime_watch_idle_total")
        self.handler_failures: Final = self._counter("captf_runtime_handler_failures_total")
        self.events_dropped: Final = self._counter("captf_runtime_events_dropped_total")
        self.informer_objects: Final = self._gauge("captf_runtime_informer_objects")
        self.informer_synced: Final = self._gauge("captf_runtime_informer_synced")
        self.informer_last_event: Final = self._gauge("captf_runtime_informer_last_event_seconds")
        self.informer_relists: Final = self._counter("captf_runtime_informer_relists_total")
        self.informer_reconnects: Final = self._counter("captf_runtime_informer_reconnects_total")
        self.informer_decode_errors: Final = self._counter("captf_runtime_informer_decode_errors_total")
        self._queues = _QueueCollector()
        self.registry.register(self._queues)
        if process:
            ProcessCollector(registry=self.registry)
            PlatformCollector(registry=self.registry)
            GCCollector(registry=self.registry)

    def add_queue(self, name: str, read: Callable[[], QueueStats]) -> None:
        """Expose a queue under a name (the controller's).

        Raises:
            ValueError: the name is taken.
        """
        self._queues.add(name, read)

    def remove_queue(self, name: str) -> None:
        """Stop exposing a queue; unknown names are fine."""
        self._queues.remove(name)

    def exposition(self) -> bytes:
        """All series of the registry in the text format, see `CONTENT_TYPE`."""
        return generate_latest(_WithoutCreated(self.registry))

    def _counter(self, name: str) -> Counter:
        series = _BY_NAME[name]
        return Counter(series.name, series.help, series.labels, registry=self.registry)

    def _gauge(self, name: str) -> Gauge:
        series = _BY_NAME[name]
        return Gauge(series.name, series.help, series.labels, registry=self.registry)

    def _histogram(self, name: str) -> Histogram:
        series = _BY_NAME[name]
        return Histogram(
            series.name, series.help, series.labels, registry=self.registry, buckets=series.buckets
        )


class _WithoutCreated(CollectorRegistry):
    """A view of a registry without the creation times that the client library adds to counters.

    They double the number of series, and nothing reads them. The client library's own switch would act on
    the whole process.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__()
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for metric in self._registry.collect():
            if metric.type in ("counter", "histogram", "summary"):
                metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric


class _QueueCollector(Collector):
    """Computes the series of all queues at the moment of the scrape."""

    def __init__(self) -> None:
        self._readers: dict[str, Callable[[], QueueStats]] = {}

    def add(self, name: str, read: Callable[[], QueueStats]) -> None:
        if name in self._readers:
            raise ValueError(f"name: a queue named {name!r} is already exposed")
        self._readers[name] = read

    def remove(self, name: str) -> None:
        self._readers.pop(name, None)

    def describe(self) -> Iterator[Metric]:
        for name in sorted(_AT_SCRAPE):
            yield _family(name)

    def collect(self) -> Iterator[Metric]:
        families = {name: _family(name) for name in sorted(_AT_SCRAPE)}
        for name, read in list(self._readers.items()):
            stats = read()
            labels = [name, name]
            for family, value in (
                ("workqueue_depth", stats.depth),
                ("workqueue_adds_total", stats.adds),
                ("workqueue_retries_total", stats.retries),
                ("workqueue_unfinished_work_seconds", stats.unfinished),
                ("workqueue_longest_running_processor_seconds", stats.longest_running),
            ):
                metric = families[family]
                assert isinstance(metric, (GaugeMetricFamily, CounterMetricFamily))
                metric.add_metric(labels, value)
            for family, durations in (
                ("workqueue_queue_duration_seconds", stats.queue_duration),
                ("workqueue_work_duration_seconds", stats.work_duration),
            ):
                histogram = families[family]
                assert isinstance(histogram, HistogramMetricFamily)
                histogram.add_metric(
                    labels, _cumulative(_BY_NAME[family].buckets, durations.counts), durations.total
                )
            by_priority = families["captf_runtime_workqueue_depth"]
            assert isinstance(by_priority, GaugeMetricFamily)
            for priority, depth in sorted(stats.depth_by_priority.items()):
                by_priority.add_metric([name, str(priority)], depth)
        yield from families.values()


def _family(name: str) -> Metric:
    series = _BY_NAME[name]
    if series.type == "counter":
        return CounterMetricFamily(series.name, series.help, labels=series.labels)
    if series.type == "gauge":
        return GaugeMetricFamily(series.name, series.help, labels=series.labels)
    return HistogramMetricFamily(series.name, series.help, labels=series.labels)


def _cumulative(bounds: Sequence[float], counts: Sequence[int]) -> list[tuple[str, float]]:
    buckets: list[tuple[str, float]] = []
    total = 0
    for bound, count in zip([*(repr(bound) for bound in bounds), "+Inf"], counts, strict=True):
        total += count
        buckets.append((bound, total))
    return buckets
