"""The command line of ``captf-manager``: what is refused, all at once, and how values may be written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from captf_controllers.cli import wiring
from captf_controllers.cli.manager import main
from captf_controllers.cli.options import ManagerOptions


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


def test_every_flag_is_logged_once_with_its_value(
    seen: list[ManagerOptions], capfd: pytest.CaptureFixture[str]
) -> None:
    result = start("--namespace=team-a", "--log-format=json", "--tls-curve-preferences=23")
    assert result.exit_code == 0
    assert 'FLAG: --namespace=\\"team-a\\"' in result.output
    assert 'FLAG: --tls-curve-preferences=\\"23\\"' in result.output
    assert '"contract":"v1beta2"' in result.output
