"""Garbage collection and the end of namespaces over HTTP, on the embedded and on a real control plane."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from captf_runtime.client import Client, Forbidden, NotFound
from captf_runtime.objects import (
    CLUSTER_ROLE,
    CONFIG_MAP,
    JOB,
    NAMESPACE,
    SECRET,
    Kind,
    Object,
    finalizers_of,
    is_deleting,
    metadata,
    name_of,
    owner_reference_to,
    owner_references,
)
from captf_runtime.testing.apiserver import ApiServer
from captf_runtime.testing.clock import VirtualClock

WAIT = 120.0
HOLD = "example.test/hold"


def until(probe: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + WAIT
    pause = threading.Event()
    while not probe():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {WAIT} s: {what}")
        pause.wait(0.02)


@dataclass(slots=True)
class Place:
    """A namespace of the test's own."""

    client: Client
    namespace: str

    def create(
        self,
        name: str,
        *owners: Object,
        kind: Kind = CONFIG_MAP,
        block: bool = False,
        finalizers: tuple[str, ...] = (),
        **fields: object,
    ) -> Object:
        references = [owner_reference_to(owner, block_owner_deletion=block).to_dict() for owner in owners]
        obj: Object = {
            "metadata": {"name": name, "ownerReferences": references, "finalizers": list(finalizers)},
            **fields,
        }
        return self.client.create(kind, obj, self.namespace if kind.namespaced else "")

    def get(self, name: str, kind: Kind = CONFIG_MAP) -> Object | None:
        try:
            return self.client.get(kind, name, self.namespace if kind.namespaced else "")
        except NotFound:
            return None

    def delete(self, name: str, policy: str, kind: Kind = CONFIG_MAP) -> Object:
        return self.client.delete(kind, name, self.namespace, propagation_policy=policy)  # type: ignore[arg-type]

    def gone(self, name: str, kind: Kind = CONFIG_MAP) -> None:
        until(lambda: self.get(name, kind) is None, f"{kind} {name} gone")

    def release(self, name: str, kind: Kind = CONFIG_MAP) -> None:
        patch = {"metadata": {"finalizers": None}}
        self.client.patch(kind, name, patch, self.namespace if kind.namespaced else "")

    def settled(self) -> None:
        """Wait until the collector has dealt with everything before: a pair made now is collected.

        Without it the real collector may not know a dependent yet, and then neither orphans it nor waits for it.
        """
        marker = f"settled-{uuid.uuid4().hex[:8]}"
        owner = self.create(marker)
        self.create(f"{marker}-child", owner)
        self.delete(marker, "Background")
        self.gone(f"{marker}-child")


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.real_apiserver)])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    source = "api_server" if request.param == "embedded" else "real_control_plane"
    server = request.getfixturevalue(source)
    kubeconfig = server.kubeconfig() if isinstance(server, ApiServer) else server.kubeconfig
    namespace = f"collect-{uuid.uuid4().hex[:8]}"
    with Client.from_config(kubeconfig=kubeconfig) as client:
        client.create(NAMESPACE, {"metadata": {"name": namespace}})
        yield Place(client, namespace)


@pytest.mark.requirement("AS21")
class TestCollector:
    def test_background(self, place: Place) -> None:
        owner = place.create("owner")
        middle = place.create("middle", owner, kind=SECRET)
        place.create("leaf", middle)
        answer = place.delete("owner", "Background")
        assert answer["kind"] == "Status"
        assert place.get("owner") is None
        place.gone("middle", SECRET)
        place.gone("leaf")

    def test_a_second_living_owner_keeps_the_dependent(self, place: Place) -> None:
        first, second = place.create("first"), place.create("second")
        place.create("shared", first, second)
        place.delete("first", "Background")

        def owners() -> list[str]:
            shared = place.get("shared")
            assert shared is not None, "the dependent of a living owner went"
            return [reference.name for reference in owner_references(shared)]

        until(lambda: owners() == ["second"], "the dangling reference removed")
        place.delete("second", "Background")
        place.gone("shared")

    def test_foreground_waits_for_what_blocks(self, place: Place) -> None:
        owner = place.create("owner")
        place.create("blocking", owner, block=True, finalizers=(HOLD,))
        place.create("other", owner, finalizers=(HOLD,))
        place.settled()
        answer = place.delete("owner", "Foreground")
        assert answer["kind"] == "ConfigMap"
        assert finalizers_of(answer) == ["foregroundDeletion"]

        def deleting(name: str) -> bool:
            found = place.get(name)
            return found is not None and is_deleting(found)

        until(lambda: deleting("blocking") and deleting("other"), "the dependents' deletion")
        assert deleting("owner")
        place.release("blocking")
        place.gone("owner")
        assert deleting("other")
        place.release("other")

    def test_orphan(self, place: Place) -> None:
        owner = place.create("owner")
        place.create("child", owner, block=True)
        place.settled()
        answer = place.delete("owner", "Orphan")
        assert finalizers_of(answer) == ["orphan"]
        place.gone("owner")
        place.settled()
        child = place.get("child")
        assert child is not None
        assert owner_references(child) == []

    def test_jobs_orphan_by_default(self, place: Place) -> None:
        container = {"name": "c", "image": "registry.example/app:1"}
        spec = {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}, "parallelism": 0}
        owner = place.create("job", kind=JOB, spec=spec)
        place.create("child", owner)
        place.settled()
        answer = place.client.raw("DELETE", JOB.path(place.namespace, "job"))
        assert answer.status == 200
        place.gone("job", JOB)
        place.settled()
        child = place.get("child")
        assert child is not None
        assert owner_references(child) == []

    def test_an_owner_that_never_existed(self, place: Place) -> None:
        owner = place.create("owner")
        stranger = {**owner, "metadata": {**owner["metadata"], "uid": str(uuid.uuid4())}}
        place.create("child", stranger)
        place.gone("child")

    def test_a_cluster_scoped_child_of_a_namespaced_owner(self, place: Place) -> None:
        owner = place.create("owner")
        name = f"{place.namespace}-role"
        place.create(name, owner, kind=CLUSTER_ROLE, rules=[])
        place.delete("owner", "Background")
        place.settled()
        assert place.get(name, CLUSTER_ROLE) is not None
        place.client.delete(CLUSTER_ROLE, name, propagation_policy="Background")

    def test_a_dependent_with_a_finalizer_waits(self, place: Place) -> None:
        owner = place.create("owner")
        place.create("child", owner, finalizers=(HOLD,))
        place.delete("owner", "Background")
        until(lambda: (child := place.get("child")) is not None and is_deleting(child), "the deletion")
        place.release("child")
        place.gone("child")


