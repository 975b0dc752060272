from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from captf_runtime.metrics import (
    QUEUE_DURATION_BUCKETS,
    RECONCILE_TIME_BUCKETS,
    SERIES,
    DurationCounts,
    Metrics,
    QueueStats,
)

STATS = QueueStats(
    depth=3,
    depth_by_priority={0: 2, -100: 1},
    adds=7,
    retries=2,
    unfinished=1.5,
    longest_running=1.0,
    queue_duration=DurationCounts((0,) * 6 + (2,) + (0,) * 5 + (1,), 2000.0),
    work_duration=DurationCounts((0,) * 13, 0.0),
)


@pytest.mark.requirement("MX1")
def test_every_declared_series_is_exposed_under_its_exact_name() -> None:
    metrics = Metrics()
    metrics.add_queue("machines", lambda: STATS)
    families = {
        family.name: family for family in text_string_to_metric_families(metrics.exposition().decode())
    }
    for series in SERIES:
        family = families[series.name.removesuffix("_total")]
        assert family.type == series.type
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(series.labels)
    assert len(families) == len(SERIES)


@pytest.mark.requirement("MX1")
def test_no_creation_times_are_exposed() -> None:
    metrics = Metrics()
    metrics.reconciles.labels("machines", "success").inc()
    text = metrics.exposition().decode()
    assert 'controller_runtime_reconcile_total{controller="machines",result="success"} 1.0' in text
    assert "_created" not in text


@pytest.mark.requirement("MX2")
def test_buckets() -> None:
    assert (
        *(0.005, 0.01, 0.025, 0.05),
        *(0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1),
        *(1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60),
    ) == RECONCILE_TIME_BUCKETS
    assert tuple(float(f"1e{power}") for power in range(-8, 4)) == QUEUE_DURATION_BUCKETS


@pytest.mark.requirement("MX4")
def test_queue_series_are_computed_at_scrape() -> None:
    metrics = Metrics()
    metrics.add_queue("machines", lambda: STATS)

    def value(series: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(series, {"controller": "machines", **labels})

    assert value("workqueue_depth", name="machines") == 3
    assert value("workqueue_adds_total", name="machines") == 7
    assert value("workqueue_retries_total", name="machines") == 2
    assert value("workqueue_unfinished_work_seconds", name="machines") == 1.5
    assert value("workqueue_longest_running_processor_seconds", name="machines") == 1.0
    assert value("captf_runtime_workqueue_depth", priority="-100") == 1
    assert value("workqueue_queue_duration_seconds_bucket", name="machines", le="0.01") == 2
    assert value("workqueue_queue_duration_seconds_count", name="machines") == 3
    assert value("workqueue_queue_duration_seconds_sum", name="machines") == 2000.0
    with pytest.raises(ValueError, match="already exposed"):
        metrics.add_queue("machines", lambda: STATS)
    metrics.remove_queue("machines")
    assert value("workqueue_depth", name="machines") is None


@pytest.mark.requirement("MG6")
def test_two_sets_in_one_process_do_not_collide() -> None:
    first, second = Metrics(), Metrics()
    first.leader.labels("a").set(1)
    assert second.registry.get_sample_value("leader_election_master_status", {"name": "a"}) is None
    shared = CollectorRegistry()
    Metrics(shared)
    with pytest.raises(ValueError, match="Duplicated"):
        Metrics(shared)


def test_process_series_on_request() -> None:
    assert b"process_resident_memory_bytes" in Metrics(process=True).exposition()
    assert b"process_resident_memory_bytes" not in Metrics().exposition()
