"""One run: check the image, prepare the directory, drive the runtime step by step, leave the result.

Guarantees:

- A result document is written on every path, also after a signal and after an error of the runner itself.
- The steps of an operation run in order; the first that fails ends the run.
- After a signal no further step starts, except the rescue of a state that the runtime could not store.
- Nothing that a command prints reaches the log without passing the redactor; a plan document reaches neither
  the log nor the disk.
"""

from __future__ import annotations

import errno
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from captf_controllers.runner import diagnostics, document, restoration
from captf_controllers.runner.diagnostics import Changes, Diagnostic, UiReader
from captf_controllers.runner.document import Failure, Result, Step, tenths
from captf_controllers.runner.events import Recorder
from captf_controllers.runner.flags import Settings
from captf_controllers.runner.layout import LayoutError, check_layout, unexecutable
from captf_controllers.runner.lines import Capture, LineSplitter, Tail
from captf_controllers.runner.log import Log
from captf_controllers.runner.plan import (
    EMPTY_PLAN_HASH,
    DriftSummary,
    Plan,
    PlanError,
    PlanSummary,
    parse_plan,
)
from captf_controllers.runner.process import Exit, Interruption, run_child
from captf_controllers.runner.redaction import Redactor, add_environment, add_inputs, add_plan
from captf_controllers.runner.service_account import ServiceAccount, Unusable
from captf_controllers.runner.state_secrets import StateSecrets, StateSecretsError
from captf_controllers.runner.text import cut
from captf_controllers.runner.workspace import PrepareError, Workspace, prepare, write_private

# The plan is parsed in memory; one beyond this would endanger the container's limit.
MOST_PLAN_BYTES = 128 << 20
MOST_CAPTURED_BYTES = 16 << 20

# The manager leaves 30 s between the stop timeout and the pod's grace period. This much of it may go to the
# rescue of a state whose step was killed only at the stop timeout; the rest is for the result.
RESCUE_RESERVE = 20.0

_VERSION_LIMIT = 60.0
_SHORTEST_KEY = 32
_COMMON = ("-input=false", "-no-color")
_VARIABLES = "-var-file=terraform.tfvars.json"
_NOT_HELD = ("state is already unlocked", "does not match existing lock")
# What a run is called, what has not been done when it did not begin, and what nobody knows when it ran on
# another state.
_EXPECTED = {
    "apply": (
        "apply",
        "applied",
        "what there was before the apply, it did not find, and may have made a second time",
    ),
    "plan": ("plan", "planned", "the plan says nothing"),
    "refresh": ("refresh", "refreshed", "what the refresh found says nothing"),
    "drift": ("drift check", "checked", "what the check found says nothing"),
    "destroy": ("destroy", "destroyed", "what the destroy removed is not known"),
}
_REFUSED = (errno.ENOEXEC, errno.EACCES, errno.ENOENT, errno.EPERM, errno.ELIBBAD)


class RunFailed(Exception):
    """Ends a run with a failure for the result."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.kind)
        self.failure = failure


@dataclass(slots=True)
class Output:
    """What is kept of one command's output."""

    stderr: Tail = field(default_factory=Tail)
    captured: Capture | None = None
    ui: UiReader | None = None


