"""Who uses an identity, the namespace sweep, and the identity's own controller."""

from __future__ import annotations

import base64

import pytest
from tests.unit.job_objects import at, job_object
from tests.unit.memory_api import MemoryApi
from tests.unit.test_identity_credentials import Sink

from captf_controllers.api import annotations, labels
from captf_controllers.api.kinds import (
    CLUSTER,
    TERRAFORM_CLUSTER,
    TERRAFORM_CLUSTER_IDENTITY,
    TERRAFORM_MACHINE,
    TERRAFORM_MACHINE_POOL,
    TERRAFORM_MACHINE_TEMPLATE,
)
from captf_controllers.identity.reconciler import (
    IdentityReconciler,
    identity_requests,
    used_namespaces,
)
from captf_controllers.identity.sweep import accounts_in_use, sweep_all, sweep_namespace
from captf_controllers.identity.usage import find_users, users_in
from captf_runtime.client import InternalError, NotFound
from captf_runtime.controller import Request
from captf_runtime.objects import JOB, LEASE, ROLE_BINDING, SECRET, SERVICE_ACCOUNT, name_of
from captf_runtime.testing.clock import VirtualClock


@pytest.fixture
def api():
    return MemoryApi(VirtualClock(at(0)))


def put(api, kind, name, *, cluster="prod", namespace="ns", **spec):
    meta = {"name": name, "namespace": namespace}
    if cluster:
        meta["labels"] = {labels.CLUSTER_NAME: cluster}
    return api.put(kind, {"metadata": meta, "spec": spec})


def put_capi_cluster(api, name="prod", infrastructure="tc", kind="TerraformCluster"):
    reference = {"apiGroup": TERRAFORM_CLUSTER.group, "kind": kind, "name": infrastructure}
    api.put(
        CLUSTER, {"metadata": {"name": name, "namespace": "ns"}, "spec": {"infrastructureRef": reference}}
    )


def users(api, identity="aws", namespace=""):
    return [name_of(obj) for obj in users_in(find_users(api, namespace), identity)]


AWS = {"identityRef": {"name": "aws"}}


class TestUsage:
    def test_search_order_is_clusters_machines_pools(self, api):
        put(api, TERRAFORM_MACHINE_POOL, "a-pool", **AWS)
        put(api, TERRAFORM_MACHINE, "b-machine", **AWS)
        put(api, TERRAFORM_CLUSTER, "c-cluster", **AWS)
        assert users(api) == ["c-cluster", "b-machine", "a-pool"]
        assert users(api, "other") == []

    def test_a_machine_inherits_by_label_from_the_cluster_with_the_lowest_name(self, api):
        put(api, TERRAFORM_CLUSTER, "a", **AWS)
        put(api, TERRAFORM_CLUSTER, "b", identityRef={"name": "gcp"})
        put(api, TERRAFORM_MACHINE, "m")
        assert users(api) == ["a", "m"]
        assert users(api, "gcp") == ["b"]

    def test_or_by_the_clusters_reference_and_either_counts(self, api):
        put(api, TERRAFORM_CLUSTER, "a", **AWS)
        put(api, TERRAFORM_CLUSTER, "tc", cluster="", identityRef={"name": "gcp"})
        put(api, TERRAFORM_MACHINE, "m")
        put_capi_cluster(api)
        assert users(api) == ["a", "m"]
        assert users(api, "gcp") == ["tc", "m"]

    def test_another_infrastructure_kind_is_no_way(self, api):
        put(api, TERRAFORM_CLUSTER, "tc", cluster="", **AWS)
        put(api, TERRAFORM_MACHINE, "m")
        put_capi_cluster(api, kind="OtherCluster")
        assert users(api) == ["tc"]

    def test_the_default_reference_wins_over_the_clusters_own(self, api):
        put(api, TERRAFORM_CLUSTER, "a", defaults={"identityRef": {"name": "gcp"}}, **AWS)
        put(api, TERRAFORM_MACHINE, "m")
        assert users(api) == ["a"]
        assert users(api, "gcp") == ["m"]

    @pytest.mark.parametrize("at_level", ["own", "default", "cluster"])
    def test_a_local_secret_of_the_same_name_is_no_use_and_falls_through_to_nothing(self, api, at_level):
        local = {"name": "aws", "kind": "Secret"}
        spec = {"identityRef": local} if at_level == "cluster" else AWS
        if at_level == "default":
            spec = {**spec, "defaults": {"identityRef": local}}
        put(api, TERRAFORM_CLUSTER, "a", **spec)
        put(api, TERRAFORM_MACHINE, "m", **({"identityRef": local} if at_level == "own" else {}))
        assert "m" not in users(api)

    def test_other_namespaces_do_not_resolve_each_other(self, api):
        put(api, TERRAFORM_CLUSTER, "a", namespace="one", **AWS)
        put(api, TERRAFORM_MACHINE, "m", namespace="two")
        assert users(api) == ["a"]

    def test_cluster_api_not_served_is_no_failure_and_any_other_error_is(self, api):
        put(api, TERRAFORM_CLUSTER, "a", **AWS)
        error = NotFound("the server could not find the requested resource", code=404)

        def fail(verb, kind, name):
            if kind == CLUSTER:
                raise error

        api.before = fail
        assert users(api) == ["a"]
        error = InternalError("boom", code=500)
        with pytest.raises(InternalError):
            users(api)


