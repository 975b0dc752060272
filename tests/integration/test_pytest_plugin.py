"""The fixtures of the library, as an embedder uses them."""

from __future__ import annotations

import threading

import pytest

from captf_runtime.client import Client
from captf_runtime.controller import Context, Controller, Request
from captf_runtime.objects import CONFIG_MAP, SECRET
from captf_runtime.testing.apiserver import ApiServer
from captf_runtime.testing.running_manager import RunningManager

pytest_plugins = ["pytester"]


def test_a_controller_runs_against_the_server(client: Client, manager: RunningManager) -> None:
    copied = threading.Event()

    def copy(ctx: Context, request: Request) -> None:
        secret = manager.cache.get(SECRET, request.name, request.namespace)
        names = sorted(secret.get("data") or {})
        wanted = {"metadata": {"name": request.name}, "data": {"keys": ",".join(names)}}
        client.create(CONFIG_MAP, wanted, request.namespace)
        copied.set()

    manager.add(Controller("copies", for_=SECRET, reconciler=copy, cache=manager.cache))
    manager.start()
    client.create(SECRET, {"metadata": {"name": "s"}, "stringData": {"b": "1", "a": "2"}}, "default")
    assert copied.wait(60)
    assert client.get(CONFIG_MAP, "s", "default")["data"] == {"keys": "a,b"}
    assert manager.stop() == 0


def test_a_manager_that_never_ran_stops_cleanly(manager: RunningManager) -> None:
    assert manager.stop() == 0


@pytest.mark.api_server(tls=True, mode="1.20")
def test_options_come_from_the_marker(api_server: ApiServer, client: Client) -> None:
    assert api_server.url.startswith("https://")
    assert b'"minor":"20' in client.raw("GET", "/version").data.replace(b" ", b"")


def test_a_failing_controller_fails_the_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        class Broken:
            def run(self, stop):
                raise ValueError("broken on purpose")

        def test_it(manager):
            manager.add(Broken(), name="broken")
            try:
                manager.start()
            except RuntimeError:
                pass
        """
    )
    # By its module alone, whether or not the package is installed with its entry point.
    plugins = ("no:captf_runtime", "captf_runtime.testing.pytest_plugin", "no:cacheprovider")
    result = pytester.runpytest(*(flag for plugin in plugins for flag in ("-p", plugin)))
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*broken: ValueError('broken on purpose')*"])
