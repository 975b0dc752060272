"""Fixtures of the library for the library's own tests, what holds for every test of a property, and the order."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from captf_runtime.testing import pytest_plugin

# How long an example takes says nothing but how busy the machine is. Hypothesis has its own settings for CI, on which
# these are laid.
settings.register_profile(
    "any speed", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any speed")


def pytest_configure(config: pytest.Config) -> None:
    """Load the fixtures also where the package, whose entry point loads them, is not installed."""
    if not config.pluginmanager.is_registered(pytest_plugin):
        config.pluginmanager.register(pytest_plugin, "captf_runtime")


#: Folders whose modules run first, because single tests there take longest: what is long and starts last keeps
#: one processor waiting for the other.
FIRST = ("e2e", "chaos")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put modules with long tests first; inside a module, and of modules alike, the order stays.

    Modules stay whole, because they share what is expensive to set up.
    """
    long = {item.path for item in items if item.get_closest_marker("slow") is not None}
    items.sort(key=lambda item: turn(item.path, item.path in long))


def turn(path: Path, long: bool) -> int:
    """When a module has its turn: smaller is earlier."""
    folder = path.parent.name
    rank = FIRST.index(folder) if folder in FIRST else len(FIRST)
    return 2 * rank + (not long)
