"""The runner drives the real runtime through every operation, on the example modules and a state file."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.module_image import BOOTSTRAP, OUTPUTS, ModuleImage, Outcome

from captf_controllers.runner.plan import EMPTY_PLAN_HASH

pytestmark = pytest.mark.terraform

HEALTHY = {"state": "running", "healthy": True, "message": None, "reasons": []}


def interrupted(image: ModuleImage, op: str, *flags: str, when: str) -> Outcome:
    """Runs and sends SIGTERM once the output holds a text."""
    process = image.start(op, *flags)
    assert process.stdout is not None
    seen = ""
    for line in process.stdout:
        seen += line
        if when in line:
            break
    process.send_signal(signal.SIGTERM)
    stdout, stderr = process.communicate(timeout=180)
    return image.outcome(process.returncode, seen + stdout, stderr)


@pytest.mark.parametrize("role", ["cluster", "machine", "machinepool"])
def test_an_example_module_lives_from_apply_to_destroy(tmp_path: Path, role: str) -> None:
    image = ModuleImage(tmp_path, role)
    applied = image.run("apply")
    assert (applied.exit, applied.result["error"]) == (0, None)
    assert applied.steps == [("init", 0), ("validate", 0), ("apply", 0)]
    assert applied.result["changes"] == {"add": 1, "change": 0, "destroy": 0}
    assert applied.result["runtime"]["version"]
    assert set(image.outputs()) == set(OUTPUTS[role])
    assert image.outputs()["health"] == HEALTHY

    again = image.run("plan")
    assert again.result["plan"]["hash"] == EMPTY_PLAN_HASH, "a second plan must be empty"
    drift = image.run("drift")
    assert (drift.exit, drift.result["drift"]["detected"]) == (0, False)
    assert image.run("refresh").exit == 0

    destroyed = image.run("destroy")
    assert destroyed.result["changes"] == {"add": 0, "change": 0, "destroy": 1}
    assert json.loads(image.state_file.read_bytes())["resources"] == []


def test_the_outputs_of_a_cluster(tmp_path: Path) -> None:
    image = ModuleImage(tmp_path, "cluster")
    image.run("apply")
    outputs = image.outputs()
    assert outputs["control_plane_endpoint"] == {"host": "noop-my-cluster.invalid", "port": 6443}
    assert [domain["name"] for domain in outputs["failure_domains"]] == ["fd1"]
    assert outputs["exports"]["backend_id"].startswith("noop-backend-")
    image.configure(control_plane_endpoint={"host": "api.invalid", "port": 443}, extra_export="more")
    assert image.run("apply").exit == 0
    assert image.outputs()["control_plane_endpoint"] == {"host": "api.invalid", "port": 443}
    assert image.outputs()["exports"] == outputs["exports"] | {"extra": "more"}


def test_the_outputs_of_a_machine(tmp_path: Path) -> None:
    image = ModuleImage(tmp_path, "machine")
    image.run("apply")
    assert image.outputs() == {
        "provider_id": "noop:///team-a/web",
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        "failure_domain": "fd1",
        "interruptible": False,
        "health": HEALTHY,
    }


def test_the_outputs_of_a_pool(tmp_path: Path) -> None:
    image = ModuleImage(tmp_path, "machinepool")
    image.configure(replicas=11)
    image.run("apply")
    outputs = image.outputs()
    assert outputs["provider_id"] == "noop-group:///team-a/pool"
    assert outputs["provider_id_list"] == sorted(f"noop:///team-a/pool/{i}" for i in range(11))
    assert [instance["provider_id"] for instance in outputs["instances"]] == outputs["provider_id_list"]
    assert outputs["replicas"] == 11
    image.configure(replicas=0)
    image.run("apply")
    assert (image.outputs()["replicas"], image.outputs()["provider_id_list"]) == (0, [])


def test_bootstrap_data_is_neither_stored_nor_printed(tmp_path: Path) -> None:
    image = ModuleImage(tmp_path, "machinepool")
    first = image.run("apply")
    image.configure(bootstrap_data="b3RoZXI=", kubernetes_version="v1.34.0")
    logs = first.log + image.run("plan").log + image.run("apply").log
    stored = image.state_file.read_text()
    secret = BOOTSTRAP.splitlines()[2]
    for text in (logs, stored):
        assert secret not in text
        assert "abcdef.0123456789abcdef" not in text


def test_an_approved_plan_is_applied_and_another_is_not(tmp_path: Path) -> None:
    image = ModuleImage(tmp_path)
    approved = image.run("plan").result["plan"]
    assert image.run("plan").result["plan"] == approved, "the same plan has the same hash"
    image.configure(kubernetes_version="v1.34.0")
    changed = image.run("apply", "--guard-deletes", f"--expect-plan={approved['hash']}")
    assert (changed.exit, changed.error["kind"]) == (1, "plan-changed")
    assert not image.state_file.exists()
    image.configure()
    applied = image.run("apply", "--guard-deletes", f"--expect-plan={approved['hash']}")
    assert (applied.exit, applied.steps[-1]) == (0, ("apply", 0))
    assert applied.result["changes"]["add"] == 1


def test_a_replacement_is_blocked_until_it_is_approved(tmp_path: Path) -> None:
    image = ModuleImage(tmp_path)
    assert image.run("apply", "--guard-deletes", "--inputs-hash=h1:a").exit == 0
    image.configure(replace_when_changed="now")
    blocked = image.run("apply", "--guard-deletes", "--inputs-hash=h1:b")
    assert (blocked.exit, blocked.error["kind"]) == (1, "blocked")
    assert "module.role.terraform_data.load_balancer (replace)" in blocked.error["tail"]
    assert blocked.result["plan"]["replace"] == 1
    allowed = image.run("apply", "--guard-deletes", "--inputs-hash=h1:b", "--allow-deletes-hash=h1:b")
    assert (allowed.exit, allowed.result["changes"]) == (0, {"add": 1, "change": 0, "destroy": 1})


def test_an_update_passes_the_guard(tmp_path: Path) -> None:
    image = ModuleImage(tmp_path)
    image.configure(extra_resources=1)
    image.run("apply")
    image.configure(extra_resources=1, extra_export="only an output")
    applied = image.run("apply", "--guard-deletes", "--inputs-hash=h1:b")
    assert (applied.exit, applied.result["changes"]) == (0, {"add": 0, "change": 0, "destroy": 0})
    image.configure()
    blocked = image.run("apply", "--guard-deletes", "--inputs-hash=h1:c")
    assert "module.role.terraform_data.extra[0] (delete)" in blocked.error["tail"]


def test_drift_is_counted(tmp_path: Path) -> None:
    image = ModuleImage(tmp_path)
    image.run("apply")
    image.configure(kubernetes_version="v1.34.0")
    assert image.run("drift").result["drift"] == {
        "detected": True,
        "create": 0,
        "update": 1,
        "replace": 0,
        "delete": 0,
        "resources": ["module.role.terraform_data.load_balancer"],
    }


def test_a_failing_apply_names_the_cause_and_the_resource(tmp_path: Path) -> None:
    image = ModuleImage(tmp_path, "machine")
    image.configure(fail=True)
    failed = image.run("apply")
    assert (failed.exit, failed.error["kind"], failed.error["step"]) == (1, "step", "apply")
    assert failed.error["tail"].startswith("Error: Resource postcondition failed: The instance was told to")
    assert failed.error["resources"] == ["terraform_data.instance: Resource postcondition failed"]
    assert "Error: Resource postcondition failed" in failed.stderr


def undeclared_input(image: ModuleImage) -> None:
    image.configure(nobody_declares_this="x")


def undeclared_output(image: ModuleImage) -> None:
    image.configure()
    path = image.directory / "captf" / "config" / "main.tf.json"
    main: dict[str, Any] = json.loads(path.read_text())
    main["output"]["missing"] = {"value": "${module.role.missing}", "sensitive": True}
    path.write_text(json.dumps(main))


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (undeclared_input, "Extraneous JSON object property"),
        (undeclared_output, "Unsupported attribute"),
    ],
)
def test_a_broken_contract_fails_in_validate(tmp_path: Path, spoil: Any, named: str) -> None:
    image = ModuleImage(tmp_path)
    spoil(image)
    failed = image.run("apply")
    assert (failed.error["kind"], failed.error["step"]) == ("step", "validate")
    assert named in failed.error["tail"]
    assert named in failed.stderr


def test_an_interrupted_apply_keeps_what_it_has_built(tmp_path: Path) -> None:
    image = ModuleImage(tmp_path)
    image.configure(sleep_seconds=30)
    stopped = interrupted(image, "apply", when="terraform_data.delay[0]: Creating...")
    assert (stopped.exit, stopped.error["kind"], stopped.error["step"]) == (1, "interrupted", "apply")
    assert "execution halted" in stopped.error["tail"]
    assert json.loads(image.state_file.read_bytes())["resources"], "the state must hold what exists"
    image.configure()
    assert image.run("destroy").result["changes"]["destroy"] >= 1


def test_providers_come_from_the_mirror_only(tmp_path: Path) -> None:
    image = ModuleImage(tmp_path)
    module = tmp_path / "captf" / "module"
    source = (module / "main.tf").read_text()
    module.unlink()
    module.mkdir()
    requirement = 'terraform {\n  required_providers {\n    thing = { source = "acme/thing" }\n  }\n}\n'
    (module / "main.tf").write_text(requirement + source)
    (tmp_path / "captf" / "providers").mkdir()
    failed = image.run("apply")
    assert (failed.error["step"], failed.result["image"]["providersMirror"]) == ("init", True)
    assert "acme/thing" in failed.stderr
    assert str(tmp_path / "captf" / "providers") in failed.stderr
