"""``captf`` answers at once: what a command needs is imported when it runs."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

import pytest

ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
HEAVY = (
    "kubernetes",
    "msgspec",
    "structlog",
    "prometheus_client",
    "urllib3",
    "yaml",
    "tenacity",
    "importlib.metadata",
)


@pytest.mark.parametrize("arguments", [["--help"], ["why", "--help"], ["state", "restore", "--help"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    script = (
        "import sys\n"
        "from captf_controllers.cli.captf import main\n"
        "try:\n"
        "    main(sys.argv[1:])\n"
        "except SystemExit:\n"
        f"    print('loaded:', sorted(set({HEAVY!r}) & set(sys.modules)))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env=ENVIRONMENT,
    )
    assert ran.stdout.rstrip().endswith("loaded: []")


def test_the_runner_imports_nothing_that_only_some_runs_need() -> None:
    """It starts once for each Job, and what it is part of is imported with it."""
    script = (
        "import sys\n"
        "import captf_controllers.runner.cli\n"
        "print('loaded:', sorted({'importlib.metadata', 'zipfile', 'email'} & set(sys.modules)))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env=ENVIRONMENT,
    )
    assert ran.stdout.rstrip() == "loaded: []"


def test_help_takes_less_than_half_a_second_of_work() -> None:
    """Processor time of the best of three runs, so that a busy machine does not decide."""

    def work() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "captf_controllers.cli.captf", "--help"],
            stdout=subprocess.DEVNULL,
            check=True,
            timeout=60,
            env=ENVIRONMENT,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(work() for _ in range(3)) < 0.5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["why"], "name one object"),
        (["why", "tfm"], "name one object"),
        (["why", "node", "a"], "is no kind that CAPTF runs modules for"),
        (["state", "restore", "tfm", "a"], "Missing option '--serial'"),
        (["state", "restore", "tfm", "a", "--serial", "0"], "Invalid value for '--serial'"),
        (["abandon", "tfm", "a", "--timeout", "soon"], "is not a duration"),
        (["nonsense"], "No such command"),
    ],
)
def test_a_usage_error_has_status_2(arguments: list[str], message: str) -> None:
    from click.testing import CliRunner

    from captf_controllers.cli.captf import main

    answer = CliRunner().invoke(main, arguments)
    assert answer.exit_code == 2
    assert message in answer.output
