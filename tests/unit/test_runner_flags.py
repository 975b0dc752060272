from __future__ import annotations

import pytest

from captf_controllers.runner.flags import (
    GLOBAL_FLAGS,
    Settings,
    UsageError,
    parse_duration,
    parse_environment,
    parse_flags,
    parse_run,
    split_command,
)


def parsed(*arguments: str) -> Settings:
    settings = Settings()
    parse_run(settings, ["--op=apply", *arguments])
    return settings


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("300s", 300.0),
        ("5m0s", 300.0),
        ("1h30m", 5400.0),
        ("250ms", 0.25),
        ("1.5h", 5400.0),
        (".5s", 0.5),
        ("0", 0.0),
        ("-3s", -3.0),
        ("+2m", 120.0),
        ("10us", 1e-5),
        ("10µs", 1e-5),
        ("7ns", 7e-9),
    ],
)
def test_durations_are_read_in_go_notation(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "s", "1d", "5 m", "1h-3m", "--3s", "1,5s", "٣s", "1e3s"])
def test_text_that_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_duration(text)


def test_defaults_are_those_of_the_pod() -> None:
    settings = parsed()
    assert settings.command == ["/captf/runtime"]
    assert (settings.config, settings.module, settings.providers, settings.workdir) == (
        "/captf/config",
        "/captf/module",
        "/captf/providers",
        "/captf/work",
    )
    assert settings.result == "/dev/termination-log"
    assert settings.plan_key_file == "/captf/plan-key/key"
    assert settings.lock_timeout_argument == "-lock-timeout=300s"
    assert settings.stop_timeout == 60.0
    assert (settings.restore_chunks, settings.restore_resources, settings.guard_deletes) == (0, 0, False)


def test_repeated_values_are_never_split() -> None:
    labels = 'labels={"a"="b","c"=""}'
    settings = parsed(
        "--bin=/x,y", "--bin", "z", f"--backend-config={labels}", "--backend-config=namespace=ns"
    )
    assert settings.command == ["/x,y", "z"]
    assert settings.backend_config == [labels, "namespace=ns"]


def test_fractions_of_the_lock_timeout_are_dropped() -> None:
    assert parsed("--lock-timeout=2500ms").lock_timeout_argument == "-lock-timeout=2s"
    assert parsed("--lock-timeout=0").lock_timeout_argument == "-lock-timeout=0s"


@pytest.mark.parametrize("value", ["0", "-5s"])
def test_a_stop_timeout_of_nothing_means_the_default(value: str) -> None:
    assert parsed(f"--stop-timeout={value}").stop_timeout == 60.0


@pytest.mark.parametrize("text", ["--guard-deletes", "--guard-deletes=true"])
def test_a_switch_needs_no_value(text: str) -> None:
    assert parsed(text, "--image=i").guard_deletes is True


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--nope"], "--nope"),
        (["-op=apply"], "-op"),
        (["--op=resize"], "resize"),
        (["--lock-timeout=soon"], "--lock-timeout"),
        (["--lock-timeout=-1s"], "--lock-timeout"),
        (["--restore-chunks=many"], "--restore-chunks"),
        (["--guard-deletes=maybe"], "--guard-deletes"),
        (["--image"], "--image"),
        (["--force-unlock=-lock=false"], "--force-unlock"),
        (["--log-level=loud"], "--log-level"),
        (["--log-format=xml"], "--log-format"),
        (["extra"], "extra"),
        (["--"], "--"),
    ],
)
def test_a_bad_command_line_names_what_is_wrong(arguments: list[str], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        parsed(*arguments)


def test_an_operation_is_required() -> None:
    with pytest.raises(UsageError, match="--op"):
        parse_run(Settings(), ["--image=x"])


def test_what_came_before_an_error_is_kept() -> None:
    settings = Settings()
    with pytest.raises(UsageError):
        parse_run(settings, ["--result=/r", "--nope", "--image=i"])
    assert (settings.result, settings.image) == ("/r", "")


def test_flags_win_over_the_environment() -> None:
    settings = Settings()
    parse_environment(settings, {"CAPTF_LOG_LEVEL": "debug", "CAPTF_LOG_FORMAT": "json"})
    parse_flags(settings, ["--log-level=error"], GLOBAL_FLAGS)
    assert (settings.log_level, settings.log_format) == ("error", "json")


def test_a_bad_environment_variable_is_named() -> None:
    with pytest.raises(UsageError, match="CAPTF_LOG_LEVEL"):
        parse_environment(Settings(), {"CAPTF_LOG_LEVEL": "loud"})


@pytest.mark.parametrize(
    ("arguments", "leading", "command", "rest"),
    [
        ([], [], "", []),
        (["run", "--op=x"], [], "run", ["--op=x"]),
        (["--log-level=debug", "copy", "d"], ["--log-level=debug"], "copy", ["d"]),
        (["--log-level", "debug", "run"], ["--log-level", "debug"], "run", []),
        (["--version"], ["--version"], "", []),
    ],
)
def test_the_command_stands_after_global_flags(
    arguments: list[str], leading: list[str], command: str, rest: list[str]
) -> None:
    assert split_command(arguments) == (leading, command, rest)