def mirror(api, namespace="ns", identity="aws", name="captf-creds-aws", mirrored="true", **meta):
    api.put(
        SECRET,
        {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": {labels.MIRRORED: mirrored},
                "annotations": {annotations.IDENTITY: identity},
                **meta,
            }
        },
    )


class TestUsedNamespaces:
    def test_a_mirror_and_a_user(self, api):
        for namespace in ("b", "a"):
            mirror(api, namespace)
            put(api, TERRAFORM_CLUSTER, "c", namespace=namespace, **AWS)
        assert used_namespaces(api, "aws") == ("a", "b")

    def test_a_secret_alone_pins_nothing(self, api):
        mirror(api)
        assert used_namespaces(api, "aws") == ()

    def test_nor_does_a_user_alone(self, api):
        put(api, TERRAFORM_CLUSTER, "c", **AWS)
        assert used_namespaces(api, "aws") == ()

    @pytest.mark.parametrize(
        "wrong",
        [
            {"name": "captf-creds-other"},
            {"identity": "other"},
            {"mirrored": "false"},
            {"deletionTimestamp": "2026-09-25T12:00:00Z"},
        ],
    )
    def test_a_secret_that_is_not_the_living_mirror_does_not_count(self, api, wrong):
        mirror(api, **wrong)
        put(api, TERRAFORM_CLUSTER, "c", **AWS)
        assert used_namespaces(api, "aws") == ()

    def test_at_most_a_thousand_fit_into_the_status(self, api):
        for i in range(1002):
            mirror(api, f"n{i:04}")
            put(api, TERRAFORM_CLUSTER, "c", namespace=f"n{i:04}", **AWS)
        api.list = _by_namespace(api)
        found = used_namespaces(api, "aws")
        assert len(found) == 1000
        assert found[-1] == "n0999"


def _by_namespace(api):
    """A list that does not look at every object for each namespace."""
    by_kind: dict = {}
    for (kind, namespace, _), obj in api.objects.items():
        by_kind.setdefault((kind, namespace), []).append(obj)
    everything = api.list

    def listed(kind, namespace="", **options):
        return by_kind.get((kind, namespace), []) if namespace else everything(kind, **options)

    return listed


