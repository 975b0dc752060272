"""The installation and the samples, as API servers judge them."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
from tests.captf_api import EMBEDDED_AND_REAL, captf_api
from tests.manifests import needs_kubectl, rendered

from captf_controllers.api.kinds import ALL_KINDS
from captf_runtime.client import Client
from captf_runtime.client.errors import AlreadyExists
from captf_runtime.objects import NAMESPACE, Object
from captf_runtime.testing.real_control_plane import RealControlPlane

BY_NAME = {kind.kind: kind for kind in ALL_KINDS}

#: What the API server of the tests, 1.20, does not serve, and why it is in the installation all the same.
NOT_SERVED = {
    ("cert-manager.io/v1", "Issuer"): "a kind of cert-manager",
    ("cert-manager.io/v1", "Certificate"): "a kind of cert-manager",
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"): "since 1.30",
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding"): "since 1.30",
}
#: CEL rules came with 1.25; before, the field is dropped.
NEWER_FIELD = ".x-kubernetes-validations"
#: What it serves under an older version only.
OLDER_VERSION = {("policy/v1", "PodDisruptionBudget"): "policy/v1beta1"}


@needs_kubectl
@pytest.mark.real_apiserver
def test_a_real_api_server_accepts_the_whole_installation(real_control_plane: RealControlPlane) -> None:
    """With validation on, so that a misspelt field is an error; as a dry run but for the namespace."""
    left_out = set()
    with Client.from_config(kubeconfig=str(real_control_plane.kubeconfig)) as client:
        for obj in rendered("default"):
            what = (obj["apiVersion"], obj["kind"])
            if what in NOT_SERVED:
                left_out.add(what)
                continue
            obj["apiVersion"] = OLDER_VERSION.get(what, obj["apiVersion"])
            if obj["kind"] == "Deployment":
                # The sleep action is there since 1.30; this server sees an action that does nothing.
                (container,) = obj["spec"]["template"]["spec"]["containers"]
                assert container.pop("lifecycle") == {"preStop": {"sleep": {"seconds": 5}}}
            kind = client.kind(obj["apiVersion"], obj["kind"])
            namespace = obj["metadata"].get("namespace", "") if kind.namespaced else ""
            try:
                made = client.create(
                    kind, copy.deepcopy(obj), namespace, dry_run=kind.plural != NAMESPACE.plural
                )
            except AlreadyExists:
                continue
            lost = [part for part in _missing(obj, made) if not part.endswith(NEWER_FIELD)]
            assert lost == [], obj["kind"]
    assert left_out == set(NOT_SERVED)


def _missing(wanted: object, found: object, path: str = "") -> list[str]:
    """The paths of what was sent and is not in the answer: fields that the server does not know."""
    if isinstance(wanted, dict):
        if not isinstance(found, dict):
            return [path]
        return [part for key in wanted for part in _missing(wanted[key], found.get(key), f"{path}.{key}")]
    if isinstance(wanted, list) and isinstance(found, list):
        if len(wanted) != len(found):
            return [path]
        return [
            part
            for index, (one, other) in enumerate(zip(wanted, found, strict=True))
            for part in _missing(one, other, f"{path}[{index}]")
        ]
    # An empty API group or label value may be left out of the answer.
    return [] if found is not None or wanted in ("", None) else [path]


@pytest.fixture(scope="module", params=EMBEDDED_AND_REAL)
def api(request: pytest.FixtureRequest) -> Iterator[Client]:
    with captf_api(request.param) as kubeconfig, Client.from_config(kubeconfig=kubeconfig) as client:
        yield client


@needs_kubectl
@pytest.mark.parametrize("kind", [kind.kind for kind in ALL_KINDS])
def test_the_samples_are_valid(api: Client, kind: str) -> None:
    (sample,) = [obj for obj in rendered("samples") if obj["kind"] == kind]
    made = _create(api, sample)
    assert _missing(sample, made) == []


def _create(api: Client, sample: Object) -> Object:
    kind = BY_NAME[sample["kind"]]
    return api.create(kind, sample, "default" if kind.namespaced else "", dry_run=True)
