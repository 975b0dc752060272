"""What a failed request says on one line."""

from __future__ import annotations

import pytest

from captf_controllers.cli.connection import explain, one_line, permission
from captf_runtime.client.errors import ApiError, ConnectionFailed, Forbidden, Unauthorized

GROUP = "/apis/infrastructure.cluster.x-k8s.io/v1alpha1"


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/api/v1/namespaces/team-a/secrets", "list secrets in namespace team-a"),
        ("GET", "/api/v1/namespaces/team-a/secrets/x", "get secrets x in namespace team-a"),
        ("GET", "/api/v1/namespaces/team-a", "get namespaces team-a"),
        ("GET", "/apis/batch/v1/jobs", "list jobs.batch"),
        (
            "PATCH",
            f"{GROUP}/namespaces/team-a/terraformmachines/m1",
            "patch terraformmachines.infrastructure.cluster.x-k8s.io m1 in namespace team-a",
        ),
        (
            "PATCH",
            f"{GROUP}/namespaces/team-a/terraformmachines/m1/status",
            "patch terraformmachines/status.infrastructure.cluster.x-k8s.io m1 in namespace team-a",
        ),
        ("DELETE", "/api/v1/namespaces/a/secrets/x", "delete secrets x in namespace a"),
        ("POST", "/apis/batch/v1/namespaces/a/jobs", "create jobs.batch in namespace a"),
    ],
)
def test_a_refusal_names_verb_and_resource(method: str, path: str, expected: str) -> None:
    refused = Forbidden("no", code=403, method=method, path=path)
    assert permission(refused) == expected
    assert explain(refused) == f"forbidden: you may not {expected}. no"


def test_every_explanation_is_one_line() -> None:
    for error in (
        Unauthorized("a\nb", code=401),
        ConnectionFailed("refused\nagain", refused=True),
        ApiError("first\nsecond", code=500, method="GET", path="/x"),
    ):
        assert "\n" not in explain(error)


def test_text_of_others_cannot_drive_a_terminal() -> None:
    assert one_line("a\x1b[31mred\x07\nb") == "a\N{REPLACEMENT CHARACTER}[31mred\N{REPLACEMENT CHARACTER} b"