class TestIdentityController:
    def put_identity(self, api, keys=(), status=None, secret_ref=True):
        spec = {"requiredKeys": list(keys)}
        if secret_ref:
            spec["secretRef"] = {"name": "source", "namespace": "captf-system"}
        obj = {"metadata": {"name": "aws", "generation": 3}, "spec": spec}
        if status:
            obj["status"] = status
        return api.put(TERRAFORM_CLUSTER_IDENTITY, obj)

    def put_source(self, api, owners=(), **data):
        meta = {"name": "source", "namespace": "captf-system"}
        if owners:
            meta["ownerReferences"] = list(owners)
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
        api.put(SECRET, {"metadata": meta, "data": encoded})

    def reconcile(self, api, sink=None):
        reconciler = IdentityReconciler(lambda ctx: api, api, sink, api.clock)
        return reconciler.reconcile(None, Request("", "aws"))

    def ready(self, api):
        status = api.find(TERRAFORM_CLUSTER_IDENTITY, "aws")["status"]
        return next(item for item in status["conditions"] if item["type"] == "Ready")

    def test_found(self, api):
        self.put_identity(api)
        self.put_source(api, A="1")
        sink = Sink()
        assert self.reconcile(api, sink).requeue_after == 300
        condition = self.ready(api)
        assert (condition["status"], condition["reason"]) == ("True", "SecretFound")
        assert condition["observedGeneration"] == 3
        assert sink == []

    @pytest.mark.parametrize(
        ("keys", "data", "reason", "named"),
        [
            ((), None, "SecretNotFound", ["captf-system/source"]),
            (("A", "B", "C"), {"B": "1"}, "CredentialsIncomplete", ["captf-system/source", "A", "C"]),
        ],
    )
    def test_missing_or_incomplete(self, api, keys, data, reason, named):
        self.put_identity(api, keys)
        if data is not None:
            self.put_source(api, **data)
        sink = Sink()
        assert self.reconcile(api, sink).requeue_after == 30
        assert (self.ready(api)["status"], self.ready(api)["reason"]) == ("False", reason)
        assert all(part in self.ready(api)["message"] for part in named)
        assert sink.reasons == ["IdentitySecretNotFound"]
        self.reconcile(api, sink)
        assert sink.reasons == ["IdentitySecretNotFound"]
        self.put_source(api, A="", B="", C="")
        self.reconcile(api, sink)
        assert sink.reasons == ["IdentitySecretNotFound", "IdentitySecretFound"]

    def test_a_second_pass_writes_nothing(self, api):
        self.put_identity(api)
        self.put_source(api, A="1")
        self.reconcile(api)
        api.clock.advance(300)
        before = len(api.writes)
        self.reconcile(api)
        assert len(api.writes) == before

    def test_an_identity_of_another_watch_filter_is_left_alone_whatever_woke_it(self, api):
        self.put_identity(api)
        self.put_source(api, A="1")
        for watch_filter, written in (("mine", False), ("", True)):
            reconciler = IdentityReconciler(lambda ctx: api, api, None, api.clock, watch_filter=watch_filter)
            reconciler.reconcile(None, Request("", "aws"))
            assert ("status" in api.find(TERRAFORM_CLUSTER_IDENTITY, "aws")) is written

    def test_namespaces_come_and_go(self, api):
        self.put_identity(api)
        self.put_source(api, A="1")
        mirror(api)
        put(api, TERRAFORM_CLUSTER, "c", **AWS)
        self.reconcile(api)
        assert api.find(TERRAFORM_CLUSTER_IDENTITY, "aws")["status"]["namespaces"] == ["ns"]
        del api.objects[(TERRAFORM_CLUSTER, "ns", "c")]
        self.reconcile(api)
        assert "namespaces" not in api.find(TERRAFORM_CLUSTER_IDENTITY, "aws")["status"]

    def test_an_owner_reference_to_the_identity_is_taken_off_the_source_and_nothing_else(self, api):
        identity = self.put_identity(api)
        mine = {
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1",
            "kind": "TerraformClusterIdentity",
            "name": "aws",
            "uid": identity["metadata"]["uid"],
        }
        other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u"}
        self.put_source(api, owners=[other, mine], A="1")
        self.reconcile(api)
        source = api.find(SECRET, "source", "captf-system")
        assert source["metadata"]["ownerReferences"] == [other]
        assert source["data"] == {"A": "MQ=="}
        self.put_source(api, owners=[mine], A="1")
        self.reconcile(api)
        assert "ownerReferences" not in api.find(SECRET, "source", "captf-system")["metadata"]

    def test_a_read_that_fails_fails_the_pass(self, api):
        self.put_identity(api)

        def fail(verb, kind, name):
            if kind == SECRET:
                raise InternalError("boom", code=500)

        api.before = fail
        with pytest.raises(InternalError):
            self.reconcile(api)

    def test_nothing_is_done_for_one_that_is_gone_or_going(self, api):
        assert self.reconcile(api) is None
        identity = self.put_identity(api)
        identity["metadata"]["deletionTimestamp"] = "2026-09-25T12:00:00Z"
        api.put(TERRAFORM_CLUSTER_IDENTITY, identity)
        assert self.reconcile(api) is None
        assert api.writes == []

    def test_a_mirror_wakes_its_identity(self, api):
        mirror(api)
        assert list(identity_requests(api.all(SECRET)[0])) == [Request("", "aws")]
        mirror(api, mirrored="no")
        assert list(identity_requests(api.all(SECRET)[0])) == []


