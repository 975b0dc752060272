from __future__ import annotations

import base64
import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.unit.fake_runtime import SOURCE, FakeImage, Ran, change

from captf_controllers.runner.plan import EMPTY_PLAN_HASH

COMMON = ["-input=false", "-no-color", "-lock-timeout=300s"]
FILE = "-var-file=terraform.tfvars.json"


@pytest.fixture
def image(tmp_path: Path) -> FakeImage:
    return FakeImage(tmp_path)


def interrupted(
    image: FakeImage, op: str, *flags: str, when: str, signals: Sequence[int] = (signal.SIGTERM,)
) -> Ran:
    """Runs, sending signals to the runner once its output holds a text."""
    process = image.start(op, *flags)
    assert process.stdout is not None
    seen = ""
    for line in process.stdout:
        seen += line
        if when in line:
            break
    for number in signals:
        process.send_signal(number)
    stdout, stderr = process.communicate(timeout=200)
    return image.ran(process.returncode, seen + stdout, stderr)


class TestSequences:
    def test_apply(self, image: FakeImage) -> None:
        ran = image.run("apply", "--backend-config=namespace=ns", '--backend-config=labels={"a"="b","c"=""}')
        assert ran.calls == [
            ["version", "-json"],
            ["init", *COMMON, "-backend-config=namespace=ns", '-backend-config=labels={"a"="b","c"=""}'],
            ["validate", "-json", "-no-color"],
            ["apply", *COMMON, "-json", "-auto-approve", FILE],
        ]
        assert (ran.exit, ran.steps) == (0, [("init", 0), ("validate", 0), ("apply", 0)])
        assert ran.result["runtime"] == {"command": [str(image.runtime)], "version": "1.99.0"}
        assert ran.result["error"] is None

    @pytest.mark.parametrize("flag", ["--guard-deletes", f"--expect-plan={EMPTY_PLAN_HASH}"])
    def test_guarded_apply_without_changes(self, image: FakeImage, flag: str) -> None:
        ran = image.run("apply", flag, "--lock-timeout=10s")
        common = [*COMMON[:2], "-lock-timeout=10s"]
        plan = f"-out={image.directory}/work/apply.tfplan"
        assert ran.calls[3:] == [["plan", *common, "-detailed-exitcode", FILE, plan]]
        assert (ran.exit, ran.result["changes"]) == (0, {"add": 0, "change": 0, "destroy": 0})
        assert "plan" not in ran.result

    def test_guarded_apply(self, image: FakeImage) -> None:
        image.plan(change("a", "create", after={}))
        ran = image.run("apply", "--guard-deletes", "--inputs-hash=h1:x")
        plan = f"{image.directory}/work/apply.tfplan"
        assert ran.calls[4:] == [["show", "-json", "-no-color", plan], ["apply", *COMMON, "-json", plan]]
        assert (ran.exit, ran.steps[-3:]) == (0, [("plan", 2), ("show-json", 0), ("apply", 0)])

    def test_destroy(self, image: FakeImage) -> None:
        ran = image.run("destroy")
        assert ran.calls[2:] == [["destroy", *COMMON, "-json", "-auto-approve", FILE]]

    def test_refresh(self, image: FakeImage) -> None:
        ran = image.run("refresh")
        assert ran.calls[2:] == [["apply", *COMMON, "-refresh-only", "-auto-approve", FILE]]
        assert ran.steps == [("init", 0), ("apply-refresh-only", 0)]
        assert ran.result["drift"] is None

    def test_drift(self, image: FakeImage) -> None:
        image.plan(change("a", "update", before={"x": 1}, after={"x": 2}), change("b", "delete", before={}))
        ran = image.run("drift")
        plan = f"{image.directory}/work/plan.tfplan"
        assert ran.calls[3:] == [
            ["plan", *COMMON, "-detailed-exitcode", "-refresh=false", FILE, f"-out={plan}"],
            ["show", "-json", "-no-color", plan],
        ]
        assert ran.result["drift"] == {
            "detected": True, "create": 0, "update": 1, "replace": 0, "delete": 1, "resources": ["a", "b"],
        }  # fmt: skip
        assert "plan" not in ran.result

    def test_drift_without_changes(self, image: FakeImage) -> None:
        ran = image.run("drift")
        assert ran.result["drift"] == {
            "detected": False, "create": 0, "update": 0, "replace": 0, "delete": 0, "resources": [],
        }  # fmt: skip

    def test_plan(self, image: FakeImage) -> None:
        image.plan(change("a", "create", after={"x": 1}))
        ran = image.run("plan")
        assert ran.steps == [("init", 0), ("validate", 0), ("plan", 2), ("show-json", 0)]
        assert ran.result["plan"]["create"] == 1
        assert ran.result["plan"]["resources"] == ["a (create)"]
        assert ran.result["plan"]["hash"].startswith("p2:")

    def test_plan_without_changes(self, image: FakeImage) -> None:
        ran = image.run("plan")
        assert ran.result["plan"] == {
            "hash": EMPTY_PLAN_HASH, "create": 0, "update": 0, "replace": 0, "delete": 0,
        }  # fmt: skip

    def test_restore(self, image: FakeImage) -> None:
        (image.config / "restore").mkdir()
        (image.config / "restore" / "0").write_bytes(gzip.compress(b'{"version": 4}'))
        image.script("state-list", "echo module.role.terraform_data.a; echo data.x.y")
        ran = image.run("restore", "--restore-chunks=1", "--restore-resources=2")
        state = image.directory / "work" / "restore.tfstate"
        assert ran.calls[2:] == [
            ["state", "push", "-force", "-lock-timeout=300s", str(state)],
            ["state", "list"],
        ]
        assert (ran.exit, ran.steps[1:]) == (0, [("state-push", 0), ("state-list", 0)])
        assert state.read_bytes() == b'{"version": 4}'
        assert state.stat().st_mode & 0o777 == 0o600
        assert "module.role.terraform_data.a" in ran.stdout

    def test_a_runtime_of_several_words(self, image: FakeImage) -> None:
        arguments = [argument for argument in image.arguments("refresh") if not argument.startswith("--bin")]
        arguments += ["--bin=/bin/sh", f"--bin={image.runtime}"]
        process = subprocess.run(
            arguments,
            env={**image.environ, "PYTHONPATH": str(SOURCE)},
            check=False,
            capture_output=True,
            text=True,
        )
        ran = image.ran(process.returncode, process.stdout, process.stderr)
        assert (ran.exit, ran.calls[1][0]) == (0, "init")
        assert ran.result["runtime"]["command"] == ["/bin/sh", str(image.runtime)]

    def test_a_relative_runtime(self, image: FakeImage) -> None:
        arguments = [argument for argument in image.arguments("refresh") if not argument.startswith("--bin")]
        process = subprocess.run(
            [*arguments, "--bin=./runtime"],
            env={**image.environ, "PYTHONPATH": str(SOURCE)},
            cwd=image.directory,
            check=False,
        )
        assert process.returncode == 0


