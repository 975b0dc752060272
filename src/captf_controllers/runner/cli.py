"""The runner's command line: `copy`, `run` and `version`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from captf_controllers.runner import artefact
from captf_controllers.runner.flags import (
    GLOBAL_FLAGS,
    Settings,
    UsageError,
    parse_environment,
    parse_flags,
    split_command,
)
from captf_controllers.runner.log import Log

USAGE = """\
usage: runner copy <dest>                 copy this program to <dest>
       runner run --op=<operation> ...    run one operation of the module image's runtime
       runner version | runner --version  print the version

operations: apply, destroy, refresh, drift, plan, restore
global flags: --log-level=debug|info|warning|error  --log-format=text|json
"""

_USAGE_ERROR = 2


def main(arguments: Sequence[str]) -> int:
    """Runs the command line.

    Args:
        arguments: what follows the program's name.

    Returns:
        The exit status: 0 success, 1 failure, 2 a usage error.
    """
    leading, command, rest = split_command(arguments)
    flags = [*leading, *rest]
    if "--version" in flags or (command == "version" and not rest):
        sys.stdout.write(artefact.describe() + "\n")
        return 0
    if "--help" in flags or "-h" in flags or command == "help":
        sys.stdout.write(USAGE)
        return 0
    settings = Settings()
    if command == "run":
        # A signal that comes before the run can handle it must wait, not end a run without a result.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
        # Imported here: `copy` runs in a container with little memory and needs none of it.
        from captf_controllers.runner.entry import run

        return run(settings, leading, rest)
    try:
        parse_environment(settings, os.environ)
        positional = parse_flags(settings, flags, GLOBAL_FLAGS)
    except UsageError as error:
        return _refuse(str(error))
    if command == "copy":
        if len(positional) != 1:
            return _refuse(f"copy takes exactly one destination, got {len(positional)}")
        return _copy(positional[0], settings)
    if command == "version":
        return _refuse("version takes no arguments")
    return _refuse(f"unknown command {command!r}" if command else "a command is needed")


def _copy(destination: str, settings: Settings) -> int:
    log = Log(settings.log_level, settings.log_format or Log.default_format(sys.stderr))
    try:
        artefact.copy_to(destination, os.environ)
    except OSError as error:
        log.error(
            "the runner cannot be copied", path=str(error.filename or destination), reason=error.strerror
        )
        return 1
    log.info("runner copied", path=destination)
    return 0


def _refuse(problem: str) -> int:
    sys.stderr.write(f"runner: {problem}\n{USAGE}")
    return _USAGE_ERROR
