from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.unit.runtime.fakes import DEADLINE

from captf_runtime import log
from captf_runtime.manager.probes import Probes
from captf_runtime.testing.clock import VirtualClock


@pytest.fixture
def logs() -> Iterator[Callable[[], list[dict[str, Any]]]]:
    level = log.get_level()
    stream = io.StringIO()
    log.configure("info", "json", stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    log.configure(level, "text", None)


def ask(probes: Probes, target: str, method: str = "GET") -> tuple[int, str]:
    path, _, query = target.partition("?")
    answer: list[str] = []
    body = probes(
        {"REQUEST_METHOD": method, "PATH_INFO": path, "QUERY_STRING": query},
        lambda status, headers, exc_info=None: answer.append(status),  # type: ignore[arg-type, return-value]
    )
    return int(answer[0][:3]), b"".join(body).decode()


def fine() -> None:
    return


def broken() -> None:
    raise OSError("the secret reason")


@pytest.mark.requirement("MG5")
def test_healthy() -> None:
    probes = Probes()
    probes.add_health("extra", fine)
    assert ask(probes, "/healthz") == (200, "ok")
    assert ask(probes, "/readyz") == (200, "ok")
    assert ask(probes, "/healthz/ping") == (200, "ok")
    assert ask(probes, "/healthz/extra") == (200, "ok")
    assert ask(probes, "/healthz?verbose") == (200, "[+]ping ok\n[+]extra ok\nhealthz check passed\n")


@pytest.mark.requirement("MG5")
def test_a_failed_check_withholds_its_reason_but_logs_it(logs: Callable[[], list[dict[str, Any]]]) -> None:
    probes = Probes()
    probes.add_ready("webhook", broken)
    probes.add_ready("other", fine)
    code, text = ask(probes, "/readyz")
    assert code == 500
    assert text == "[-]webhook failed: reason withheld\n[+]other ok\nreadyz check failed\n"
    assert ask(probes, "/readyz/webhook")[0] == 500
    assert ask(probes, "/readyz/other") == (200, "ok")
    assert ask(probes, "/readyz?exclude=webhook") == (200, "ok")
    assert ask(probes, "/readyz?exclude=webhook&exclude=other&verbose") == (200, "readyz check passed\n")
    assert ask(probes, "/healthz") == (200, "ok")
    line = logs()[0]
    assert (line["check"], line["err"]) == ("readyz/webhook", "OSError: the secret reason")


@pytest.mark.requirement("MG5")
def test_a_check_that_hangs_fails_after_ten_seconds() -> None:
    clock = VirtualClock()
    probes = Probes(clock=clock)
    release = threading.Event()
    started: list[int] = []

    def hang() -> None:
        started.append(1)
        release.wait(DEADLINE)

    probes.add_ready("slow", hang)
    answers: list[tuple[int, str]] = []
    asker = threading.Thread(target=lambda: answers.append(ask(probes, "/readyz")))
    asker.start()
    clock.wait_for_waiters(1)
    clock.advance(10)
    asker.join(DEADLINE)
    assert answers[0][0] == 500
    # While it hangs it fails at once, and no further threads pile up.
    assert ask(probes, "/readyz")[0] == 500
    assert started == [1]
    release.set()


def test_other_paths_and_methods() -> None:
    probes = Probes()
    assert ask(probes, "/")[0] == 404
    assert ask(probes, "/metrics")[0] == 404
    assert ask(probes, "/healthz/unknown")[0] == 404
    assert ask(probes, "/healthz", "POST")[0] == 405
    assert ask(probes, "/healthz", "HEAD")[0] == 200
    with pytest.raises(ValueError, match="'ping' exists"):
        probes.add_health("ping", fine)
    with pytest.raises(ValueError, match="without slashes"):
        probes.add_ready("a/b", fine)


@pytest.mark.requirement("MG5")
def test_whoever_asks_while_a_check_runs_gets_the_answer_of_that_run() -> None:
    clock = VirtualClock()
    probes = Probes(clock=clock)
    release = threading.Event()
    started: list[int] = []

    def slow() -> None:
        started.append(1)
        release.wait(DEADLINE)

    probes.add_ready("slow", slow)
    answers: list[tuple[int, str]] = []
    askers = [threading.Thread(target=lambda: answers.append(ask(probes, "/readyz"))) for _ in range(3)]
    for asker in askers:
        asker.start()
    clock.wait_for_waiters(3)
    release.set()
    for asker in askers:
        asker.join(DEADLINE)
    assert answers == [(200, "ok")] * 3
    assert started == [1]
    assert ask(probes, "/readyz") == (200, "ok")
    assert started == [1, 1]


@pytest.mark.requirement("MG5")
def test_a_check_that_wants_to_end_the_process_fails() -> None:
    probes = Probes()

    def leave() -> None:
        raise SystemExit(0)

    probes.add_ready("leave", leave)
    assert ask(probes, "/readyz")[0] == 500