class TestForceUnlock:
    def test_it_follows_init(self, image: FakeImage) -> None:
        ran = image.run("refresh", "--force-unlock=abc")
        assert ran.calls[2] == ["force-unlock", "-force", "abc"]
        assert ran.steps == [("init", 0), ("force-unlock", 0), ("apply-refresh-only", 0)]

    @pytest.mark.parametrize(
        "text",
        ["Failed to unlock state: state is already unlocked", 'lock ID "a" does not match existing lock'],
    )
    def test_a_lock_that_is_gone_is_no_failure(self, image: FakeImage, text: str) -> None:
        image.script("force-unlock", f"echo '{text}' >&2; exit 1")
        ran = image.run("refresh", "--force-unlock=abc")
        assert (ran.exit, ran.steps[1:]) == (0, [("force-unlock", 1), ("apply-refresh-only", 0)])

    def test_another_failure_ends_the_run(self, image: FakeImage) -> None:
        image.script("force-unlock", "echo 'Error: forbidden' >&2; exit 1")
        ran = image.run("refresh", "--force-unlock=abc")
        assert (ran.exit, ran.error) == (
            1,
            {"kind": "step", "step": "force-unlock", "tail": "Error: forbidden"},
        )


class TestDecisions:
    def test_destructive_changes_are_blocked(self, image: FakeImage) -> None:
        image.plan(
            change("a", "delete", "create", before={}, after={}),
            change("b", "delete", before={}),
            change("c", "forget"),
        )
        ran = image.run("apply", "--guard-deletes", "--inputs-hash=h1:x")
        assert (ran.exit, ran.steps[-1]) == (1, ("show-json", 0))
        assert (ran.error["kind"], ran.error["step"]) == ("blocked", None)
        assert "2 resources" in ran.error["tail"]
        assert "a (replace), b (delete)" in ran.error["tail"]
        assert ran.result["plan"]["replace"] == 1
        assert not any(call[0] == "apply" for call in ran.calls)

    def test_a_long_list_of_blocked_changes_ends_in_a_number(self, image: FakeImage) -> None:
        image.plan(*(change(f"module.role.thing[{i}]", "delete", before={}) for i in range(60)))
        ran = image.run("apply", "--guard-deletes", "--inputs-hash=h1:x")
        tail = ran.error["tail"]
        assert len(tail.encode()) <= 512
        shown = tail.count("(delete)")
        assert tail.endswith(f" and {60 - shown} more")
        assert ran.result["plan"]["delete"] == 60

    @pytest.mark.parametrize(
        ("flags", "allowed"),
        [
            (["--inputs-hash=h1:x", "--allow-deletes-hash=h1:x"], True),
            (["--inputs-hash=h1:x", "--allow-deletes-hash=h1:y"], False),
            (["--inputs-hash=", "--allow-deletes-hash="], False),
            ([], False),
        ],
    )
    def test_only_an_approval_of_these_inputs_allows(
        self, image: FakeImage, flags: list[str], allowed: bool
    ) -> None:
        image.plan(change("b", "delete", before={}))
        ran = image.run("apply", "--guard-deletes", *flags)
        assert (ran.exit == 0) is allowed

    def test_the_approved_plan_is_applied_with_its_deletes(self, image: FakeImage) -> None:
        image.plan(change("b", "delete", before={}))
        hash = image.run("plan").result["plan"]["hash"]
        ran = image.run("apply", "--guard-deletes", "--inputs-hash=h1:x", f"--expect-plan={hash}")
        assert (ran.exit, ran.steps[-1]) == (0, ("apply", 0))

    def test_another_plan_than_the_approved_one_stops(self, image: FakeImage) -> None:
        image.plan(change("b", "create", after={}))
        ran = image.run("apply", "--expect-plan=p2:0000")
        assert (ran.exit, ran.error["kind"], ran.error["step"]) == (1, "plan-changed", None)
        assert "p2:0000" in ran.error["tail"]
        assert ran.result["plan"]["hash"] in ran.error["tail"]
        assert ran.result["plan"]["create"] == 1

    def test_a_plan_that_became_empty_is_another_plan(self, image: FakeImage) -> None:
        ran = image.run("apply", "--expect-plan=p2:0000")
        assert (ran.exit, ran.error["kind"]) == (1, "plan-changed")
        assert ran.result["plan"]["hash"] == EMPTY_PLAN_HASH
        assert ran.steps[-1] == ("plan", 0)

    @pytest.mark.parametrize("op", ["plan", "drift"])
    def test_a_plan_document_that_cannot_be_read_fails(self, image: FakeImage, op: str) -> None:
        image.plan()
        image.script("show-json", "echo 'not JSON'")
        ran = image.run(op)
        assert (ran.exit, ran.error["kind"], ran.error["step"]) == (1, "step", "show-json")
        assert ran.steps[-1] == ("show-json", 1)
        assert ran.result["drift"] is None
        assert "plan" not in ran.result
        assert "not JSON" not in ran.log

    def test_a_restored_state_without_its_resources_fails(self, image: FakeImage) -> None:
        (image.config / "restore").mkdir()
        (image.config / "restore" / "0").write_bytes(gzip.compress(b"{}"))
        image.script("state-list", "echo data.x.y")
        ran = image.run("restore", "--restore-chunks=1", "--restore-resources=3")
        assert (ran.exit, ran.error["kind"], ran.error["step"]) == (1, "step", "state-list")
        assert "0 managed" in ran.error["tail"]
        assert "3" in ran.error["tail"]
        assert image.run("restore", "--restore-chunks=1").exit == 0

    def test_changes_come_from_the_summary(self, image: FakeImage) -> None:
        summary = '{"type":"change_summary","changes":{"add":1,"change":2,"remove":3,"operation":"apply"}}'
        image.script("apply", f"echo '{summary}'")
        assert image.run("apply").result["changes"] == {"add": 1, "change": 2, "destroy": 3}
        image.script("destroy", "echo 'Destroy complete! Resources: 4 destroyed.'")
        assert image.run("destroy").result["changes"] == {"add": 0, "change": 0, "destroy": 4}
        image.script("destroy", "echo quiet")
        assert "changes" not in image.run("destroy").result


