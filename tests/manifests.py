"""The folders under config/, rendered as an installation would be."""

from __future__ import annotations

import copy
import functools
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from captf_runtime.objects import Object

ROOT = Path(__file__).resolve().parent.parent
CONFIG = ROOT / "config"

needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl on the PATH")


@functools.cache
def _rendered(folder: str) -> tuple[Object, ...]:
    done = subprocess.run(
        ["kubectl", "kustomize", str(CONFIG / folder)],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "kustomize warns about something deprecated"
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return tuple(document for document in yaml.load_all(done.stdout, loader) if document)


def rendered(folder: str) -> list[Object]:
    """The objects that `kubectl kustomize config/<folder>` prints."""
    return copy.deepcopy(list(_rendered(folder)))


def of_kind(objects: list[Object], kind: str, name: str = "") -> Object:
    """The one object of a kind, or the one of that name."""
    (found,) = [obj for obj in objects if obj["kind"] == kind and name in ("", obj["metadata"]["name"])]
    return found
