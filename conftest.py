"""Fixtures of the library for the library's own tests, and what holds for every test of a property."""

from __future__ import annotations

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
