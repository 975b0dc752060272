"""The story itself: what a user does, and what has to come of it."""

from __future__ import annotations

from collections.abc import Callable

from captf_controllers.api.kinds import (
    CLUSTER,
    MACHINE,
    TERRAFORM_CLUSTER,
    TERRAFORM_CLUSTER_IDENTITY,
    TERRAFORM_MACHINE,
)
from captf_runtime.client import Client
from captf_runtime.client.errors import AlreadyExists, NotFound
from captf_runtime.objects import NAMESPACE, SECRET, Kind, Object, name_of
from hack.tour import manifests
from hack.tour.inventory import leftovers
from hack.tour.waiting import wait_until

MACHINES = ("demo-a", "demo-b")
PATIENCE = 120.0


class Story:
    """A user with kubectl, and Cluster API's part in it (owner references, the cluster's progress).

    ``alive`` is asked while the story waits; it raises when nothing can come any more.
    """

    def __init__(
        self,
        client: Client,
        *,
        namespace: str = manifests.TEAM,
        patience: float = PATIENCE,
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        self.client = client
        self._alive = alive
        self.namespace = namespace
        self.patience = patience

    def prepare(self) -> None:
        """Namespaces, the operator's credentials, the identity that shares them."""
        for name in (manifests.OPERATOR, self.namespace):
            self._create(NAMESPACE, manifests.namespace(name))
        self._create(
            SECRET,
            manifests.secret("cloud-credentials", manifests.OPERATOR, {"DEMO_TOKEN": "not-a-real-token"}),
        )
        self._create(TERRAFORM_CLUSTER_IDENTITY, manifests.identity())

    def create_cluster(self, **spec: object) -> None:
        cluster = self._create(CLUSTER, manifests.cluster(namespace=self.namespace))
        self._create(
            TERRAFORM_CLUSTER, manifests.terraform_cluster(cluster, namespace=self.namespace, **spec)
        )

    def create_machine(self, name: str, **spec: object) -> None:
        self._create(
            SECRET,
            manifests.secret(f"{name}-bootstrap", self.namespace, {"value": "#cloud-config\n{}\n"}),
        )
        machine = self._create(MACHINE, manifests.machine(name, namespace=self.namespace))
        self._create(
            TERRAFORM_MACHINE, manifests.terraform_machine(machine, namespace=self.namespace, **spec)
        )

    def report_infrastructure(self) -> None:
        """What Cluster API's Cluster controller does once the infrastructure is provisioned."""
        self.client.patch(
            CLUSTER,
            manifests.CLUSTER_NAME,
            {"status": {"initialization": {"infrastructureProvisioned": True}}},
            self.namespace,
            subresource="status",
        )

    def wait_ready(self, kind: Kind, name: str) -> Object:
        """Until the object is provisioned and Ready."""

        def ready() -> Object | None:
            self._alive()
            obj = self.client.get(kind, name, self.namespace)
            done = condition(obj, "Ready").get("status") == "True"
            return obj if done and provisioned(obj) else None

        found = wait_until(ready, f"{kind.kind} {name} is provisioned and Ready", seconds=self.patience)
        assert found is not None
        return found

    def delete(self, kind: Kind, name: str) -> None:
        try:
            self.client.delete(kind, name, self.namespace, propagation_policy="Background")
        except NotFound:
            return

    def wait_gone(self, kind: Kind, name: str) -> None:
        def gone() -> bool:
            self._alive()
            try:
                self.client.get(kind, name, self.namespace, metadata_only=True)
            except NotFound:
                return True
            return False

        wait_until(gone, f"{kind.kind} {name} is gone", seconds=self.patience)

    def wait_clean(self, seconds: float = 30.0) -> list[str]:
        """What is left once garbage collection and the sweep had their time; empty when nothing is."""
        rest: list[str] = []

        def clean() -> bool:
            rest[:] = leftovers(self.client, self.namespace)
            return not rest

        try:
            wait_until(clean, "nothing of CAPTF is left", seconds=seconds)
        except Exception as error:
            if not rest:
                raise error
        return rest

    def _create(self, kind: Kind, obj: Object) -> Object:
        namespace = obj["metadata"].get("namespace", "")
        try:
            return self.client.create(kind, obj, namespace)
        except AlreadyExists:
            return self.client.get(kind, name_of(obj), namespace)


def condition(obj: Object, type_: str) -> Object:
    """A condition of an object; empty when it has none of that type."""
    conditions = (obj.get("status") or {}).get("conditions") or []
    return next((item for item in conditions if item["type"] == type_), {})


def provisioned(obj: Object) -> bool:
    return bool(((obj.get("status") or {}).get("initialization") or {}).get("provisioned"))