def managed(api, kind, name, namespace="ns", managed_=True, **more):
    meta = {"name": name, "namespace": namespace}
    if managed_:
        meta["labels"] = {labels.MANAGED: "true"}
    api.put(kind, {"metadata": meta, **more})


def subject(name, kind="ServiceAccount"):
    return {"kind": kind, "name": name, "namespace": "ns"}


class TestSweep:
    @pytest.fixture
    def set_up(self, api):
        managed(api, SERVICE_ACCOUNT, "captf-runner")
        managed(api, ROLE_BINDING, "captf-runner", subjects=[subject("captf-runner")])
        managed(api, LEASE, "captf-run-x")
        managed(api, SERVICE_ACCOUNT, "default", managed_=False)
        managed(api, LEASE, "lock", managed_=False)
        return api

    def names(self, api):
        return sorted(
            f"{kind.kind}/{name_of(obj)}"
            for kind in (SERVICE_ACCOUNT, ROLE_BINDING, LEASE)
            for obj in api.all(kind)
        )

    def test_a_namespace_without_objects_keeps_only_what_is_not_ours(self, set_up):
        put(set_up, TERRAFORM_MACHINE_TEMPLATE, "template")
        assert sorted(sweep_namespace(set_up, "ns")) == [
            "Lease/captf-run-x",
            "RoleBinding/captf-runner",
            "ServiceAccount/captf-runner",
        ]
        assert self.names(set_up) == ["Lease/lock", "ServiceAccount/default"]

    @pytest.mark.parametrize("kind", [TERRAFORM_CLUSTER, TERRAFORM_MACHINE, TERRAFORM_MACHINE_POOL])
    def test_one_object_keeps_it(self, set_up, kind):
        put(set_up, kind, "x")
        before = self.names(set_up)
        assert sweep_namespace(set_up, "ns") == []
        assert self.names(set_up) == before

    def test_an_object_that_appears_meanwhile_keeps_it_too(self, set_up):
        def appear(verb, kind, name):
            if (verb, kind) == ("list", LEASE):
                put(set_up, TERRAFORM_MACHINE, "new")

        set_up.before = appear
        assert sweep_namespace(set_up, "ns") == []
        assert "ServiceAccount/captf-runner" in self.names(set_up)

    def test_what_changed_since_the_list_is_skipped(self, set_up):
        def change(verb, kind, name):
            if verb == "delete":
                set_up.before = lambda *_: None
                managed(set_up, kind, name)

        set_up.before = change
        deleted = sweep_namespace(set_up, "ns")
        assert len(deleted) == 2

    def test_one_failing_namespace_does_not_stop_the_others(self, set_up):
        managed(set_up, SERVICE_ACCOUNT, "captf-runner", namespace="bad")
        managed(set_up, SERVICE_ACCOUNT, "captf-runner", namespace="zoo")
        real = set_up.delete

        def delete(kind, name, namespace="", **options):
            if namespace == "bad":
                raise InternalError("boom", code=500)
            return real(kind, name, namespace, **options)

        set_up.delete = delete
        with pytest.raises(ExceptionGroup):
            sweep_all(set_up)
        left = {(obj["metadata"]["namespace"], name_of(obj)) for obj in set_up.all(SERVICE_ACCOUNT)}
        assert left == {("ns", "default"), ("bad", "captf-runner")}

    def test_only_the_namespace_given(self, set_up):
        managed(set_up, SERVICE_ACCOUNT, "captf-runner", namespace="other")
        sweep_all(set_up, "other")
        assert "ServiceAccount/captf-runner" in self.names(set_up)


