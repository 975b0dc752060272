"""What the tests with the real runtime need."""

from __future__ import annotations

import os
import shutil

import pytest


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Without a runtime, tests marked `terraform` are skipped, visibly; in CI they fail."""
    if item.get_closest_marker("terraform") is None or shutil.which("terraform") or shutil.which("tofu"):
        return
    if os.environ.get("CI"):
        pytest.fail("needs terraform or tofu on the PATH, which must be there in CI")
    pytest.skip("needs terraform or tofu on the PATH")