class TestFailures:
    def test_a_failing_step_ends_the_run(self, image: FakeImage) -> None:
        image.script("init", "echo noise >&2; echo 'Error: Failed to query' >&2; echo 'no host' >&2; exit 7")
        ran = image.run("apply")
        assert (ran.exit, ran.steps) == (1, [("init", 7)])
        assert ran.error == {"kind": "step", "step": "init", "tail": "Error: Failed to query: no host"}
        assert "noise" in ran.stderr

    def test_a_silent_failure_names_the_step_and_its_exit_code(self, image: FakeImage) -> None:
        image.script("init", "exit 7")
        tail = image.run("apply").error["tail"]
        assert "init" in tail
        assert "7" in tail

    def test_a_killed_step_is_recorded_as_one(self, image: FakeImage) -> None:
        image.script("init", "kill -9 $$")
        ran = image.run("apply")
        assert (ran.steps, ran.error["kind"]) == ([("init", 1)], "step")
        assert "signal 9" in ran.error["tail"]

    def test_validate_tells_its_diagnostics(self, image: FakeImage) -> None:
        image.script(
            "validate",
            """cat <<'E'
{"valid": false, "diagnostics": [
 {"severity": "error", "summary": "Unsupported attribute", "detail": "No output y.\\nMore.",
  "snippet": {"context": "output \\"y\\"", "code": "  value = the-source-code"}},
 {"severity": "warning", "summary": "Deprecated", "detail": ""}]}
E
exit 1""",
        )
        ran = image.run("apply")
        assert ran.error["tail"] == "Error: Unsupported attribute: No output y."
        assert "Error: Unsupported attribute\nNo output y.\nMore." in ran.stderr
        assert "Warning: Deprecated" in ran.stdout
        assert "the-source-code" not in ran.log

    def test_an_apply_tells_its_resources(self, image: FakeImage) -> None:
        image.script(
            "apply",
            """cat <<'E'
{"type":"apply_errored","hook":{"resource":{"addr":"module.role.a.b"}},"@message":"a.b: Creation errored"}
{"type":"diagnostic","diagnostic":{"severity":"error","summary":"Quota","detail":"exceeded"}}
E
exit 1""",
        )
        ran = image.run("apply")
        assert ran.error == {
            "kind": "step", "step": "apply", "tail": "Error: Quota: exceeded",
            "resources": ["module.role.a.b: Quota"],
        }  # fmt: skip

    def test_an_unreadable_version_is_no_failure(self, image: FakeImage) -> None:
        for body in ("exit 1", "echo nonsense", "echo '{\"terraform_version\": 3}'"):
            image.script("version", body)
            ran = image.run("refresh")
            assert (ran.exit, ran.result["runtime"]["version"]) == (0, "")

    def test_a_result_that_cannot_be_written_fails_the_run(self, image: FakeImage) -> None:
        image.result_path.mkdir()
        process = image.start("refresh")
        _, stderr = process.communicate(timeout=200)
        assert process.returncode == 1
        assert "result cannot be written" in stderr

    @pytest.mark.parametrize("op", ["apply", "destroy"])
    def test_a_state_that_was_not_stored_is_pushed(self, image: FakeImage, op: str) -> None:
        image.script(op, "echo saved >errored.tfstate; echo 'Error: no store' >&2; exit 1")
        ran = image.run(op)
        errored = f"{image.directory}/work/root/errored.tfstate"
        assert ran.calls[-1] == ["state", "push", "-lock-timeout=300s", errored]
        assert ran.steps[-2:] == [(op, 1), ("state-push", 0)]
        assert ran.error["step"] == op

    def test_a_failed_rescue_keeps_the_first_error(self, image: FakeImage) -> None:
        image.script("apply", "echo saved >errored.tfstate; echo 'Error: no store' >&2; exit 1")
        image.script("state-push", "echo 'Error: still none' >&2; exit 1")
        ran = image.run("apply")
        assert ran.steps[-2:] == [("apply", 1), ("state-push", 1)]
        assert (ran.error["step"], ran.error["tail"]) == ("apply", "Error: no store")