class TestPrune:
    def subjects(self, api):
        binding = api.find(ROLE_BINDING, "captf-runner", "ns")
        return None if binding is None else [item["name"] for item in binding["subjects"]]

    def bind(self, api, *subjects, managed_=True):
        managed(api, ROLE_BINDING, "captf-runner", managed_=managed_, subjects=list(subjects))

    ACCOUNTS = ("captf-runner", "sa-old", "sa-new")

    def test_only_accounts_in_use_stay(self, api):
        self.bind(api, *map(subject, self.ACCOUNTS), {"kind": "User", "name": "eve"})
        put(api, TERRAFORM_MACHINE, "m", jobs={"serviceAccountName": "sa-new"})
        sweep_namespace(api, "ns")
        assert self.subjects(api) == ["sa-new"]

    def test_while_a_job_runs_as_one_it_stays(self, api):
        self.bind(api, *map(subject, self.ACCOUNTS))
        put(api, TERRAFORM_MACHINE, "m", jobs={"serviceAccountName": "sa-new"})
        obj = job_object()
        obj["metadata"]["labels"][labels.MANAGED] = "true"
        obj["spec"]["template"]["spec"]["serviceAccountName"] = "sa-old"
        api.put(JOB, obj)
        sweep_namespace(api, "ns")
        assert self.subjects(api) == ["sa-old", "sa-new"]

    def test_nobody_left_takes_the_binding_away(self, api):
        self.bind(api, subject("sa-old"))
        put(api, TERRAFORM_MACHINE, "m", jobs={"serviceAccountName": "sa-new"})
        sweep_namespace(api, "ns")
        assert self.subjects(api) is None

    def test_nothing_to_drop_writes_nothing(self, api):
        self.bind(api, subject("sa-new"))
        put(api, TERRAFORM_MACHINE, "m", jobs={"serviceAccountName": "sa-new"})
        sweep_namespace(api, "ns")
        assert api.writes == []

    def test_a_binding_that_is_not_ours_is_left(self, api):
        self.bind(api, subject("sa-old"), managed_=False)
        put(api, TERRAFORM_MACHINE, "m", jobs={"serviceAccountName": "sa-new"})
        sweep_namespace(api, "ns")
        assert self.subjects(api) == ["sa-old"]

    @pytest.mark.parametrize(
        ("cluster", "machine", "expected"),
        [
            ({}, {}, {"captf-runner"}),
            ({"jobs": {"serviceAccountName": "own"}}, {}, {"own"}),
            (
                {"jobs": {"serviceAccountName": "own"}, "defaults": {"jobs": {"serviceAccountName": "dflt"}}},
                {},
                {"own", "dflt"},
            ),
            ({"defaults": {"jobs": {"serviceAccountName": "dflt"}}}, {}, {"captf-runner", "dflt"}),
            (
                {"defaults": {"jobs": {"serviceAccountName": "dflt"}}},
                {"jobs": {"serviceAccountName": "mine"}},
                {"captf-runner", "mine"},
            ),
        ],
    )
    def test_effective_accounts(self, api, cluster, machine, expected):
        clusters = [put(api, TERRAFORM_CLUSTER, "c", **cluster)]
        machines = [put(api, TERRAFORM_MACHINE, "m", **machine)]
        assert accounts_in_use(clusters, machines, ()) == expected

    def test_an_unresolved_machine_keeps_every_default(self, api):
        clusters = [
            put(
                api,
                TERRAFORM_CLUSTER,
                "c",
                cluster="a",
                jobs={"serviceAccountName": "own"},
                defaults={"jobs": {"serviceAccountName": "dflt"}},
            )
        ]
        machines = [put(api, TERRAFORM_MACHINE, "m", cluster="unknown")]
        assert accounts_in_use(clusters, machines, ()) == {"own", "dflt", "captf-runner"}

    def test_of_two_clusters_with_one_label_either_may_be_the_machines(self, api):
        clusters = [
            put(api, TERRAFORM_CLUSTER, name, defaults={"jobs": {"serviceAccountName": f"of-{name}"}})
            for name in ("a", "b")
        ]
        machines = [put(api, TERRAFORM_MACHINE, "m")]
        assert accounts_in_use(clusters, machines, ()) == {"captf-runner", "of-a", "of-b"}
