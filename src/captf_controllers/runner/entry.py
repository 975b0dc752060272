"""The entry of `runner run`: from the command line to a result and an exit status."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from captf_controllers.runner import artefact
from captf_controllers.runner.diagnostics import TAIL_LIMIT
from captf_controllers.runner.document import Failure, Result
from captf_controllers.runner.events import Recorder
from captf_controllers.runner.flags import (
    GLOBAL_FLAGS,
    Settings,
    UsageError,
    parse_environment,
    parse_flags,
    parse_run,
)
from captf_controllers.runner.log import Log
from captf_controllers.runner.process import Interruption
from captf_controllers.runner.redaction import Redactor
from captf_controllers.runner.run import Run, leave_result
from captf_controllers.runner.text import cut
from captf_controllers.runner.workspace import original_environment

_USAGE_ERROR = 2


def run(settings: Settings, leading: Sequence[str], arguments: Sequence[str]) -> int:
    """Parses the flags and executes the run.

    A usage error leaves a result, too: at `--result` when that came before the error, else at its default.

    Args:
        settings: filled from the environment and the flags.
        leading: global flags that came before `run`.
        arguments: what followed it.

    Returns:
        The exit status: 0 success, 1 a failed run, 2 a usage error.
    """
    interruption = Interruption()
    interruption.install()
    problem: UsageError | None = None
    try:
        parse_environment(settings, os.environ)
        parse_flags(settings, leading, GLOBAL_FLAGS)
    except UsageError as error:
        problem = error
    try:
        parse_run(settings, arguments)  # in any case: it may hold `--result`
    except UsageError as error:
        problem = problem or error
    if problem is not None:
        sys.stderr.write(f"runner: {problem}\n")
        log = Log(form=Log.default_format(sys.stderr))
        failure = Failure("step", "flags", cut(str(problem), TAIL_LIMIT))
        leave_result(settings.result, Result(op=settings.op, image=settings.image, error=failure), log)
        events = Recorder(settings.event_object, settings.job_name, os.environ, Redactor().redact, log)
        events.warning("RunFinished", settings.op or "run", f"The command line cannot be used: {problem}")
        return _USAGE_ERROR
    log = Log(settings.log_level, settings.log_format or Log.default_format(sys.stderr))
    environ = original_environment(os.environ, frozen=artefact.is_frozen())
    return Run(settings, environ, interruption, log).execute()
