"""The command line of ``captf-manager``: what is refused, all at once, and how values may be written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from captf_controllers.cli import wiring
from captf_controllers.cli.durations import format_duration, parse_duration
from captf_controllers.cli.manager import SectionedOption, main
from captf_controllers.cli.options import ManagerOptions
from captf_runtime import log

CONCURRENT = (
    "terraformcluster",
    "terraformmachine",
    "terraformmachinepool",
    "terraformmachinetemplate",
    "terraformclusteridentity",
)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The log as the other tests have it."""
    yield
    log.configure("warning", "text")


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[ManagerOptions]:
    """The options that a manager was started with; none really starts."""
    found: list[ManagerOptions] = []

    def run_manager(options: ManagerOptions) -> int:
        found.append(options)
        return 0

    monkeypatch.setattr(wiring, "run_manager", run_manager)
    monkeypatch.setenv("CAPTF_MANAGER_IMAGE", "example.com/captf:v1")
    return found


def start(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(main, arguments, env=environment)


def test_all_that_is_wrong_is_said_at_once(seen: list[ManagerOptions]) -> None:
    result = start(
        "--terraformcluster-concurrency=0",
        "--max-active-jobs=-1",
        "--sync-period=0",
        "--runner-image=example.com/Upper",
        "--webhook-port=70000",
        "--tls-min-version=VersionSSL3",
        "--tls-cipher-suites=TLS_NOTHING",
        "--tls-curve-preferences=7",
        "--diagnostics-address=nowhere",
        "--leader-elect",
        "--leader-elect-lease-duration=1s",
    )
    assert result.exit_code == 2
    assert seen == []
    text = result.output
    assert "invalid flags" in text
    for part in (
        "--terraformcluster-concurrency=0",
        "--max-active-jobs=-1",
        "--sync-period=0",
        "--runner-image=example.com/Upper",
        "--webhook-port=70000",
        "--tls-min-version=VersionSSL3",
        "--tls-cipher-suites=TLS_NOTHING",
        "--tls-curve-preferences=7",
        "--diagnostics-address=nowhere",
        "--leader-elect-lease-duration",
    ):
        assert part in text


def test_lists_are_separated_by_commas_and_add_up(seen: list[ManagerOptions]) -> None:
    suites = ["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"]
    result = start(
        f"--tls-cipher-suites={','.join(suites)}", "--tls_cipher_suites", "TLS_AES_128_GCM_SHA256,"
    )
    assert result.exit_code == 0, result.output
    assert seen[0].tls_cipher_suites == (*suites, "TLS_AES_128_GCM_SHA256")
    assert seen[0].tls_curve_preferences == ()
    assert start("--tls-curve-preferences=29").exit_code == 0
    assert seen[1].tls_curve_preferences == (29,)
    assert start("--tls-curve-preferences=x25519").exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "name", "value"),
    [
        ([], "insecure_diagnostics", False),
        (["--insecure-diagnostics"], "insecure_diagnostics", True),
        (["--insecure_diagnostics=true"], "insecure_diagnostics", True),
        (["--runner-events=false"], "runner_events", False),
        (["--sync-period", "1h30m"], "sync_period", 5400.0),
        ([], "tls_min_version", "VersionTLS12"),
        (["--runner-image=example.com/other:v2"], "runner_image", "example.com/other:v2"),
        ([], "runner_image", "example.com/captf:v1"),
    ],
)
def test_values(seen: list[ManagerOptions], arguments: list[str], name: str, value: Any) -> None:
    result = start(*arguments)
    assert result.exit_code == 0, result.output
    assert getattr(seen[0], name) == value


def test_a_missing_image_names_flag_and_variable() -> None:
    result = start(CAPTF_MANAGER_IMAGE="")
    assert result.exit_code == 2
    assert "--runner-image" in result.output
    assert "CAPTF_MANAGER_IMAGE" in result.output


def test_a_kubeconfig_that_is_not_there_ends_the_start_with_a_sentence(tmp_path: Path) -> None:
    missing = tmp_path / "kubeconfig"
    result = start("--runner-image=x", f"--kubeconfig={missing}")
    assert isinstance(result.exception, SystemExit), "no stack trace for what the user mistyped"
    assert result.exit_code == 1
    assert f"kubeconfig {missing} does not exist" in result.output


def test_positional_arguments_and_plain_numbers_are_refused(seen: list[ManagerOptions]) -> None:
    result = start("run", "now")
    assert result.exit_code == 2
    assert "captf-manager takes no positional arguments, got: run now" in result.output
    assert start("--sync-period=90").exit_code == 2
    assert seen == []


