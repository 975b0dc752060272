"""The alert rules: which there are, that they speak of series that exist, and when they fire."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from prometheus_client import CollectorRegistry
from tests.manifests import CONFIG, ROOT, needs_kubectl, of_kind

from captf_controllers.api.kinds import WORKLOAD_KINDS
from captf_controllers.observability.metrics import SERIES
from captf_runtime.metrics import Metrics as RuntimeMetrics

FOLDER = CONFIG / "prometheus"
SPEC: dict[str, Any] = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["spec"]
RULES: list[dict[str, Any]] = SPEC["groups"][0]["rules"]

#: Name, severity and duration, in the order that overlays patch by.
TABLE = [
    ("CAPTFJobFailing", "warning", None),
    ("CAPTFDestroyStuck", "critical", "30m"),
    ("CAPTFClusterDrift", "warning", "1h"),
    ("CAPTFStateUnreadable", "critical", None),
    ("CAPTFForceUnlocks", "warning", None),
    ("CAPTFReconcileErrors", "warning", "10m"),
    ("CAPTFJobSlow", "info", "30m"),
    ("CAPTFJobQueueSlow", "warning", "10m"),
    ("CAPTFStateNearSecretLimit", "warning", "15m"),
    ("CAPTFInputsNearLimit", "warning", "15m"),
    ("CAPTFNoRecentSuccess", "warning", "30m"),
]
#: The values that a label can take, as far as the rules name any.
VALUES = {
    "kind": {kind.kind for kind in WORKLOAD_KINDS},
    "op": {"apply", "destroy", "refresh", "drift", "plan", "restore"},
    "result": {"succeeded", "blocked", "plan_changed", "deadline", "interrupted", "failed"},
}
SELECTOR = re.compile(r"([a-z_]+)\{([^}]*)\}|\b((?:captf|controller_runtime)_[a-z_]+)\b")
MATCHER = re.compile(r'(\w+)(=~|!=|=)"([^"]*)"')
GROUPING = re.compile(r"by \(([^)]*)\)")


def known_series() -> dict[str, set[str]]:
    """Label names by series, of CAPTF's table and of the library."""
    known: dict[str, set[str]] = {}
    for series in SERIES:
        labels = set(series.labels)
        known[series.name] = labels
        if series.type == "histogram":
            known[f"{series.name}_bucket"] = labels | {"le"}
    registry = CollectorRegistry()
    metrics = RuntimeMetrics(registry)
    metrics.reconcile_errors.labels("terraformcluster")
    for family in registry.collect():
        for sample in family.samples:
            known[sample.name] = set(sample.labels)
    return known


def test_the_rules_are_the_ones_of_the_specification_in_their_order() -> None:
    assert [(rule["alert"], rule["labels"]["severity"], rule.get("for")) for rule in RULES] == TABLE
    assert [group["name"] for group in SPEC["groups"]] == ["captf"]
    for rule in RULES:
        assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_the_rule_speaks_of_series_labels_and_values_that_exist(rule: dict[str, Any]) -> None:
    known = known_series()
    carried: set[str] = set()
    found = 0
    for name, matchers, bare in SELECTOR.findall(rule["expr"]):
        series = name or bare
        assert series in known, series
        found += 1
        carried |= known[series]
        for label, operator, value in MATCHER.findall(matchers):
            assert label in known[series], f"{series} has no label {label}"
            if label in VALUES:
                values = value.split("|") if operator == "=~" else [value]
                assert set(values) <= VALUES[label]
    assert found
    for labels in GROUPING.findall(rule["expr"]):
        assert {label.strip() for label in labels.split(",")} <= carried
    for label in re.findall(r"\$labels\.(\w+)", rule["annotations"]["description"]):
        assert label in carried


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_the_runbook_has_a_section(rule: dict[str, Any]) -> None:
    url = urlsplit(rule["annotations"]["runbook_url"])
    assert (url.scheme, url.netloc) == ("https", "captf.invalid"), "a name that nobody can own"
    assert url.fragment == rule["alert"].lower()
    headings = re.findall(r"^#+ (.*)$", (ROOT / url.path.removeprefix("/")).read_text(), re.MULTILINE)
    assert rule["alert"] in headings


@needs_kubectl
def test_an_installation_names_the_place_of_its_runbooks(tmp_path: Path) -> None:
    """The overlay of the manual, as it stands there."""
    (overlay,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "operate.md").read_text(), re.DOTALL)
    beside = os.path.relpath(CONFIG, tmp_path.resolve())
    (tmp_path / "kustomization.yaml").write_text(overlay.replace("../captf/config", beside))
    done = subprocess.run(
        ["kubectl", "kustomize", str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    objects = [document for document in yaml.safe_load_all(done.stdout) if document]
    rules = of_kind(objects, "PrometheusRule")["spec"]["groups"][0]["rules"]
    assert [rule["annotations"]["runbook_url"] for rule in rules] == [
        f"https://wiki.example.com/platform/captf/docs/operate.md#{rule['alert'].lower()}" for rule in rules
    ]
    assert "runbooks" not in [obj["metadata"]["name"] for obj in objects], "it is of no use in the cluster"


@pytest.mark.acceptance("DJ26")
@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool on the PATH")
def test_the_rules_fire_when_they_should(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(SPEC, sort_keys=False))
    shutil.copy(FOLDER / "tests" / "rules_test.yaml", tmp_path)
    for arguments in (["check", "rules", "rules.yaml"], ["test", "rules", "rules_test.yaml"]):
        done = subprocess.run(
            ["promtool", *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_rule_has_a_case_that_fires_and_one_that_does_not() -> None:
    cases = yaml.safe_load((FOLDER / "tests" / "rules_test.yaml").read_text())["tests"]
    seen: dict[str, set[bool]] = {}
    for case in cases:
        for check in case["alert_rule_test"]:
            seen.setdefault(check["alertname"], set()).add(bool(check.get("exp_alerts")))
    assert seen == {rule["alert"]: {True, False} for rule in RULES}
