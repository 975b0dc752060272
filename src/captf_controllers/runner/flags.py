"""The command line of `runner run`.

Flags are parsed here and not by a library for one reason: a usage error must still leave a result document,
at the place named by a `--result` that came before the error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from captf_controllers.runner.log import FORMATS, LEVELS

OPERATIONS = ("apply", "destroy", "refresh", "drift", "plan", "restore")

DEFAULT_RESULT = "/dev/termination-log"
DEFAULT_STOP_TIMEOUT = 60.0


@dataclass(slots=True)
class Settings:
    """What one run was asked to do. Durations are seconds; the fields bear the names of the flags."""

    op: str = ""
    bin: list[str] = field(default_factory=list)
    config: str = "/captf/config"
    module: str = "/captf/module"
    providers: str = "/captf/providers"
    workdir: str = "/captf/work"
    image: str = ""
    result: str = DEFAULT_RESULT
    backend_config: list[str] = field(default_factory=list)
    lock_timeout: float = 300.0
    stop_timeout: float = DEFAULT_STOP_TIMEOUT
    force_unlock: str = ""
    state_lineage: str = ""
    guard_deletes: bool = False
    inputs_hash: str = ""
    allow_deletes_hash: str = ""
    expect_plan: str = ""
    plan_key_file: str = "/captf/plan-key/key"
    restore_chunks: int = 0
    restore_resources: int = 0
    event_object: str = ""
    job_name: str = ""
    log_level: str = "info"
    log_format: str = ""

    @property
    def command(self) -> list[str]:
        """The runtime's argv prefix."""
        return self.bin or ["/captf/runtime"]

    @property
    def lock_timeout_argument(self) -> str:
        """`-lock-timeout` in whole seconds, the fraction dropped."""
        return f"-lock-timeout={int(self.lock_timeout)}s"


class UsageError(Exception):
    """The command line cannot be used. The text names the flag and what it accepts."""


_STRINGS = {
    "config", "module", "providers", "workdir", "image", "result", "force-unlock", "inputs-hash",
    "state-lineage", "allow-deletes-hash", "expect-plan", "plan-key-file", "event-object", "job-name",
}  # fmt: skip
_REPEATED = {"bin", "backend-config"}
_DURATIONS = {"lock-timeout", "stop-timeout"}
_SWITCHES = {"guard-deletes"}
_NUMBERS = {"restore-chunks", "restore-resources"}
_CHOICES = {"op": OPERATIONS, "log-level": LEVELS, "log-format": FORMATS}

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"[+-]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+", re.ASCII)
_DURATION_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)")


def parse_duration(text: str) -> float:
    """Seconds of a duration such as `300s`, `5m0s`, `1h30m` or `250ms`; `0` needs no unit.

    Raises:
        ValueError: the text is not a duration.
    """
    if text in ("0", "+0", "-0"):
        return 0.0
    if not _DURATION.fullmatch(text):
        raise ValueError(f"{text!r} is not a duration such as 300s, 5m0s or 250ms")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in _DURATION_PART.findall(text))
    return -seconds if text.startswith("-") else seconds


GLOBAL_FLAGS = frozenset({"log-level", "log-format"})
RUN_FLAGS = frozenset(_STRINGS | _REPEATED | _DURATIONS | _SWITCHES | _NUMBERS | set(_CHOICES))


def parse_environment(settings: Settings, environ: Mapping[str, str]) -> None:
    """Takes `CAPTF_LOG_LEVEL`, `CAPTF_LOG_FORMAT` and `CAPTF_RESULT`; flags, parsed afterwards, win.

    The last is for runs as a local process, where the default place of the result belongs to the machine. It
    is taken first, so that an error in the others is reported there.

    Raises:
        UsageError: a variable holds a value outside its choices.
    """
    for flag in ("result", *sorted(GLOBAL_FLAGS)):
        variable = "CAPTF_" + flag.upper().replace("-", "_")
        if value := environ.get(variable, ""):
            _assign(settings, flag, value, source=f"environment variable {variable}")


def split_command(arguments: Sequence[str]) -> tuple[list[str], str, list[str]]:
    """The flags before the command, the command (empty when there is none) and what follows it."""
    at = 0
    while at < len(arguments) and arguments[at].startswith("-"):
        at += 2 if arguments[at].removeprefix("--") in GLOBAL_FLAGS else 1
    command = arguments[at] if at < len(arguments) else ""
    return list(arguments[:at]), command, list(arguments[at + 1 :])


def parse_flags(settings: Settings, arguments: Sequence[str], known: frozenset[str]) -> list[str]:
    """Fills `settings` from flags, in order.

    `settings` is filled as far as the arguments were understood, also when this raises: the caller finds
    `--result` there.

    Args:
        settings: receives the values.
        arguments: the command line, `--flag=value` or `--flag value`.
        known: names of the flags that are allowed here.

    Returns:
        The arguments that are no flags.

    Raises:
        UsageError: an unknown flag, or a bad or missing value.
    """
    waiting = list(arguments)
    positional: list[str] = []
    while waiting:
        argument = waiting.pop(0)
        if not argument.startswith("-"):
            positional.append(argument)
            continue
        name, assigned, value = argument.removeprefix("--").partition("=")
        if not argument.startswith("--") or name not in known:
            raise UsageError(f"unknown flag {argument.partition('=')[0]}")
        if name in _SWITCHES:
            value = value if assigned else "true"
        elif not assigned:
            if not waiting:
                raise UsageError(f"flag --{name} needs a value")
            value = waiting.pop(0)
        _assign(settings, name, value)
    return positional


def parse_run(settings: Settings, arguments: Sequence[str]) -> None:
    """Fills `settings` from the arguments of `run`.

    Raises:
        UsageError: as `parse_flags`; also a positional argument, or no `--op`.
    """
    if extra := parse_flags(settings, arguments, RUN_FLAGS):
        raise UsageError(f"unexpected argument {extra[0]!r}: run takes flags only")
    if not settings.op:
        raise UsageError(f"flag --op is required, one of {', '.join(OPERATIONS)}")
    if settings.stop_timeout <= 0:
        settings.stop_timeout = DEFAULT_STOP_TIMEOUT


def _assign(settings: Settings, name: str, value: str, *, source: str = "") -> None:
    """Sets the field of one flag from its text."""
    source = source or f"flag --{name}"
    attribute = name.replace("-", "_")
    if name in _CHOICES:
        if value not in _CHOICES[name]:
            raise UsageError(f"{source}: {value!r} is not one of {', '.join(_CHOICES[name])}")
        setattr(settings, attribute, value)
    elif name in _REPEATED:
        getattr(settings, attribute).append(value)
    elif name in _DURATIONS:
        try:
            seconds = parse_duration(value)
        except ValueError as error:
            raise UsageError(f"{source}: {error}") from None
        if name == "lock-timeout" and seconds < 0:
            raise UsageError(f"{source}: {value!r} is negative, want zero or more")
        setattr(settings, attribute, seconds)
    elif name in _NUMBERS:
        if not re.fullmatch(r"[+-]?\d{1,9}", value, re.ASCII):
            raise UsageError(f"{source}: {value!r} is not a whole number")
        setattr(settings, attribute, int(value))
    elif name in _SWITCHES:
        if value not in ("true", "false"):
            raise UsageError(f"{source}: {value!r} is not true or false")
        setattr(settings, attribute, value == "true")
    elif name == "force-unlock" and value.startswith("-"):
        # The runtime would take it for a flag; lock IDs come from an annotation that others can write.
        raise UsageError(f"{source}: {value!r} is not the ID of a lock")
    else:
        setattr(settings, attribute, value)
