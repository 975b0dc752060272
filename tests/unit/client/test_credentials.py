from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from captf_runtime import log
from captf_runtime.client.credentials import PluginCredentials, StaticCredentials, TokenFile
from captf_runtime.objects import format_time
from captf_runtime.testing.clock import VirtualClock


@pytest.mark.requirement("CL5")
def test_a_changed_token_file_is_noticed_within_a_minute_and_trimmed(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("  one\n")
    clock = VirtualClock()
    credentials = TokenFile(file, clock=clock)
    assert credentials.authorization() == "Bearer one"
    file.write_text("two\n")
    clock.advance(60)
    assert credentials.authorization() == "Bearer two"


@pytest.mark.requirement("CL5")
def test_a_failed_read_keeps_the_last_token_and_logs_once_a_minute(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "token"
    file.write_text("one")
    clock = VirtualClock()
    credentials = TokenFile(file, clock=clock)
    assert credentials.authorization() == "Bearer one"
    log.set_level("warning")
    lines = []
    for content in ("", None, "", None):
        if content is None:
            file.unlink(missing_ok=True)
        else:
            file.write_text(content)
        clock.advance(31)
        assert credentials.authorization() == "Bearer one"
        lines.append(capsys.readouterr().err.count("token file"))
    assert lines == [1, 0, 1, 0]


@pytest.mark.requirement("CL5")
def test_reload_reads_at_once_unless_another_thread_has(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one")
    credentials = TokenFile(file, clock=VirtualClock())
    refused = credentials.authorization()
    file.write_text("two")
    assert credentials.reload(refused)
    assert credentials.authorization() == "Bearer two"
    file.write_text("three")
    assert credentials.reload(refused)  # refused is not the current one any more: nothing to read
    assert credentials.authorization() == "Bearer two"


def test_static_credentials_never_reload() -> None:
    assert StaticCredentials.bearer(" a \n").authorization() == "Bearer a"
    assert StaticCredentials.basic("u", "p").authorization() == "Basic dTpw"
    assert not StaticCredentials.bearer("a").reload("Bearer a")
    assert StaticCredentials(None).authorization() is None


class Plugin:
    def __init__(self, clock: VirtualClock, lifetime: float | None) -> None:
        self.clock = clock
        self.lifetime = lifetime
        self.runs = 0

    def __call__(self) -> dict[str, Any]:
        self.runs += 1
        status: dict[str, Any] = {"token": f"t{self.runs}"}
        if self.lifetime is not None:
            status["expirationTimestamp"] = format_time(self.clock.now() + timedelta(seconds=self.lifetime))
        return status


@pytest.mark.requirement("CL5")
@pytest.mark.parametrize(("lifetime", "fresh", "due"), [(3600, 3539, 3540), (100, 89, 90)])
def test_a_plugin_is_asked_again_before_its_token_expires(lifetime: float, fresh: float, due: float) -> None:
    clock = VirtualClock()
    plugin = Plugin(clock, lifetime)
    credentials = PluginCredentials(plugin, clock=clock)
    assert credentials.authorization() == "Bearer t1"
    clock.advance(fresh)
    assert credentials.authorization() == "Bearer t1"
    clock.advance(due - fresh)
    assert credentials.authorization() == "Bearer t2"


@pytest.mark.requirement("CL5")
def test_a_plugin_without_expiry_is_asked_once_and_after_a_refusal() -> None:
    clock = VirtualClock()
    plugin = Plugin(clock, None)
    credentials = PluginCredentials(plugin, clock=clock)
    clock.advance(10**6)
    refused = credentials.authorization()
    clock.advance(10**6)
    assert credentials.authorization() == refused
    threads = [threading.Thread(target=credentials.reload, args=(refused,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert plugin.runs == 2
    assert credentials.authorization() == "Bearer t2"


@pytest.mark.requirement("CL5")
@pytest.mark.parametrize("expiry", [None, "", 5])
def test_what_a_plugin_gives_without_an_expiry_after_one_with_it_stays(expiry: object) -> None:
    clock = VirtualClock()
    given = iter(
        [
            {"token": "one", "expirationTimestamp": format_time(clock.now() + timedelta(seconds=100))},
            {"token": "two", "expirationTimestamp": expiry},
        ]
    )
    credentials = PluginCredentials(lambda: next(given), clock=clock)
    assert credentials.authorization() == "Bearer one"
    for _ in range(3):
        clock.advance(90)
        assert credentials.authorization() == "Bearer two"


@pytest.mark.requirement("CL5")
def test_a_reload_is_over_when_the_plugin_is() -> None:
    clock = VirtualClock()
    plugin = Plugin(clock, None)
    credentials = PluginCredentials(plugin, clock=clock)
    refused = credentials.authorization()
    assert credentials.reload(refused)
    assert credentials.authorization() == "Bearer t2"


def test_a_plugin_may_give_a_certificate() -> None:
    credentials = PluginCredentials(lambda: {"clientCertificateData": "c", "clientKeyData": "k"})
    assert credentials.certificate() == ("c", "k")
    assert credentials.authorization() is None


@pytest.mark.requirement("CL5")
@pytest.mark.parametrize("content", ["two\nlines\n", "two words\x7f", "tok€n"])
def test_a_file_that_holds_no_token_keeps_the_last_one(tmp_path: Path, content: str) -> None:
    file = tmp_path / "token"
    file.write_text("one")
    clock = VirtualClock()
    credentials = TokenFile(file, clock=clock)
    assert credentials.authorization() == "Bearer one"
    file.write_text(content)
    clock.advance(60)
    assert credentials.authorization() == "Bearer one"