@pytest.mark.requirement("AS22")
class TestNamespace:
    def test_an_empty_namespace_goes(self, place: Place) -> None:
        place.client.delete(NAMESPACE, place.namespace, propagation_policy="Background")
        place.gone(place.namespace, NAMESPACE)

    def test_content_goes_first_and_what_is_held_is_named(self, place: Place) -> None:
        place.create("plain")
        place.create("held", finalizers=(HOLD,))
        answer = place.client.delete(NAMESPACE, place.namespace, propagation_policy="Background")
        assert answer["status"]["phase"] == "Terminating"
        assert answer["spec"]["finalizers"] == ["kubernetes"]

        def conditions() -> dict[str, Object]:
            namespace = place.get(place.namespace, NAMESPACE)
            assert namespace is not None
            return {c["type"]: c for c in namespace["status"].get("conditions") or ()}

        until(conditions, "the conditions")
        assert {name: (c["status"], c["reason"], c["message"]) for name, c in conditions().items()} == {
            "NamespaceDeletionDiscoveryFailure": (
                "False",
                "ResourcesDiscovered",
                "All resources successfully discovered",
            ),
            "NamespaceDeletionGroupVersionParsingFailure": (
                "False",
                "ParsedGroupVersions",
                "All legacy kube types successfully parsed",
            ),
            "NamespaceDeletionContentFailure": (
                "False",
                "ContentDeleted",
                "All content successfully deleted, may be waiting on finalization",
            ),
            "NamespaceContentRemaining": (
                "True",
                "SomeResourcesRemain",
                "Some resources are remaining: configmaps. has 1 resource instances",
            ),
            "NamespaceFinalizersRemaining": (
                "True",
                "SomeFinalizersRemain",
                f"Some content in the namespace has finalizers remaining: {HOLD} in 1 resource instances",
            ),
        }
        assert place.get("plain") is None
        with pytest.raises(Forbidden) as refused:
            place.create("late")
        assert "because it is being terminated" in refused.value.message
        updated = place.client.patch(CONFIG_MAP, "held", {"data": {"a": "b"}}, place.namespace)
        assert updated["data"] == {"a": "b"}
        place.release("held")
        place.gone(place.namespace, NAMESPACE)


@pytest.mark.requirement("AS23")
class TestStep:
    def test_nothing_happens_between_steps(self) -> None:
        clock = VirtualClock()
        with (
            ApiServer(controllers=False, clock=clock) as server,
            Client.from_config(kubeconfig=server.kubeconfig()) as client,
        ):
            place = Place(client, "default")
            owner = place.create("owner")
            place.create("child", owner)
            place.delete("owner", "Background")
            assert server.step() is True
            assert place.get("child") is None
            assert server.step() is False
            client.create(NAMESPACE, {"metadata": {"name": "n"}})
            client.create(CONFIG_MAP, {"metadata": {"name": "held", "finalizers": [HOLD]}}, "n")
            client.delete(NAMESPACE, "n", propagation_policy="Background")
            namespace = client.get(NAMESPACE, "n")
            assert "conditions" not in namespace["status"]
            clock.advance(3600)
            assert server.step() is True
            times = {c["lastTransitionTime"] for c in client.get(NAMESPACE, "n")["status"]["conditions"]}
            assert times == {"2026-01-01T01:00:00Z"}

    def test_background_work_is_prompt(self) -> None:
        """It begins when there is something to do: meanwhile no time passes on the server's clock."""
        with (
            ApiServer(clock=VirtualClock()) as server,
            Client.from_config(kubeconfig=server.kubeconfig()) as client,
        ):
            place = Place(client, "default")
            owner = place.create("owner")
            for index in range(20):
                place.create(f"child-{index}", owner)
            place.delete("owner", "Background")
            until(lambda: not _children(client), "the end of the dependents")

    def test_many_objects_are_collected_in_linear_time(self) -> None:
        with ApiServer(controllers=False) as server:
            times = []
            for count in (500, 2000):
                with Client.from_config(kubeconfig=server.kubeconfig()) as client:
                    place = Place(client, "default")
                    owner = place.create(f"owner-{count}")
                    body = {"kind": "ConfigMap", "apiVersion": "v1"}
                    for index in range(count):
                        reference = owner_reference_to(owner).to_dict()
                        meta = {"name": f"c-{count}-{index}", "ownerReferences": [reference]}
                        client.create(CONFIG_MAP, {**body, "metadata": meta}, "default")
                    place.delete(f"owner-{count}", "Background")
                    began = time.thread_time()  # not what other processes take
                    server.step()
                    times.append(time.thread_time() - began)
                    assert not _children(client)
            assert times[1] < times[0] * 4 * 3 + 0.2, times


def _children(client: Client) -> list[str]:
    return [
        name_of(found)
        for found in client.list(CONFIG_MAP, "default")
        if metadata(found).get("ownerReferences")
    ]