def test_help_and_version() -> None:
    result = start("--help")
    assert result.exit_code == 0
    sections = ["Generic", "Leader election", "Webhook", "Runner", "Diagnostics", "Logs"]
    places = [result.output.index(f"{section}:") for section in sections]
    assert places == sorted(places)
    assert start("--version").output.startswith("captf-manager ")


#: Every flag with the type of its value, its default and the section of the help that it stands in.
FLAGS: dict[str, tuple[str, object, str]] = {
    "namespace": ("text", "", "generic"),
    "watch-filter": ("text", "", "generic"),
    "sync-period": ("duration", 600.0, "generic"),
    "terraformcluster-concurrency": ("integer", 10, "generic"),
    "terraformmachine-concurrency": ("integer", 10, "generic"),
    "terraformmachinepool-concurrency": ("integer", 10, "generic"),
    "terraformmachinetemplate-concurrency": ("integer", 10, "generic"),
    "terraformclusteridentity-concurrency": ("integer", 4, "generic"),
    "health-addr": ("text", ":9440", "generic"),
    "profiler-address": ("text", "", "generic"),
    "kubeconfig": ("text", "", "generic"),
    "drift-default-interval": ("duration", 1800.0, "generic"),
    "cluster-operation-gate": ("boolean", True, "generic"),
    "max-active-jobs": ("integer", 200, "generic"),
    "cluster-max-active-jobs": ("integer", 20, "generic"),
    "state-backups": ("integer", 5, "generic"),
    "leader-elect": ("boolean", False, "leader election"),
    "leader-elect-lease-duration": ("duration", 15.0, "leader election"),
    "leader-elect-renew-deadline": ("duration", 10.0, "leader election"),
    "leader-elect-retry-period": ("duration", 2.0, "leader election"),
    "leader-elect-namespace": ("text", "", "leader election"),
    "webhook-port": ("integer", 9443, "webhook"),
    "webhook-cert-dir": ("text", "/tmp/k8s-webhook-server/serving-certs/", "webhook"),
    "webhook-cert-name": ("text", "tls.crt", "webhook"),
    "webhook-key-name": ("text", "tls.key", "webhook"),
    "runner-image": ("text", "", "runner"),
    "runner-events": ("boolean", True, "runner"),
    "diagnostics-address": ("text", ":8443", "diagnostics"),
    "insecure-diagnostics": ("boolean", False, "diagnostics"),
    "tls-min-version": ("text", "VersionTLS12", "diagnostics"),
    "tls-cipher-suites": ("text,...", (), "diagnostics"),
    "tls-curve-preferences": ("integer,...", (), "diagnostics"),
    "log-level": ("text", "", "logs"),
    "log-format": ("text", "", "logs"),
}


def declared() -> dict[str, SectionedOption]:
    return {
        param.opts[0].removeprefix("--"): param for param in main.params if isinstance(param, SectionedOption)
    }


def test_there_is_every_flag_and_no_other() -> None:
    assert set(declared()) == set(FLAGS)


@pytest.mark.parametrize("flag", FLAGS)
def test_the_type_default_and_section_of_a_flag(flag: str) -> None:
    param = declared()[flag]
    with main.make_context("captf-manager", []) as context:
        value = context.params[flag.replace("-", "_")]
    assert (param.type.name, value, param.section) == FLAGS[flag]


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        *((f"--{kind}-concurrency=0", "must be at least 1") for kind in CONCURRENT),
        ("--max-active-jobs=-1", "must not be negative"),
        ("--cluster-max-active-jobs=-1", "must not be negative"),
        ("--state-backups=-1", "must not be negative"),
        ("--sync-period=0", "must be greater than 0"),
        ("--drift-default-interval=-1s", "must be greater than 0"),
        ("--runner-image=example.com/captf:", "is not a valid image reference"),
        ("--webhook-port=65536", "must be between 1 and 65535"),
        ("--webhook-port=-1", "must be between 1 and 65535"),
        ("--health-addr=nowhere", "nowhere"),
        ("--profiler-address=1.2.3.4", "1.2.3.4"),
        ("--diagnostics-address=:99999", ":99999"),
        ("--tls-min-version=TLS12", "VersionTLS12"),
        ("--tls-cipher-suites=TLS_RSA_WITH_NOTHING", "TLS_RSA_WITH_NOTHING"),
        ("--tls-curve-preferences=1", "1"),
        ("--log-level=loud", "must be one of debug, info, warning, error"),
        ("--log-format=xml", "must be one of text, json"),
    ],
)
def test_what_is_wrong_with_a_flag(seen: list[ManagerOptions], argument: str, says: str) -> None:
    result = start(argument)
    assert result.exit_code == 2
    (line,) = [line for line in result.output.splitlines() if line.startswith(f"  {argument.split('=')[0]}")]
    assert says in line
    assert argument.split("=")[1].removesuffix("s") in line, "the value is named"
    assert seen == []


