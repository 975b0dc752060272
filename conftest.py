"""Fixtures of the library for the library's own tests."""

from __future__ import annotations

import pytest

from captf_runtime.testing import pytest_plugin


def pytest_configure(config: pytest.Config) -> None:
    """Load the fixtures also where the package, whose entry point loads them, is not installed."""
    if not config.pluginmanager.is_registered(pytest_plugin):
        config.pluginmanager.register(pytest_plugin, "captf_runtime")