class TestPreparation:
    @pytest.mark.parametrize(
        ("spoil", "named"),
        [
            (lambda image: (image.directory / "module" / "main.tf").unlink(), "module"),
            (lambda image: image.runtime.chmod(0o644), "runtime"),
            (lambda image: image.runtime.write_bytes(b"\x7fELF\x00 of another machine"), "runtime"),
            (lambda image: image.runtime.write_text("#!/no/such/loader\n"), "runtime"),
        ],
    )
    def test_a_broken_image_is_told_from_a_broken_run(self, image: FakeImage, spoil: Any, named: str) -> None:
        spoil(image)
        ran = image.run("apply")
        assert (ran.exit, ran.steps) == (1, [])
        assert (ran.error["kind"], ran.error["step"]) == ("image-layout", None)
        assert named in ran.error["tail"]

    @pytest.mark.parametrize("flags", [["--guard-deletes"], ["--expect-plan=p2:1"]])
    def test_a_guarded_apply_needs_its_key(self, image: FakeImage, flags: list[str]) -> None:
        image.key.write_bytes(b"k" * 31)
        ran = image.run("apply", *flags)
        assert (ran.exit, ran.error["kind"], ran.error["step"]) == (1, "step", "prepare")
        assert "31 bytes" in ran.error["tail"]
        assert ran.calls == []

    def test_a_plan_needs_its_key(self, image: FakeImage) -> None:
        image.key.unlink()
        assert "plan key could not be read" in image.run("plan").error["tail"]
        assert "plan key could not be read" in image.run("plan", "--plan-key-file=").error["tail"]

    @pytest.mark.parametrize("op", ["apply", "destroy", "refresh", "drift"])
    def test_others_do_not(self, image: FakeImage, op: str) -> None:
        image.key.unlink()
        assert image.run(op).exit == 0

    def test_a_missing_configuration_fails_preparation(self, image: FakeImage) -> None:
        ran = image.run("apply", f"--config={image.directory}/gone")
        assert (ran.error["kind"], ran.error["step"]) == ("step", "prepare")

    def test_a_bad_backup_fails_preparation(self, image: FakeImage) -> None:
        ran = image.run("restore", "--restore-chunks=0")
        assert (ran.exit, ran.error["kind"], ran.error["step"]) == (1, "step", "prepare")
        assert ran.calls == []

    def test_the_runtime_sees_a_clean_environment(self, image: FakeImage) -> None:
        image.environ |= {
            "TF_VAR_secret": "hunter2-hunter2",
            "TF_LOG": "trace",
            "TF_INPUT": "0",
            "AWS_REGION": "eu",
        }
        ran = image.run("refresh")
        seen = image.environment_of("init")
        work = str(image.directory / "work")
        assert (seen["HOME"], seen["TF_DATA_DIR"]) == (work, f"{work}/.terraform")
        assert (seen["TF_INPUT"], seen["AWS_REGION"]) == ("0", "eu")
        assert "TF_VAR_secret" not in seen
        assert "TF_LOG" not in seen
        assert "TF_VAR_secret" in ran.stderr
        assert "hunter2" not in ran.log

    def test_a_mirror_is_reported_and_used(self, image: FakeImage) -> None:
        (image.directory / "providers").mkdir()
        ran = image.run("refresh", "--image=registry/x:1")
        assert ran.result["image"] == {"ref": "registry/x:1", "providersMirror": True}
        assert image.environment_of("init")["TF_CLI_CONFIG_FILE"] == f"{image.directory}/work/cli.tfrc"


