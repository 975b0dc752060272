"""Jobs, leases and credentials on an API server: what it takes, what it refuses, who wins a race."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from tests.captf_api import EMBEDDED_AND_REAL, captf_api
from tests.unit.test_jobs_podspec import CASES

from captf_controllers.api import annotations, labels
from captf_controllers.api.kinds import (
    API_VERSION,
    TERRAFORM_CLUSTER,
    TERRAFORM_CLUSTER_IDENTITY,
    TERRAFORM_MACHINE,
)
from captf_controllers.api.owner import Owner
from captf_controllers.api.workspace import IdentityRef
from captf_controllers.identity.credentials import CredentialsRequest, leave_mirror, prepare_credentials
from captf_controllers.identity.mirror import MirrorResult
from captf_controllers.identity.reconciler import IdentityReconciler
from captf_controllers.identity.sweep import sweep_namespace
from captf_controllers.jobs.launch import Adopted, Created, Deferred, LaunchRequest, launch
from captf_controllers.jobs.leases import (
    Acquired,
    LeaseOwner,
    LeaseRequest,
    Wait,
    acquire_leases,
    delete_leases,
    live_run_lease,
)
from captf_controllers.jobs.outcomes import collect_finished, write_marks
from captf_controllers.jobs.podspec import build_job
from captf_controllers.jobs.stuck import delete_stuck
from captf_controllers.jobs.views import list_jobs
from captf_controllers.observability.events import Events
from captf_runtime.client import Client
from captf_runtime.clock import SYSTEM_CLOCK
from captf_runtime.controller import Request
from captf_runtime.objects import (
    JOB,
    LEASE,
    NAMESPACE,
    POD,
    ROLE_BINDING,
    SECRET,
    SERVICE_ACCOUNT,
    Object,
    format_time,
    name_of,
    uid_of,
)

_numbers = itertools.count()


@pytest.fixture(scope="module", params=EMBEDDED_AND_REAL)
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    with captf_api(request.param) as kubeconfig, Client.from_config(kubeconfig=kubeconfig) as made:
        yield made


@pytest.fixture
def namespace(client: Client) -> str:
    name = f"jobs-{next(_numbers)}"
    client.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


def machine(client: Client, namespace: str, name: str = "web", **spec: object) -> Object:
    obj: Object = {
        "apiVersion": API_VERSION,
        "kind": TERRAFORM_MACHINE.kind,
        "metadata": {"name": name, "namespace": namespace, "labels": {labels.CLUSTER_NAME: "prod"}},
        "spec": {"source": {"image": "registry.example/m:1"}, **spec},
    }
    return client.create(TERRAFORM_MACHINE, obj, namespace)


def at_once(count: int, work: Callable[[int], object]) -> list[object]:
    barrier = threading.Barrier(count)

    def run(number: int) -> object:
        barrier.wait(60)
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def job_in(case: str, namespace: str, owner: Object | None = None) -> Object:
    job = build_job(CASES[case])
    job["metadata"]["namespace"] = namespace
    if owner is not None:
        job["metadata"]["ownerReferences"][0] |= {"uid": uid_of(owner), "name": name_of(owner)}
        for metadata in (job["metadata"], job["spec"]["template"]["metadata"]):
            metadata["labels"][labels.OWNER_NAME] = name_of(owner)
    return job


@pytest.mark.parametrize("case", CASES)
def test_the_server_takes_every_job_and_adds_nothing_that_matters(
    client: Client, namespace: str, case: str
) -> None:
    stored = client.create(JOB, job_in(case, namespace), namespace)
    built = build_job(CASES[case])
    assert stored["spec"]["backoffLimit"] == 0
    assert "ttlSecondsAfterFinished" not in stored["spec"]
    for index, container in enumerate(built["spec"]["template"]["spec"]["containers"]):
        kept = stored["spec"]["template"]["spec"]["containers"][index]
        assert {key: kept[key] for key in container} == container


class TestLaunch:
    def request(self, owner: Object, namespace: str, done: list[str]) -> LaunchRequest:
        job = job_in("machine-apply", namespace, owner)
        leases = LeaseRequest(
            LeaseOwner(namespace, TERRAFORM_MACHINE.kind, name_of(owner), "prod"), "apply", name_of(job), 3600
        )
        return LaunchRequest(
            job,
            uid_of(owner),
            leases,
            Acquired(),
            record=lambda created: done.append(f"record {uid_of(created)}"),
            create_run_secret=lambda created: done.append(f"secret {uid_of(created)}"),
        )

    def test_repeated_and_raced_it_is_one_job(self, client: Client, namespace: str) -> None:
        owner, done = machine(client, namespace), []
        request = self.request(owner, namespace, done)
        assert isinstance(acquire_leases(client, request.leases, SYSTEM_CLOCK), Acquired)
        launched = at_once(4, lambda _: launch(client, request, SYSTEM_CLOCK))
        assert sorted(type(item).__name__ for item in launched) == ["Adopted"] * 3 + ["Created"]
        (view,) = list_jobs(client, namespace, TERRAFORM_MACHINE.kind, "web", uid=uid_of(owner))
        assert set(done) == {f"record {view.uid}", f"secret {view.uid}"}
        assert live_run_lease(client, request.leases.owner, SYSTEM_CLOCK.now()).holder == view.name

    def test_its_finished_job_is_counted_first(self, client: Client, namespace: str) -> None:
        owner = machine(client, namespace)
        request = self.request(owner, namespace, [])
        acquire_leases(client, request.leases, SYSTEM_CLOCK)
        launched = launch(client, request, SYSTEM_CLOCK)
        assert isinstance(launched, Created)
        finish(client, launched.job.name, namespace)
        assert isinstance(launch(client, request, SYSTEM_CLOCK), Deferred)
        assert not isinstance(launched, Adopted)
        views = list_jobs(client, namespace, TERRAFORM_MACHINE.kind, "web", uid=uid_of(owner))
        (finished,) = collect_finished(client, views)
        assert not finished.succeeded
        assert write_marks(client, finished)
        (again,) = list_jobs(client, namespace, TERRAFORM_MACHINE.kind, "web", uid=uid_of(owner))
        assert again.bookkept

    def test_marks_never_land_on_another_job_of_the_name(self, client: Client, namespace: str) -> None:
        owner = machine(client, namespace)
        client.create(JOB, job_in("machine-apply", namespace, owner), namespace)
        (view,) = list_jobs(client, namespace, TERRAFORM_MACHINE.kind, "web", uid=uid_of(owner))
        finish(client, view.name, namespace)
        (finished,) = collect_finished(
            client, list_jobs(client, namespace, TERRAFORM_MACHINE.kind, "web", uid=uid_of(owner))
        )
        client.delete(JOB, view.name, namespace, propagation_policy="Background")
        assert not write_marks(client, finished)
        client.create(JOB, job_in("machine-apply", namespace, owner), namespace)
        assert not write_marks(client, finished)
        stored = client.get(JOB, view.name, namespace)
        assert annotations.BOOKKEPT not in (stored["metadata"].get("annotations") or {})

    def test_a_stuck_job_goes_with_its_mention_in_the_status(self, client: Client, namespace: str) -> None:
        owner = machine(client, namespace)
        client.create(JOB, job_in("machine-apply", namespace, owner), namespace)
        (view,) = list_jobs(client, namespace, TERRAFORM_MACHINE.kind, "web", uid=uid_of(owner))
        active = {"name": view.name, "operation": "apply", "attempt": 1}
        client.patch(
            TERRAFORM_MACHINE,
            "web",
            {"status": {"activeJob": active, "observedGeneration": 1}},
            namespace,
            subresource="status",
        )
        delete_stuck(client, TERRAFORM_MACHINE, owner, view)
        assert "activeJob" not in client.get(TERRAFORM_MACHINE, "web", namespace)["status"]
        assert list(client.list(JOB, namespace)) == []


def finish(client: Client, name: str, namespace: str) -> None:
    condition = {"type": "Failed", "status": "True", "lastTransitionTime": format_time(SYSTEM_CLOCK.now())}
    status: Object = {"startTime": format_time(SYSTEM_CLOCK.now() - timedelta(seconds=5))}
    client.patch(
        JOB,
        name,
        {
            "status": {
                **status,
                "failed": 1,
                "conditions": [{"type": "FailureTarget", "status": "True"}, condition],
            }
        },
        namespace,
        subresource="status",
    )


class TestLeases:
    def test_of_many_that_want_it_at_once_one_gets_it(self, client: Client, namespace: str) -> None:
        owner = LeaseOwner(namespace, TERRAFORM_MACHINE.kind, "web", "prod")
        results = at_once(
            6, lambda n: acquire_leases(client, LeaseRequest(owner, "apply", f"job-{n}", 3600), SYSTEM_CLOCK)
        )
        assert sum(isinstance(result, Acquired) for result in results) == 1
        assert all(result.reason == "WaitingForRunLease" for result in results if isinstance(result, Wait))

    def test_cluster_and_machines_never_pass_the_gate_together(self, client: Client, namespace: str) -> None:
        owners = [LeaseOwner(namespace, TERRAFORM_CLUSTER.kind, "prod", "prod")]
        owners += [LeaseOwner(namespace, TERRAFORM_MACHINE.kind, f"m{n}", "prod") for n in range(3)]
        results = at_once(
            4,
            lambda n: acquire_leases(
                client, LeaseRequest(owners[n], "apply", f"job-{n}", 3600), SYSTEM_CLOCK
            ),
        )
        if isinstance(results[0], Acquired):
            assert not any(isinstance(result, Acquired) for result in results[1:])

    def test_cleanup_takes_the_objects_own(self, client: Client, namespace: str) -> None:
        mine = LeaseOwner(namespace, TERRAFORM_CLUSTER.kind, "prod", "prod")
        other = LeaseOwner(namespace, TERRAFORM_MACHINE.kind, "m", "prod")
        acquire_leases(client, LeaseRequest(mine, "apply", "a", 3600), SYSTEM_CLOCK)
        acquire_leases(client, LeaseRequest(other, "refresh", "b", 3600), SYSTEM_CLOCK)
        delete_leases(client, mine)
        assert [name_of(lease) for lease in client.list(LEASE, namespace)] == [other.run_lease]


class TestCredentials:
    @pytest.fixture
    def identity(self, client: Client, namespace: str) -> str:
        secret: Object = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "source"},
            "data": {"A": "MQ=="},
        }
        client.create(SECRET, secret, namespace)
        name = f"aws-{namespace}"
        client.create(
            TERRAFORM_CLUSTER_IDENTITY,
            {
                "apiVersion": API_VERSION,
                "kind": TERRAFORM_CLUSTER_IDENTITY.kind,
                "metadata": {"name": name},
                "spec": {
                    "secretRef": {"name": "source", "namespace": namespace},
                    "allowedNamespaces": {
                        "selector": {"matchExpressions": [{"key": "missing", "operator": "DoesNotExist"}]}
                    },
                },
            },
        )
        return name

    def prepare(self, client: Client, owner: Object, identity: str) -> object:
        request = CredentialsRequest(Owner.of(owner), IdentityRef(identity), "captf-runner")
        return prepare_credentials(client, request, Events(None, owner))

    def test_first_uses_of_a_namespace_at_once_all_end_ready(
        self, client: Client, namespace: str, identity: str
    ) -> None:
        owners = [machine(client, namespace, f"m{n}", identityRef={"name": identity}) for n in range(5)]
        results = at_once(5, lambda n: self.prepare(client, owners[n], identity))
        assert [result.first_not_true for result in results] == [None] * 5
        mirror = client.get(SECRET, results[0].secret_name, namespace)
        assert {owner["uid"] for owner in mirror["metadata"]["ownerReferences"]} == set(map(uid_of, owners))
        versions = [obj["metadata"]["resourceVersion"] for obj in self.set_up(client, namespace)]
        assert self.prepare(client, owners[0], identity).ready
        assert [obj["metadata"]["resourceVersion"] for obj in self.set_up(client, namespace)] == versions

    def set_up(self, client: Client, namespace: str) -> list[Object]:
        return [
            obj
            for kind in (SECRET, SERVICE_ACCOUNT, ROLE_BINDING)
            for obj in client.list(kind, namespace, label_selector=f"{labels.MANAGED}=true")
        ]

    def test_the_last_user_takes_everything_along(
        self, client: Client, namespace: str, identity: str
    ) -> None:
        owners = [machine(client, namespace, f"m{n}", identityRef={"name": identity}) for n in range(2)]
        for owner in owners:
            assert self.prepare(client, owner, identity).ready
        reports = IdentityReconciler(lambda ctx: client, client, None)
        reports.reconcile(None, Request("", identity))
        status = client.get(TERRAFORM_CLUSTER_IDENTITY, identity)["status"]
        assert status["namespaces"] == [namespace]
        assert status["conditions"][0]["reason"] == "SecretFound"
        left = [
            leave_mirror(client, namespace, uid_of(owner), identity, Events(None, owner)) for owner in owners
        ]
        assert left == [MirrorResult.DROPPED, MirrorResult.DELETED]
        assert sweep_namespace(client, namespace) == []
        for owner in owners:
            client.delete(TERRAFORM_MACHINE, name_of(owner), namespace, propagation_policy="Background")
        assert len(sweep_namespace(client, namespace)) == 2
        assert self.set_up(client, namespace) == []
        reports.reconcile(None, Request("", identity))
        assert "namespaces" not in client.get(TERRAFORM_CLUSTER_IDENTITY, identity)["status"]
        assert list(client.list(POD, namespace)) == []
