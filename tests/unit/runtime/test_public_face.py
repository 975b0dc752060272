from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import captf_runtime

SOURCE = Path(captf_runtime.__file__).parents[1]


def run(program: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    return subprocess.run(
        [sys.executable, "-c", program], env=environment, text=True, capture_output=True, check=True
    ).stdout


def test_every_public_name_exists() -> None:
    for name in captf_runtime.__all__:
        assert getattr(captf_runtime, name) is not None
    assert set(captf_runtime._HOME) == set(captf_runtime.__all__)
    assert set(captf_runtime.__all__) <= set(dir(captf_runtime))
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = captf_runtime.Nothing


def test_importing_the_package_imports_nothing_else() -> None:
    loaded = run(
        "import captf_runtime, sys; print([m for m in sys.modules if m.startswith('captf_runtime.')])"
    )
    assert loaded.strip() == "[]"


def test_a_manager_without_servers_does_not_pay_for_them() -> None:
    program = """
import sys
import captf_runtime
captf_runtime.Manager()
captf_runtime.Controller
print([name for name in ("cheroot", "kubernetes.client.api", "aiohttp", "jsonschema") if name in sys.modules])
"""
    assert run(program).strip() == "[]"


@pytest.mark.requirement("G6")
def test_the_package_is_typed() -> None:
    assert (SOURCE / "captf_runtime" / "py.typed").exists()