class TestRedaction:
    def test_every_kind_of_output_is_redacted(self, image: FakeImage) -> None:
        secret = "hunter2-password"
        image.environ["DB_PASSWORD"] = secret
        image.script("init", f"echo '{secret} out'; echo 'Error: {secret} err' >&2; exit 1")
        ran = image.run("apply")
        assert secret not in ran.log
        assert "(sensitive) out" in ran.stdout
        assert "Error: (sensitive) err" in ran.stderr
        assert ran.error["tail"] == "Error: (sensitive) err"

    def test_sensitive_variables_are_redacted_in_resources(self, image: FakeImage) -> None:
        bootstrap = "#cloud-config\nrun: kubeadm join --token abcdef.0123456789\n"
        image.configure(
            {"variable": {"db": {"sensitive": True}, "bootstrap_data": {"sensitive": True}}},
            {"db": {"pass": "hunter2"}, "bootstrap_data": base64.b64encode(bootstrap.encode()).decode()},
        )
        diagnostic = {
            "severity": "error",
            "summary": "Bad hunter2",
            "detail": "run: kubeadm join --token abcdef.0123456789",
            "address": 'a["hunter2"]',
        }
        message = json.dumps({"type": "diagnostic", "diagnostic": diagnostic})
        image.script("apply", f"cat <<'E'\n{message}\nE\nexit 1")
        ran = image.run("apply")
        assert ran.error["tail"] == "Error: Bad (sensitive): (sensitive)"
        assert ran.error["resources"] == ['a["(sensitive)"]: Bad (sensitive)']
        assert "hunter2" not in ran.log
        assert "abcdef.0123456789" not in ran.log

    def test_a_plan_document_is_never_printed_or_stored(self, image: FakeImage) -> None:
        image.plan(
            change(
                'a["hunter2"]',
                "update",
                before={"p": "hunter2"},
                after={"p": "visible-in-plan"},
                before_sensitive={"p": True},
            )
        )
        image.script("apply", "echo 'now hunter2'")
        ran = image.run("plan")
        assert ran.result["plan"]["resources"] == ['a["(sensitive)"] (update)']
        assert "hunter2" not in ran.log
        assert "visible-in-plan" not in ran.log
        work = [path for path in (image.directory / "work").rglob("*") if path.is_file()]
        assert not any(b"visible-in-plan" in path.read_bytes() for path in work)
        guarded = image.run("apply", "--guard-deletes", "--inputs-hash=h")
        assert "now (sensitive)" in guarded.stdout

    def test_a_huge_line_is_left_out(self, image: FakeImage) -> None:
        image.script("init", "head -c 1100000 /dev/zero | tr '\\0' x; echo; echo after")
        ran = image.run("refresh")
        assert len(ran.stdout) < 10_000
        assert "left out" in ran.stdout
        assert "after" in ran.stdout