@dataclass(slots=True)
class Run:
    """One run of an operation.

    Args:
        settings: the parsed flags.
        environ: the environment that the runner was started with.
        interruption: tells when the run was asked to stop.
        log: the runner's own log.
        stdout: receives the redacted output of the runtime.
        stderr: receives its redacted errors.
    """

    settings: Settings
    environ: Mapping[str, str]
    interruption: Interruption
    log: Log
    stdout: TextIO = field(default_factory=lambda: sys.stdout)
    stderr: TextIO = field(default_factory=lambda: sys.stderr)
    redactor: Redactor = field(default_factory=Redactor)
    result: Result = field(init=False)
    _events: Recorder = field(init=False)
    _workspace: Workspace = field(init=False)
    _key: bytes = b""
    _step: str = "prepare"

    def execute(self) -> int:
        """Runs the operation and writes the result.

        Returns:
            The exit status: 0 when every step succeeded or nothing was to be done, else 1.
        """
        started = time.monotonic()
        settings = self.settings
        self.result = Result(
            op=settings.op,
            image=settings.image,
            providers_mirror=Path(settings.providers).is_dir(),
            command=settings.command,
        )
        add_environment(self.redactor, self.environ)
        self._events = Recorder(
            settings.event_object, settings.job_name, self.environ, self.redactor.redact, self.log
        )
        try:
            check_layout(settings.module, settings.command)
            self._prepare()
            self._read_version()
            self._announce()
            self._operate()
        except LayoutError as error:
            self._fail("image-layout", None, str(error))
        except PrepareError as error:
            self._fail("step", "prepare", str(error))
        except RunFailed as error:
            self.result.error = error.failure
        except Exception as error:  # noqa: BLE001 - a result must be left whatever happens in here
            # The text of an unexpected error may hold values; its type is enough to find it.
            self._fail("step", self._step, f"the runner failed with an unexpected {type(error).__name__}")
        return self._finish(time.monotonic() - started)

    def _fail(self, kind: str, step: str | None, tail: str) -> None:
        self.result.error = self._failure(kind, step, tail).failure

    def _failure(self, kind: str, step: str | None, tail: str) -> RunFailed:
        return RunFailed(Failure(kind, step, cut(self.redactor.redact(tail), diagnostics.TAIL_LIMIT)))

    # Preparation

    def _prepare(self) -> None:
        self._workspace = prepare(self.settings, self.environ)
        if self._workspace.dropped:
            self.log.info("environment variables dropped", names=self._workspace.dropped)
        if self.settings.op == "restore":
            try:
                state = restoration.assemble(Path(self.settings.config), self.settings.restore_chunks)
            except restoration.RestoreError as error:
                raise PrepareError(str(error)) from None
            try:
                write_private(self._restored_state, state)
            except OSError as error:
                raise PrepareError(f"the restored state cannot be written: {error.strerror}") from None
        if self.settings.op == "plan" or (self.settings.op == "apply" and self._is_guarded):
            self._key = _read_key(self.settings.plan_key_file)
        add_inputs(self.redactor, self._workspace.root)

    @property
    def _restored_state(self) -> Path:
        return self._workspace.directory / "restore.tfstate"

    @property
    def _is_guarded(self) -> bool:
        return self.settings.guard_deletes or bool(self.settings.expect_plan)

    def _read_version(self) -> None:
        """Asks the runtime for its version; only a runtime that the kernel refuses to start is a failure."""
        if self.interruption:
            return
        captured = Capture(MOST_CAPTURED_BYTES)
        ended = run_child(
            [*self._command, "version", "-json"],
            cwd=str(self._workspace.root),
            env=self._workspace.environment,
            on_stdout=captured.feed,
            on_stderr=lambda _data: None,
            interruption=self.interruption,
            stop_timeout=self.settings.stop_timeout,
            limit=_VERSION_LIMIT,
        )
        if ended.start_error is not None:
            if ended.start_error.errno in _REFUSED:
                raise unexecutable(self._command[0], ended.start_error)
            return
        if ended.code != 0:
            return
        try:
            version = json.loads(captured.take())["terraform_version"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return
        if isinstance(version, str):
            self.result.runtime_version = cut(version, 64)

    @property
    def _command(self) -> list[str]:
        """The runtime's argv prefix, its program independent of the working directory."""
        program, *rest = self.settings.command
        return [str(Path(program).absolute()) if "/" in program else program, *rest]

    def _announce(self) -> None:
        version = self.result.runtime_version
        runtime = f"runtime version {version}" if version else "runtime version unknown"
        image = self.settings.image or "an unnamed image"
        self.log.info("run started", op=self.settings.op, image=self.settings.image, runtime=version)
        self._events.normal(
            "RunStarted", self.settings.op, f"Run of {self.settings.op} with {image}, {runtime}"
        )

    # Operations

    def _operate(self) -> None:
        if self.settings.op == "restore":
            self._put_backup_in_place()
        self._expect_state(before=True)
        self._run_step(
            "init",
            ["init", *self._locking, *(f"-backend-config={value}" for value in self.settings.backend_config)],
        )
        if self.settings.force_unlock:
            self._force_unlock()
        match self.settings.op:
            case "apply":
                self._validate()
                if self._is_guarded:
                    self._guarded_apply()
                else:
                    self._change("apply", ["apply", *self._locking, "-json", "-auto-approve", _VARIABLES])
                self._expect_state()
            case "destroy":
                self._change("destroy", ["destroy", *self._locking, "-json", "-auto-approve", _VARIABLES])
                self._expect_state()
            case "refresh":
                self._refresh()
            case "drift":
                self._refresh()
                plan = self._plan("plan.tfplan", "-refresh=false")
                self.result.drift = plan.drift() if plan is not None else DriftSummary()
                self._tell_drift(self.result.drift)
            case "plan":
                self._validate()
                plan = self._plan("plan.tfplan")
                self.result.plan = plan.summarise(self._key) if plan is not None else PlanSummary()
                self._tell_plan(self.result.plan)
            case "restore":
                self._restore()

    @property
    def _locking(self) -> tuple[str, ...]:
        return (*_COMMON, self.settings.lock_timeout_argument)

    def _force_unlock(self) -> None:
        """Releases a stale lock; that somebody else has released or taken it since is no failure."""
        self._run_step(
            "force-unlock",
            ["force-unlock", "-force", self.settings.force_unlock],
            accept=lambda output: any(text in output.stderr.text() for text in _NOT_HELD),
        )

    def _validate(self) -> None:
        output = Output(captured=Capture(MOST_CAPTURED_BYTES))
        found: list[Diagnostic] = []

        def read(output: Output) -> Sequence[Diagnostic]:
            assert output.captured is not None
            text = output.captured.take()
            read = diagnostics.validate_diagnostics(text, self.redactor.redact)
            if read is None:
                for line in text.decode("utf-8", "replace").splitlines():
                    self._print(self.stdout, self.redactor.redact(line))
            found.extend(read or ())
            for diagnostic in found:
                stream, rendered = diagnostics.render_diagnostic(diagnostic)
                self._print(self.stdout if stream == "stdout" else self.stderr, rendered)
            return found

        self._run_step("validate", ["validate", "-json", "-no-color"], output=output, read=read)
        if not found:
            self._print(self.stdout, "The configuration is valid.")

    def _refresh(self) -> None:
        self._run_step(
            "apply-refresh-only", ["apply", *self._locking, "-refresh-only", "-auto-approve", _VARIABLES]
        )
        self._expect_state()

    def _plan(self, file: str, *extra: str) -> Plan | None:
        """Plans into a file of the working directory and reads it; None for a plan without changes."""
        path = str(self._workspace.directory / file)
        planned = self._run_step(
            "plan",
            ["plan", *self._locking, "-detailed-exitcode", *extra, _VARIABLES, f"-out={path}"],
            accepted=(0, 2),
        )
        if planned == 0:
            return None
        output = Output(captured=Capture(MOST_PLAN_BYTES))
        plans: list[Plan] = []

        def parse(output: Output) -> str:
            assert output.captured is not None
            if output.captured.overflowed:
                return f"the plan document is larger than {MOST_PLAN_BYTES} bytes"
            try:
                plan = parse_plan(output.captured.take())
            except PlanError as error:
                return str(error)
            add_plan(self.redactor, plan.document)
            plans.append(plan)
            return ""

        self._run_step("show-json", ["show", "-json", "-no-color", path], output=output, check=parse)
        return plans[0]

    def _guarded_apply(self) -> None:
        plan = self._plan("apply.tfplan")
        expected = self.settings.expect_plan
        summary = plan.summarise(self._key) if plan is not None else PlanSummary()
        self._tell_plan(summary)
        if expected and summary.hash != expected:
            self.result.plan = summary
            raise self._stopped(
                "plan-changed",
                f"The plan is not the approved one any more: approved was {expected}, now it is "
                f"{summary.hash}. Nothing was applied; review and approve the new plan.",
            )
        if plan is None:
            self.result.changes = Changes()
            return
        if not expected and not self._is_allowed and (destructive := plan.destructive_changes()):
            self.result.plan = summary
            raise self._stopped("blocked", self._blocked_text(destructive))
        path = str(self._workspace.directory / "apply.tfplan")
        self._change("apply", ["apply", *self._locking, "-json", path])

    @property
    def _is_allowed(self) -> bool:
        """Whether the very inputs of this run were approved. An empty hash approves nothing."""
        approved = self.settings.allow_deletes_hash
        return bool(approved) and approved == self.settings.inputs_hash

    def _blocked_text(self, destructive: Sequence[tuple[str, str]]) -> str:
        count = len(destructive)
        text = f"The plan destroys {count} resource{'s' if count != 1 else ''} and nobody approved that: "
        entries = [f"{self.redactor.redact(address)} ({label})" for address, label in destructive]
        for shown, entry in enumerate(entries):
            longer = text + (", " if shown else "") + entry
            rest = count - shown - 1
            more = f" and {rest} more" if rest else ""
            if len((longer + more).encode("utf-8", "replace")) > diagnostics.TAIL_LIMIT:
                return f"{text} and {count - shown} more"
            text = longer
        return text

    def _stopped(self, kind: str, tail: str) -> RunFailed:
        self.log.warning("run stopped", kind=kind)
        return self._failure(kind, None, tail)

    def _change(self, name: str, arguments: Sequence[str]) -> None:
        """Runs `apply` or `destroy` with the machine-readable UI, and rescues a state that was not stored."""
        errored = self._workspace.root / "errored.tfstate"
        had_errored = errored.exists()
        output = Output(ui=UiReader(self.redactor.redact))
        assert output.ui is not None
        try:
            self._run_step(name, arguments, output=output)
        except RunFailed:
            self.result.changes = output.ui.changes
            if errored.exists() and not had_errored:
                self._rescue(errored)
            raise
        self.result.changes = output.ui.changes
        if (changes := self.result.changes) is not None:
            self._events.normal(
                "ResourcesChanged",
                name,
                f"{changes.add} added, {changes.change} changed, {changes.destroy} destroyed, "
                f"{changes.imported} imported",
            )

    def _rescue(self, errored: Path) -> None:
        """Pushes the state that the runtime saved locally because it could not store it.

        Runs even when the run was interrupted, until the stop deadline at least. Its failure is only told.
        """
        self.log.warning("the runtime could not store its state, pushing the local copy", file=errored.name)
        try:
            self._run_step(
                "state-push",
                ["state", "push", self.settings.lock_timeout_argument, str(errored)],
                sheltered=True,
            )
        except RunFailed:
            self.log.error("the local copy of the state could not be pushed: the new state is lost")

    def _state_secrets(self) -> StateSecrets | None:
        """The Secrets of the state; None where it is not kept in this cluster."""
        try:
            account = ServiceAccount.of(self.environ)
        except Unusable as error:
            self.log.warning("the present state is not looked at", reason=str(error))
            return None
        return StateSecrets.of(account, self.settings.backend_config)

    def _expect_state(self, *, before: bool = False) -> None:
        """Makes sure that the state is the one which the run was started for.

        A runtime takes a missing state for an empty one: a destroy removes nothing and is content, an apply
        makes everything a second time, and a refresh stores a state that lists nothing.

        Args:
            before: whether the runtime has not begun. It does not begin, and a destroy does not count, unless
                that is certain; what any other run has done stands when the state just cannot be looked at.

        Raises:
            RunFailed: it is missing, another one, unreadable, or could not be looked at.
        """
        expected, op = self.settings.state_lineage, self.settings.op
        secrets = self._state_secrets() if expected and op != "restore" else None
        if secrets is None:
            return
        self._step = op
        what, done, unknown = _EXPECTED[op]
        otherwise = f"nothing was {done}" if before else unknown
        try:
            present = secrets.present()
            if not present:
                found = "it is missing"
            elif (lineage := secrets.lineage(present)) is None:
                found = "it cannot be read"
            elif lineage != expected:
                found = "another one is in its place"
            else:
                return
            text = f"the state is not the one that the {what} was started for: {found}; {otherwise}"
        except StateSecretsError as error:
            if not before and op != "destroy":
                self.log.warning("the state is not looked at again", reason=str(error))
                return
            text = f"{error}; {otherwise}"
        self.log.error("the run does not count", op=op, reason=text)
        raise self._failure("step", op, text)

    def _put_backup_in_place(self) -> None:
        """Writes the backup over a state that is missing or that no runtime could read.

        Does nothing over a state that reads: pushing over that is the runtime's own work, under its lock.
        """
        secrets = self._state_secrets()
        if secrets is None or self.interruption:
            return
        try:
            present = secrets.present()
            if secrets.lineage(present) is not None:
                return
            holder = secrets.lock_holder()
            if holder and holder != self.settings.force_unlock:
                raise PrepareError(f"the state cannot be read and is locked by {holder}: nothing was written")
            self.log.info("the backup takes the place of the state", unreadable=len(present))
            secrets.replace(
                present, restoration.pieces(Path(self.settings.config), self.settings.restore_chunks)
            )
        except (StateSecretsError, restoration.RestoreError) as error:
            raise PrepareError(str(error)) from None

    def _restore(self) -> None:
        push = ["state", "push", "-force", self.settings.lock_timeout_argument, str(self._restored_state)]
        self._run_step("state-push", push)
        output = Output(captured=Capture(MOST_CAPTURED_BYTES))
        expected = self.settings.restore_resources

        def count(output: Output) -> str:
            assert output.captured is not None
            listing = output.captured.take().decode("utf-8", "replace")
            for line in listing.splitlines():
                self._print(self.stdout, self.redactor.redact(line))
            found = restoration.managed_count(listing)
            if found == 0 and expected > 0:
                return (
                    f"the restored state lists {found} managed resources, the backup was made of {expected}"
                )
            return ""

        self._run_step("state-list", ["state", "list"], output=output, check=count)

    # Steps

    def _run_step(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        accepted: Sequence[int] = (0,),
        accept: Callable[[Output], bool] | None = None,
        output: Output | None = None,
        read: Callable[[Output], Sequence[Diagnostic]] | None = None,
        check: Callable[[Output], str] | None = None,
        sheltered: bool = False,
    ) -> int:
        """Runs one command as a recorded step.

        Args:
            name: the step's name in the result.
            arguments: arguments of the runtime.
            accepted: exit statuses that mean success.
            accept: decides whether another exit status is none to fail for.
            output: where to keep the output; given one that captures, standard output is not logged.
            read: reads diagnostics from the kept output, before success is judged.
            check: looks at the kept output of a command that succeeded; a text is a failure's.
            sheltered: whether the step runs after an interruption, too.

        Returns:
            The exit status.

        Raises:
            RunFailed: the step failed, or was not started because the run was interrupted.
        """
        self._step = name
        if self.interruption and not sheltered:
            self.result.steps.append(Step(name, 1, 0.0))
            raise RunFailed(Failure("interrupted", name, f"the run was interrupted before {name} started"))
        output = output or Output()
        self.log.info("step started", step=name)
        self._events.normal("StepStarted", name, f"Step {name} started")
        ended = self._spawn(arguments, output, sheltered)
        found: Sequence[Diagnostic] = read(output) if read is not None else ()
        if output.ui is not None:
            found = output.ui.diagnostics
        recorded, tail = ended.recorded, ""
        failed = ended.code not in accepted and not (
            ended.code is not None and accept is not None and accept(output)
        )
        if failed:
            tail = diagnostics.tail_of(
                found, self.redactor.redact(output.stderr.text()), _ending(name, ended)
            )
        elif check is not None and (tail := check(output)):
            failed, recorded = True, 1
        self.result.steps.append(Step(name, recorded, ended.seconds))
        summary = f"Step {name} ended with exit code {recorded} after {tenths(ended.seconds)} s"
        if not failed:
            self.log.info("step succeeded", step=name, exit=recorded, seconds=tenths(ended.seconds))
            self._events.normal("StepSucceeded", name, summary)
            return recorded
        tail = cut(self.redactor.redact(tail), diagnostics.TAIL_LIMIT)
        self.log.error("step failed", step=name, exit=recorded, seconds=tenths(ended.seconds))
        self._events.warning("StepFailed", name, f"{summary}: {tail}")
        errored = output.ui.errored if output.ui is not None else ()
        kind = "interrupted" if self.interruption else "step"
        raise RunFailed(Failure(kind, name, tail, tuple(diagnostics.resources_of(found, errored))))

    def _spawn(self, arguments: Sequence[str], output: Output, sheltered: bool) -> Exit:
        """Runs the runtime, its output going line by line through the redactor to the log or to `output`."""
        stdout, stderr = self._printer(self.stdout), self._printer(self.stderr)
        if (ui := output.ui) is not None:
            stdout = LineSplitter(
                lambda line: self._print_all(ui.read(line)), lambda: self._print_dropped(self.stdout)
            )

        def on_stderr(data: bytes) -> None:
            output.stderr.feed(data)
            stderr.feed(data)

        stop_timeout = self.settings.stop_timeout
        ended = run_child(
            [*self._command, *arguments],
            cwd=str(self._workspace.root),
            env=self._workspace.environment,
            on_stdout=output.captured.feed if output.captured is not None else stdout.feed,
            on_stderr=on_stderr,
            interruption=self.interruption,
            stop_timeout=stop_timeout + RESCUE_RESERVE if sheltered else stop_timeout,
            sheltered=sheltered,
        )
        stdout.close()
        stderr.close()
        return ended

    def _printer(self, stream: TextIO) -> LineSplitter:
        return LineSplitter(
            lambda line: self._print(stream, self.redactor.redact(line)), lambda: self._print_dropped(stream)
        )

    def _print_all(self, lines: Sequence[tuple[str, str]]) -> None:
        for stream, text in lines:
            self._print(self.stdout if stream == "stdout" else self.stderr, text)

    def _print_dropped(self, stream: TextIO) -> None:
        self._print(stream, "(a line of more than 1 MiB was left out)")

    @staticmethod
    def _print(stream: TextIO, text: str) -> None:
        try:
            stream.write(text + "\n")
            stream.flush()
        except OSError:
            return  # nobody reads the log; the run matters more

    # Reporting

    def _tell_plan(self, plan: PlanSummary) -> None:
        if plan.hash == EMPTY_PLAN_HASH:
            note = "The plan holds no changes"
        else:
            note = (
                f"{plan.create} to create, {plan.update} to update, {plan.replace} to replace, "
                f"{plan.delete} to delete, {plan.imported} to import, {plan.moved} to move, "
                f"{plan.forget} to forget, {plan.output_changes} outputs to change"
            )
        self._events.normal("PlanSummary", "plan", note)

    def _tell_drift(self, drift: DriftSummary) -> None:
        note = "No drift"
        if drift.detected:
            note = (
                f"Drift: {drift.create} to create, {drift.update} to update, {drift.replace} to replace, "
                f"{drift.delete} to delete"
            )
        self._events.normal("PlanSummary", "plan", note)

    def _finish(self, seconds: float) -> int:
        """Writes the result and tells the end. The result comes first: the grace period may be short."""
        result = self.result
        if result.plan is not None:
            result.plan = result.plan.with_resources(self.redactor.redact)
        if result.drift is not None:
            result.drift = result.drift.with_resources(self.redactor.redact)
        status = 0 if result.error is None else 1
        if not leave_result(self.settings.result, result, self.log):
            status = 1
        outcome = "succeeded" if result.error is None else f"failed ({result.error.kind})"
        note = f"Run of {self.settings.op} {outcome} after {tenths(seconds)} s with exit code {status}"
        if status == 0:
            self.log.info("run finished", op=self.settings.op, exit=status, seconds=tenths(seconds))
            self._events.normal("RunFinished", self.settings.op, note)
        else:
            kind = result.error.kind if result.error is not None else "result"
            step = result.error.step if result.error is not None else None
            self.log.error(
                "run finished",
                op=self.settings.op,
                exit=status,
                kind=kind,
                step=step,
                seconds=tenths(seconds),
            )
            self._events.warning("RunFinished", self.settings.op, note)
        return status


def leave_result(path: str, result: Result, log: Log) -> bool:
    """Writes the result document; False, after a log line, when it cannot be written."""
    try:
        document.write(path, document.render(result))
    except OSError as error:
        log.error("the result cannot be written", path=path, reason=error.strerror)
        return False
    return True


def _read_key(path: str) -> bytes:
    """The key of plan fingerprints.

    Raises:
        PrepareError: no path, an unreadable file, or too short a key. A hash is never made without a key.
    """
    if not path:
        raise PrepareError("the plan key could not be read: --plan-key-file is empty")
    try:
        key = Path(path).read_bytes()
    except OSError as error:
        raise PrepareError(f"the plan key could not be read: {path}: {error.strerror}") from None
    if len(key) < _SHORTEST_KEY:
        raise PrepareError(
            f"the plan key could not be read: {path} holds {len(key)} bytes, want at least {_SHORTEST_KEY}"
        )
    return key


def _ending(name: str, ended: Exit) -> str:
    """How a command ended that said nothing about it itself."""
    if ended.start_error is not None:
        return f"{name} could not start (exit code 1): {ended.start_error.strerror or ended.start_error}"
    if ended.killed_by is not None:
        return f"{name} was killed by signal {ended.killed_by} (exit code 1)"
    return f"{name} failed with exit code {ended.code}"
