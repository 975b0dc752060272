"""The acceptance rows of the destroy Job, each as a user would see it."""

from __future__ import annotations

import re

import pytest
from tests.deletion_case import Case, arguments_of, image_of

from captf_runtime.objects import name_of


@pytest.mark.acceptance("DJ1")
def test_a_destroy_job_is_decided(case: Case) -> None:
    case.provision()
    case.delete()
    assert case.reconcile() == 60
    job = case.job()
    assert re.fullmatch(rf"captf-{case.short}-{case.name}-destroy-a1-[0-9a-f]{{6}}", name_of(job))
    assert case.status["activeJob"]["name"] == name_of(job)
    assert case.created_jobs() == [name_of(job)]