class TestInterruption:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_a_step_that_fails_after_the_signal_is_interrupted(self, image: FakeImage, number: int) -> None:
        image.script("apply", "trap 'echo stopping; exit 1' TERM; echo ready; while :; do sleep 0.05; done")
        ran = interrupted(image, "apply", when="ready", signals=[number, signal.SIGTERM])
        assert (ran.exit, ran.error["kind"], ran.error["step"]) == (1, "interrupted", "apply")
        assert ran.stdout.count("stopping") == 1

    def test_a_step_that_succeeds_after_the_signal_counts(self, image: FakeImage) -> None:
        image.script("init", "trap 'got=1' TERM; echo ready; while [ ! $got ]; do sleep 0.05; done; exit 0")
        ran = interrupted(image, "apply", when="ready")
        assert (ran.exit, ran.steps) == (1, [("init", 0), ("validate", 1)])
        assert (ran.error["kind"], ran.error["step"]) == ("interrupted", "validate")
        assert not any(call[0] == "validate" for call in ran.calls)

    def test_a_last_step_that_succeeds_ends_the_run_well(self, image: FakeImage) -> None:
        image.script("apply", "trap 'got=1' TERM; echo ready; while [ ! $got ]; do sleep 0.05; done; exit 0")
        ran = interrupted(image, "apply", when="ready")
        assert (ran.exit, ran.result["error"], ran.steps[-1]) == (0, None, ("apply", 0))

    def test_a_step_that_does_not_stop_is_killed(self, image: FakeImage) -> None:
        image.script("destroy", "trap '' TERM; echo ready; while :; do sleep 0.05; done")
        ran = interrupted(image, "destroy", "--stop-timeout=300ms", when="ready")
        assert (ran.exit, ran.error["kind"], ran.steps[-1]) == (1, "interrupted", ("destroy", 1))

    def test_the_state_is_rescued_even_then(self, image: FakeImage) -> None:
        image.script(
            "apply",
            "trap 'echo saved >errored.tfstate; exit 1' TERM; echo ready; while :; do sleep 0.05; done",
        )
        image.script("state-push", "trap 'echo pushed >&2; exit 1' TERM; sleep 0.2; exit 0")
        ran = interrupted(image, "apply", when="ready", signals=[signal.SIGTERM] * 3)
        assert ran.steps[-2:] == [("apply", 1), ("state-push", 0)]
        assert ran.error["kind"] == "interrupted"

    def test_a_signal_during_the_start_is_not_lost(self, image: FakeImage) -> None:
        def signalled() -> None:
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
            os.kill(os.getpid(), signal.SIGTERM)  # stays pending, also for the program that starts next

        process = subprocess.run(
            image.arguments("apply"),
            env={**image.environ, "PYTHONPATH": str(SOURCE)},
            preexec_fn=signalled,
            check=False,
            capture_output=True,
            text=True,
        )
        ran = image.ran(process.returncode, process.stdout, process.stderr)
        assert (ran.exit, ran.error["kind"], ran.error["step"]) == (1, "interrupted", "init")
        assert (ran.steps, ran.calls) == ([("init", 1)], [])


