"""Deletion with real Terraform, on resources that really exist and can be counted."""

from __future__ import annotations

import pytest
from tests.e2e.scene import Scene

pytestmark = [pytest.mark.terraform, pytest.mark.slow]


def test_a_destroy_removes_what_the_module_built(scene: Scene) -> None:
    cluster = scene.cluster()
    cluster.wait_ready()
    assert len(scene.cloud.servers()) == 2
    cluster.delete()
    cluster.wait_gone()
    assert scene.cloud.servers() == []
    assert len(scene.cloud.calls("destroy")) == 2
    assert [event["reason"] for event in scene.events("demo")][-2:] == ["Destroyed", "FinalizerRemoved"]
    scene.wait_clean()
