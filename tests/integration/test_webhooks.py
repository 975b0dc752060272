"""The webhooks as an API server calls them: one object that passes and one that is refused, with the path."""

from __future__ import annotations

import base64
import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from tests.captf_api import EMBEDDED_AND_REAL, captf_api

from captf_controllers.api.kinds import (
    API_VERSION,
    TERRAFORM_CLUSTER,
    TERRAFORM_CLUSTER_IDENTITY,
    TERRAFORM_CLUSTER_TEMPLATE,
    TERRAFORM_MACHINE,
    TERRAFORM_MACHINE_POOL,
    TERRAFORM_MACHINE_TEMPLATE,
    TERRAFORM_PLAN,
)
from captf_controllers.webhooks.configuration import webhook_configuration
from captf_controllers.webhooks.validators import register_all
from captf_runtime.client import Client
from captf_runtime.client.errors import AlreadyExists, ApiError, Invalid
from captf_runtime.objects import NAMESPACE, VALIDATING_WEBHOOK_CONFIGURATION, Kind, Object, name_of
from captf_runtime.testing.waiting import eventually
from captf_runtime.webhook import WebhookServer

IMAGE = "example.com/modules/x:v1"


class Served:
    """An API server with CAPTF's webhooks registered and, between `start` and `stop`, served."""

    def __init__(self, client: Client, authority: trustme.CA, certificates: Path) -> None:
        self.client, self._authority, self._certificates = client, authority, certificates
        self._probes = itertools.count()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        server = WebhookServer("127.0.0.1:0", self._certificates)
        register_all(server, self.client, "system:serviceaccount:captf-system:manager")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=server.run, args=(self._stop,), daemon=True)
        self._thread.start()
        assert server.ready.wait(60)
        bundle = base64.b64encode(self._authority.cert_pem.bytes()).decode()
        configuration = webhook_configuration({"url": server.url, "caBundle": bundle})
        try:
            self.client.create(VALIDATING_WEBHOOK_CONFIGURATION, configuration)
        except AlreadyExists:
            webhooks = {"webhooks": configuration["webhooks"]}
            self.client.patch(VALIDATING_WEBHOOK_CONFIGURATION, name_of(configuration), webhooks)
        eventually(self._is_called, timeout=120)

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=60)

    def _is_called(self) -> bool:
        """An API server takes a moment to notice a new configuration."""
        name = f"probe-{next(self._probes)}"
        try:
            self.create(TERRAFORM_MACHINE_POOL, name, {"source": {"image": "NOT VALID"}})
        except Invalid as error:
            return "denied the request" in error.message
        except ApiError as error:
            # The address before this one, at which nobody answers any more.
            if "failed calling webhook" not in error.message:
                raise
        return False

    def create(self, kind: Kind, name: str, spec: Object, **metadata: Any) -> Object:
        obj = {
            "apiVersion": API_VERSION,
            "kind": kind.kind,
            "metadata": {"name": name, **metadata},
            "spec": spec,
        }
        return self.client.create(kind, obj, "default" if kind.namespaced else "")

    def refused(self, kind: Kind, spec: Object, **metadata: Any) -> list[str]:
        """The paths that a create is refused for."""
        with pytest.raises(Invalid) as caught:
            self.create(kind, "refused", spec, **metadata)
        assert "denied the request" in caught.value.message
        return [str(cause.field) for cause in caught.value.causes]


@pytest.fixture(scope="module", params=EMBEDDED_AND_REAL)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("certificate")
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(str(folder / "tls.key"))
    for index, blob in enumerate(certificate.cert_chain_pems):
        blob.write_to_path(str(folder / "tls.crt"), append=index > 0)
    with captf_api(request.param) as kubeconfig, Client.from_config(kubeconfig=kubeconfig) as client:
        served = Served(client, authority, folder)
        try:
            served.start()
            yield served
        finally:
            served.stop()


def spec(**more: Any) -> Object:
    return {"source": {"image": IMAGE}, "identityRef": {"name": "i"}, **more}


def test_what_keeps_the_rules_passes(served: Served) -> None:
    served.create(TERRAFORM_CLUSTER, "fine", spec())
    served.create(TERRAFORM_MACHINE, "fine", spec(variables={"zone": "a"}))
    served.create(TERRAFORM_MACHINE_POOL, "fine", spec(jobs={"activeDeadlineSeconds": 600}))
    served.create(TERRAFORM_MACHINE_TEMPLATE, "fine", {"template": {"spec": spec()}})
    identity = {
        "secretRef": {"name": "s", "namespace": "default"},
        "allowedNamespaces": {"list": ["default"]},
    }
    served.create(TERRAFORM_CLUSTER_IDENTITY, "fine", identity)