class TestUsage:
    def run(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "captf_controllers.runner", *arguments],
            env={"PYTHONPATH": str(SOURCE), **environ},
            check=False,
            capture_output=True,
            text=True,
        )

    def test_a_usage_error_of_run_leaves_a_result(self, image: FakeImage) -> None:
        process = self.run("run", f"--result={image.result_path}", "--op=apply", "--nope")
        ran = image.ran(process.returncode, process.stdout, process.stderr)
        assert (ran.exit, ran.error["kind"], ran.error["step"]) == (2, "step", "flags")
        assert "--nope" in ran.error["tail"]
        assert ran.result["op"] == "apply"

    @pytest.mark.parametrize("where", ["flag", "environment"])
    def test_so_do_bad_log_settings(self, image: FakeImage, where: str) -> None:
        result = f"--result={image.result_path}"
        if where == "flag":
            process = self.run("--log-level=loud", "run", result, "--op=apply")
        else:
            process = self.run("run", result, "--op=apply", CAPTF_LOG_LEVEL="loud")
        ran = image.ran(process.returncode, process.stdout, process.stderr)
        assert (ran.exit, ran.error["step"]) == (2, "flags")

    @pytest.mark.parametrize(
        "arguments", [[], ["nope"], ["--nope"], ["version", "x"], ["copy"], ["copy", "a", "b"]]
    )
    def test_other_usage_errors(self, arguments: list[str]) -> None:
        process = self.run(*arguments)
        assert process.returncode == 2
        assert "usage: runner" in process.stderr
        assert process.stdout == ""

    def test_a_local_run_may_be_told_where_its_result_goes(self, image: FakeImage) -> None:
        process = self.run("run", "--nope", CAPTF_RESULT=str(image.result_path), CAPTF_LOG_LEVEL="loud")
        ran = image.ran(process.returncode, process.stdout, process.stderr)
        assert (ran.exit, ran.error["step"]) == (2, "flags")

    @pytest.mark.parametrize("arguments", [["version"], ["--version"], ["run", "--version"]])
    def test_the_version_is_printed(self, arguments: list[str]) -> None:
        process = self.run(*arguments)
        assert (process.returncode, process.stderr) == (0, "")
        assert process.stdout.startswith("captf-runner ")

    def test_the_log_can_be_read_by_machines_and_people(self, image: FakeImage) -> None:
        assert '"message": "run started"' in image.run("refresh", "--log-format=json").stderr
        assert "INFO    run started" in image.run("refresh", "--log-format=text").stderr
        assert image.run("refresh", "--log-level=error").stderr == ""