@pytest.mark.parametrize(
    "times",
    [("10s", "10s", "2s"), ("15s", "2.4s", "2s"), ("15s", "10s", "0"), ("-15s", "-20s", "-30s")],
    ids=["deadline", "retry", "zero", "negative"],
)
def test_election_times_must_fit_when_there_is_an_election(
    seen: list[ManagerOptions], times: tuple[str, str, str]
) -> None:
    names = ("lease-duration", "renew-deadline", "retry-period")
    flags = [f"--leader-elect-{name}={value}" for name, value in zip(names, times, strict=True)]
    assert start(*flags).exit_code == 0
    result = start("--leader-elect", *flags)
    assert result.exit_code == 2
    assert "--leader-elect-lease-duration" in result.output


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90.0),
        ("1h30m", 5400.0),
        ("1.5h", 5400.0),
        ("2m0.5s", 120.5),
        ("1500ms", 1.5),
        ("2000000us", 2.0),
        ("2000000µs", 2.0),
        ("3000000000ns", 3.0),
        ("+5s", 5.0),
        ("-5s", -5.0),
        ("0", 0.0),
        (".5s", 0.5),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "90", "s", "1x", "1h 30m", "1h30", "--5s", "٣s", "1e3s", "inf"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="write it like 90s"):
        parse_duration(text)


def test_the_environment_stands_behind_flags(
    seen: list[ManagerOptions], capfd: pytest.CaptureFixture[str]
) -> None:
    assert start("--log-format=json", CAPTF_LOG_LEVEL="debug").exit_code == 0
    assert log.get_level() == "debug"
    assert start("--log-level=warning", CAPTF_LOG_LEVEL="debug", CAPTF_LOG_FORMAT="json").exit_code == 0
    assert log.get_level() == "warning"
    for variable, value in (("CAPTF_LOG_LEVEL", "loud"), ("CAPTF_LOG_FORMAT", "xml")):
        result = start("--max-active-jobs=-1", **{variable: value})
        assert result.exit_code == 2
        assert f"{variable}={value}" in result.output, "what is wrong is the variable, not the flag"
        assert "--max-active-jobs=-1" in result.output


@pytest.mark.parametrize("missing", ["POD_NAMESPACE", "SERVICE_ACCOUNT_NAME"])
def test_a_manager_that_does_not_know_its_name_says_what_will_fail(
    seen: list[ManagerOptions], monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    both = {"POD_NAMESPACE": "captf-system", "SERVICE_ACCOUNT_NAME": "captf-controller-manager"}
    result = start("--log-format=json", **both)
    assert "does not know its own user name" not in result.output
    for name, value in both.items():
        monkeypatch.setenv(name, value)
    assert wiring.manager_username() == "system:serviceaccount:captf-system:captf-controller-manager"
    result = start("--log-format=json", **{**both, missing: ""})
    assert result.exit_code == 0, "it starts all the same"
    (line,) = [line for line in result.output.splitlines() if "does not know its own user name" in line]
    assert '"level":"warning"' in line
    for part in (*both, "metadata.namespace", "spec.serviceAccountName", "spec.providerID", "no machine"):
        assert part in line
    monkeypatch.setenv(missing, "")
    assert wiring.manager_username() == "", "nobody is the manager"


def test_every_flag_is_logged_once_with_its_value(
    seen: list[ManagerOptions], capfd: pytest.CaptureFixture[str]
) -> None:
    result = start("--namespace=team-a", "--log-format=json", "--tls-curve-preferences=23")
    assert result.exit_code == 0
    logged = re.findall(r'FLAG: --([a-z-]+)=\\"(.*?)\\"', result.output)
    assert [flag for flag, _ in logged] == sorted(FLAGS)
    values = dict(logged)
    assert values["namespace"] == "team-a"
    assert values["tls-curve-preferences"] == "23"
    assert values["sync-period"] == "10m"
    assert values["leader-elect"] == "false"
    assert values["log-format"] == "json"
    assert '"contract":"v1beta2"' in result.output