@pytest.mark.parametrize("kind", [TERRAFORM_CLUSTER, TERRAFORM_MACHINE, TERRAFORM_MACHINE_POOL])
def test_every_violation_is_named(served: Served, kind: Kind) -> None:
    bad = spec(
        source={"image": "NOT VALID"},
        jobs={
            "lockTimeoutSeconds": 900,
            "activeDeadlineSeconds": 600,
            "env": [{"name": "TF_LOG", "value": "x"}],
        },
        variables={"captf_x": 1},
    )
    assert served.refused(kind, bad) == [
        "spec.source.image",
        "spec.jobs.env[0].name",
        "spec.jobs.lockTimeoutSeconds",
        "spec.variables[captf_x]",
    ]


def test_templates_and_warnings(served: Served) -> None:
    with_id = {"template": {"spec": spec(providerID="noop:///1")}}
    assert served.refused(TERRAFORM_MACHINE_TEMPLATE, with_id) == ["spec.template.spec.providerID"]
    without = {"template": {"spec": {"source": {"image": IMAGE}}}}
    served.create(TERRAFORM_CLUSTER_TEMPLATE, "warned", without)


@pytest.mark.acceptance("RA5")
def test_a_template_never_changes(served: Served) -> None:
    served.create(TERRAFORM_MACHINE_TEMPLATE, "fixed", {"template": {"spec": spec()}})
    change = {"spec": {"template": {"spec": {"deletionPolicy": "Retain"}}}}
    with pytest.raises(Invalid) as caught:
        served.client.patch(TERRAFORM_MACHINE_TEMPLATE, "fixed", change, "default")
    assert [cause.field for cause in caught.value.causes] == ["spec.template.spec"]


@pytest.mark.acceptance("RA2")
@pytest.mark.parametrize("kind", [TERRAFORM_CLUSTER, TERRAFORM_MACHINE, TERRAFORM_MACHINE_POOL])
def test_the_deletion_policy_may_change_at_any_time(served: Served, kind: Kind) -> None:
    served.create(kind, "leaving", spec(), finalizers=["tests.example.com/keep"])
    for policy in ("Retain", "Destroy", None):
        served.client.patch(kind, "leaving", {"spec": {"deletionPolicy": policy}}, "default")
    served.client.patch(
        kind, "leaving", {"metadata": {"labels": {"cluster.x-k8s.io/cluster-name": "x"}}}, "default"
    )
    with pytest.raises(Invalid):
        served.client.patch(kind, "leaving", {"spec": {"deletionPolicy": "Keep"}}, "default")


def test_an_approval_is_in_ones_own_name(served: Served) -> None:
    body = {
        "targetRef": {"kind": "TerraformCluster", "name": "fine"},
        "planHash": "p2:x",
        "inputsHash": "h2:x",
        "reason": "Manual",
        "summary": {"create": 1},
    }
    stolen = {**body, "approved": True, "approvedBy": "somebody-else"}
    assert served.refused(TERRAFORM_PLAN, stolen) == ["spec.approvedBy"]
    served.create(TERRAFORM_PLAN, "plan-1", body)


def test_only_the_manager_sets_a_provider_id(served: Served) -> None:
    served.create(TERRAFORM_MACHINE, "m1", spec())
    with pytest.raises(Invalid) as caught:
        served.client.patch(TERRAFORM_MACHINE, "m1", {"spec": {"providerID": "noop:///1"}}, "default")
    assert [cause.field for cause in caught.value.causes] == ["spec.providerID"]


def test_a_dead_webhook_refuses_writes_and_lets_deletes_through(served: Served) -> None:
    served.create(TERRAFORM_MACHINE, "left", spec())
    served.create(TERRAFORM_CLUSTER, "left", spec())
    served.stop()
    try:
        with pytest.raises(ApiError):
            served.create(TERRAFORM_CLUSTER, "late", spec())
        for kind in (TERRAFORM_MACHINE, TERRAFORM_CLUSTER):
            served.client.delete(kind, "left", "default", propagation_policy="Background")
        assert served.client.get(NAMESPACE, "default")
    finally:
        served.start()  # workers that share the tests run the others before or after this one
