"""Allowed namespaces, the mirror, runner access and what they say in conditions."""

from __future__ import annotations

import base64

import msgspec
import pytest
from tests.unit.memory_api import MemoryApi, stale

from captf_controllers.api import annotations, labels
from captf_controllers.api.cluster import TerraformClusterSpec
from captf_controllers.api.identity import TerraformClusterIdentitySpec
from captf_controllers.api.kinds import TERRAFORM_CLUSTER_IDENTITY
from captf_controllers.api.owner import Owner
from captf_controllers.api.workspace import IdentityRef
from captf_controllers.identity.allowed import is_allowed
from captf_controllers.identity.credentials import (
    Credentials,
    CredentialsRequest,
    leave_mirror,
    prepare_credentials,
)
from captf_controllers.identity.mirror import MirrorResult, source_hash
from captf_controllers.identity.reference import effective_reference
from captf_controllers.observability.events import Events
from captf_runtime.client import Forbidden, InternalError
from captf_runtime.objects import NAMESPACE, POD, ROLE_BINDING, SECRET, SERVICE_ACCOUNT
from captf_runtime.testing.clock import VirtualClock

OWNER = Owner("TerraformMachine", "team-a", "web", "uid-web")
MIRROR = "captf-creds-aws"


class Sink(list):
    def emit(self, obj, type, reason, action, note, *, related=None, important=False):
        self.append((type, reason, note))

    @property
    def reasons(self):
        return [reason for _, reason, _ in self]


@pytest.fixture
def api():
    return MemoryApi(VirtualClock())


@pytest.fixture
def sink():
    return Sink()


def b64(text):
    return base64.b64encode(text.encode()).decode()


def put_identity(api, name="aws", keys=(), **allowed):
    spec = {"secretRef": {"name": "source", "namespace": "captf-system"}}
    if allowed:
        spec["allowedNamespaces"] = allowed
    if keys:
        spec["requiredKeys"] = list(keys)
    api.put(TERRAFORM_CLUSTER_IDENTITY, {"metadata": {"name": name}, "spec": spec})


def put_source(api, **data):
    secret = {
        "metadata": {"name": "source", "namespace": "captf-system"},
        "type": "example/special",
        "data": {key: b64(value) for key, value in data.items()},
    }
    return api.put(SECRET, secret)


@pytest.fixture
def ready_world(api):
    put_identity(api, list=["team-a"])
    put_source(api, AWS_ACCESS_KEY_ID="AKIA")
    return api


def prepare(api, sink=None, *, reference="aws", kind=None, account="captf-runner", owner=OWNER, **more):
    ref = IdentityRef(reference, kind) if reference else None
    request = CredentialsRequest(owner, ref, account, **more)
    return prepare_credentials(api, request, Events(sink, {}), clock=api.clock)


def said(credentials: Credentials):
    return [(item.status, item.reason) for item in credentials.observations]


READY = [("True", "IdentityAllowed"), ("True", "Mirrored"), ("True", "RBACReady")]


class TestAllowed:
    @pytest.mark.parametrize(
        ("allowed", "namespace", "namespace_labels", "expected"),
        [
            (None, "team-a", {}, False),
            ({}, "team-a", {}, False),
            ({"list": ["team-a"]}, "team-a", None, True),
            ({"list": ["team-b"]}, "team-a", {}, False),
            ({"selector": {}}, "team-a", None, True),
            ({"selector": {"matchLabels": {"env": "prod"}}}, "team-a", {"env": "prod"}, True),
            ({"selector": {"matchLabels": {"env": "prod"}}}, "team-a", {"env": "dev"}, False),
            ({"selector": {"matchLabels": {"env": "prod"}}}, "team-a", None, False),
            ({"selector": {"matchExpressions": [{"key": "x", "operator": "Bad"}]}}, "team-a", {}, False),
            (
                {"list": ["team-a"], "selector": {"matchLabels": {"env": "prod"}}},
                "team-a",
                {"env": "dev"},
                True,
            ),
            (
                {"list": ["team-b"], "selector": {"matchLabels": {"env": "prod"}}},
                "team-a",
                {"env": "prod"},
                True,
            ),
            (
                {"selector": {"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}},
                "team-a",
                {},
                True,
            ),
        ],
    )
    def test_table(self, allowed, namespace, namespace_labels, expected):
        fields = {} if allowed is None else {"allowedNamespaces": allowed}
        spec = msgspec.convert(fields, TerraformClusterIdentitySpec)
        assert is_allowed(spec, namespace, lambda: namespace_labels) is expected

    def test_the_namespace_is_read_only_when_its_labels_decide(self):
        spec = msgspec.convert(
            {"allowedNamespaces": {"list": ["team-a"], "selector": {"matchLabels": {"a": "b"}}}},
            TerraformClusterIdentitySpec,
        )
        assert is_allowed(spec, "team-a", lambda: pytest.fail("read"))


@pytest.mark.parametrize(
    ("data", "digest"),
    [
        ({}, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        ({"A": b"1"}, "ad5906aa7ab239da89a13f0ff9fd5ff2e19d326fabcf389d287298f8fb996d91"),
        (
            {"AWS_SECRET_ACCESS_KEY": b"s3cret", "AWS_ACCESS_KEY_ID": b"AKIA"},
            "2e30873c454354d0f1cd78b44fc77f00909f788aefb14e8af74f01e7c5aa6bc2",
        ),
    ],
)
def test_source_hash(data, digest):
    assert source_hash(data) == digest


class TestEffectiveReference:
    def cluster(self, **fields):
        return msgspec.convert({"source": {"image": "x"}, **fields}, TerraformClusterSpec)

    @pytest.mark.parametrize(
        ("own", "cluster", "expected"),
        [
            ("own", {"identityRef": {"name": "far"}}, "own"),
            (None, {"defaults": {"identityRef": {"name": "near"}}, "identityRef": {"name": "far"}}, "near"),
            (None, {"identityRef": {"name": "far"}}, "far"),
            (None, {}, None),
            (None, None, None),
        ],
    )
    def test_the_first_with_a_name_wins(self, own, cluster, expected):
        found = effective_reference(
            IdentityRef(own) if own else None, None if cluster is None else self.cluster(**cluster)
        )
        assert (found.name if found else None) == expected

    def test_as_a_whole(self):
        cluster = self.cluster(
            identityRef={"name": "far"}, defaults={"identityRef": {"name": "s", "kind": "Secret"}}
        )
        found = effective_reference(None, cluster)
        assert (found.name, found.kind) == ("s", "Secret")


class TestIdentityConditions:
    def test_ready(self, ready_world, sink):
        credentials = prepare(ready_world, sink)
        assert said(credentials) == READY
        assert credentials.ready
        assert (credentials.secret_name, credentials.service_account) == (MIRROR, "captf-runner")
        assert sink.reasons == ["MirrorCreated"]

    def test_a_pass_with_nothing_to_do_writes_nothing(self, ready_world, sink):
        prepare(ready_world)
        before = len(ready_world.writes)
        assert prepare(ready_world, sink).ready
        assert len(ready_world.writes) == before
        assert sink == []

    def test_no_reference(self, api):
        credentials = prepare(api, reference=None)
        assert said(credentials) == [("False", "IdentityNotFound"), ("Unknown", "MirrorPending")]
        assert credentials.refused
        assert not credentials.ready
        assert api.requests == []

    def test_no_identity(self, api):
        credentials = prepare(api)
        assert said(credentials)[0] == ("False", "IdentityNotFound")
        assert "aws" in credentials.observations[0].message
        assert credentials.refused

    def test_namespace_not_allowed(self, api):
        put_identity(api, list=["team-b"])
        put_source(api)
        credentials = prepare(api)
        assert said(credentials) == [("False", "NamespaceNotAllowed"), ("Unknown", "MirrorPending")]
        assert credentials.refused
        message = credentials.observations[0].message
        assert "aws" in message
        assert "team-a" in message
        assert api.writes == []

    def test_no_source(self, api):
        put_identity(api, list=["team-a"])
        credentials = prepare(api)
        assert said(credentials)[0] == ("False", "SecretNotFound")
        assert "captf-system/source" in credentials.observations[0].message
        assert not credentials.refused
        assert credentials.error is None

    def test_missing_keys_are_named_and_an_empty_value_is_present(self, api):
        put_identity(api, keys=("A", "B", "C"), list=["team-a"])
        put_source(api, A="1", B="")
        credentials = prepare(api)
        assert said(credentials)[0] == ("False", "CredentialsIncomplete")
        assert credentials.observations[0].message.endswith("C")
        put_source(api, A="1", B="", C="3")
        assert prepare(api).ready

    @pytest.mark.parametrize("kind", [TERRAFORM_CLUSTER_IDENTITY, NAMESPACE, SECRET])
    def test_a_read_that_fails_is_unknown_and_returned(self, api, kind):
        put_identity(api, selector={"matchLabels": {"a": "b"}})
        api.put(NAMESPACE, {"metadata": {"name": "team-a", "labels": {"a": "b"}}})
        put_source(api)

        def fail(verb, kind_, name):
            if kind_ == kind:
                raise InternalError("boom", code=500)

        api.before = fail
        credentials = prepare(api)
        assert said(credentials) == [("Unknown", "IdentityCheckFailed"), ("Unknown", "MirrorPending")]
        assert isinstance(credentials.error, InternalError)
        assert not credentials.refused

    def test_first_not_true(self, api):
        put_identity(api, list=["team-b"])
        assert prepare(api).first_not_true.type == "IdentityAllowed"


class TestLocalSecret:
    def test_it_is_used_in_place(self, api):
        secret = api.put(SECRET, {"metadata": {"name": "mine", "namespace": "team-a"}, "data": {}})
        credentials = prepare(api, reference="mine", kind="Secret")
        assert said(credentials) == [("True", "LocalSecret"), ("True", "Mirrored"), ("True", "RBACReady")]
        assert credentials.secret_name == "mine"
        assert api.find(SECRET, "mine", "team-a") == secret
        assert [name for _, kind, name in api.writes if kind == "secrets"] == []

    def test_missing(self, api):
        credentials = prepare(api, reference="mine", kind="Secret")
        assert said(credentials)[0] == ("False", "SecretNotFound")
        assert "team-a/mine" in credentials.observations[0].message


class TestMirror:
    def mirror(self, api):
        return api.find(SECRET, MIRROR, "team-a")

    def owners(self, api):
        return [owner["uid"] for owner in self.mirror(api)["metadata"]["ownerReferences"]]

    def test_what_it_looks_like(self, ready_world):
        prepare(ready_world)
        mirror = self.mirror(ready_world)
        assert mirror["type"] == "Opaque"
        assert mirror["data"] == {"AWS_ACCESS_KEY_ID": b64("AKIA")}
        assert mirror["metadata"]["labels"] == {labels.MIRRORED: "true", labels.MANAGED: "true"}
        assert mirror["metadata"]["annotations"] == {
            annotations.IDENTITY: "aws",
            annotations.SOURCE_HASH: source_hash({"AWS_ACCESS_KEY_ID": b"AKIA"}),
        }
        assert mirror["metadata"]["ownerReferences"] == [
            {
                "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1",
                "kind": "TerraformMachine",
                "name": "web",
                "uid": "uid-web",
            }
        ]

    def test_a_rotated_source_is_copied_whole(self, ready_world):
        prepare(ready_world)
        put_source(ready_world, NEW="1")
        prepare(ready_world)
        assert self.mirror(ready_world)["data"] == {"NEW": b64("1")}

    def test_so_is_one_whose_copy_was_tampered_with(self, ready_world):
        prepare(ready_world)
        tampered = self.mirror(ready_world)
        tampered["data"]["AWS_ACCESS_KEY_ID"] = b64("evil")
        ready_world.put(SECRET, tampered)
        prepare(ready_world)
        assert self.mirror(ready_world)["data"] == {"AWS_ACCESS_KEY_ID": b64("AKIA")}

    def test_every_user_owns_it_and_nobody_touches_anothers_reference(self, ready_world, sink):
        prepare(ready_world)
        prepare(ready_world, sink, owner=Owner("TerraformMachine", "team-a", "db", "uid-db"))
        assert self.owners(ready_world) == ["uid-web", "uid-db"]
        assert sink == []

    def test_a_reference_to_an_earlier_object_is_replaced_in_place(self, ready_world):
        prepare(ready_world, owner=Owner("TerraformMachine", "team-a", "web", "uid-old"))
        prepare(ready_world, owner=Owner("TerraformMachine", "team-a", "db", "uid-db"))
        credentials = prepare(ready_world)
        assert self.owners(ready_world) == ["uid-web", "uid-db"]
        assert credentials.owner_repaired

    def test_a_missing_managed_label_is_set(self, ready_world):
        prepare(ready_world)
        mirror = self.mirror(ready_world)
        del mirror["metadata"]["labels"][labels.MANAGED]
        ready_world.put(SECRET, mirror)
        prepare(ready_world)
        assert self.mirror(ready_world)["metadata"]["labels"][labels.MANAGED] == "true"

    @pytest.mark.parametrize(
        "metadata",
        [
            {},
            {"labels": {labels.MIRRORED: "true"}, "annotations": {annotations.IDENTITY: "other"}},
            {"annotations": {annotations.IDENTITY: "aws"}},
        ],
    )
    def test_a_foreign_secret_of_the_name_is_never_touched(self, ready_world, metadata):
        foreign = {"metadata": {"name": MIRROR, "namespace": "team-a", **metadata}, "data": {"x": "eA=="}}
        stored = ready_world.put(SECRET, foreign)
        credentials = prepare(ready_world)
        assert said(credentials) == [("True", "IdentityAllowed"), ("False", "MirrorFailed")]
        assert credentials.error is None
        message = credentials.observations[1].message
        assert all(
            part in message for part in (MIRROR, labels.MIRRORED, annotations.IDENTITY, "never overwritten")
        )
        assert self.mirror(ready_world) == stored

    def test_a_lost_race_is_repeated(self, ready_world):
        prepare(ready_world)
        put_source(ready_world, NEW="1")
        conflicts = iter([True, True])

        def race(verb, kind, name):
            if (verb, kind, name) == ("update", SECRET, MIRROR) and next(conflicts, False):
                raise stale()

        ready_world.before = race
        assert prepare(_advancing(ready_world)).ready

    def test_an_api_error_is_reported_and_returned(self, ready_world):
        def fail(verb, kind, name):
            if (verb, kind) == ("create", SECRET):
                raise Forbidden("namespace is being terminated", code=403)

        ready_world.before = fail
        credentials = prepare(ready_world)
        assert said(credentials)[1] == ("False", "MirrorFailed")
        assert isinstance(credentials.error, Forbidden)

    def test_a_revoked_namespace_loses_its_mirror_whoever_owns_it(self, ready_world, sink):
        prepare(ready_world)
        prepare(ready_world, owner=Owner("TerraformMachine", "team-a", "db", "uid-db"))
        put_identity(ready_world, list=["team-b"])
        prepare(ready_world, sink, job_running=True)
        assert self.mirror(ready_world) is not None
        prepare(ready_world, sink)
        prepare(ready_world, sink)
        assert self.mirror(ready_world) is None
        assert sink.reasons == ["MirrorRemoved"]

    def test_so_does_one_whose_identity_is_gone(self, ready_world, sink):
        prepare(ready_world)
        del ready_world.objects[(TERRAFORM_CLUSTER_IDENTITY, "", "aws")]
        prepare(ready_world, sink)
        assert self.mirror(ready_world) is None
        assert sink.reasons == ["MirrorRemoved"]

    def test_a_foreign_secret_is_not_revoked(self, api):
        put_identity(api, list=["team-b"])
        api.put(SECRET, {"metadata": {"name": MIRROR, "namespace": "team-a"}})
        prepare(api)
        assert self.mirror(api) is not None

    def test_a_missing_source_takes_no_mirror_away(self, ready_world):
        prepare(ready_world)
        del ready_world.objects[(SECRET, "captf-system", "source")]
        assert said(prepare(ready_world))[0] == ("False", "SecretNotFound")
        assert self.mirror(ready_world) is not None

    def test_a_change_of_identity_leaves_the_old_mirror(self, ready_world, sink):
        prepare(ready_world)
        put_identity(ready_world, name="gcp", list=["team-a"])
        prepare(ready_world, sink, reference="gcp", mirrors=(self.mirror(ready_world),))
        assert self.mirror(ready_world) is None
        assert sink.reasons == ["MirrorCreated", "MirrorRemoved"]


def _advancing(api):
    """Conflict pauses move the virtual clock themselves, as nobody else does in this test."""

    class Clock(VirtualClock):
        def sleep(self, seconds, stop=None):
            self.advance(seconds)
            return False

    api.clock = Clock()
    return api


class TestReleasingMirrors:
    def release(self, api, uid, sink=None):
        return leave_mirror(api, "team-a", uid, "aws", Events(sink, {}))

    @pytest.fixture
    def two_users(self, ready_world):
        prepare(ready_world)
        prepare(ready_world, owner=Owner("TerraformMachine", "team-a", "db", "uid-db"))
        return ready_world

    def test_the_last_one_out_deletes_it(self, two_users, sink):
        assert self.release(two_users, "uid-web", sink) is MirrorResult.DROPPED
        assert sink == []
        assert self.release(two_users, "uid-web", sink) is MirrorResult.KEPT
        assert self.release(two_users, "uid-db", sink) is MirrorResult.DELETED
        assert sink.reasons == ["MirrorRemoved"]
        assert self.release(two_users, "uid-db", sink) is MirrorResult.KEPT

    @pytest.mark.parametrize("users", [1, 2])
    def test_somebody_who_joins_meanwhile_is_not_lost(self, ready_world, users):
        prepare(ready_world)
        if users == 2:
            prepare(ready_world, owner=Owner("TerraformMachine", "team-a", "db", "uid-db"))

        def join(verb, kind, name):
            if verb in ("patch", "delete"):
                ready_world.before = lambda *_: None
                prepare(ready_world, owner=Owner("TerraformMachine", "team-a", "new", "uid-new"))

        ready_world.before = join
        assert self.release(ready_world, "uid-web") is MirrorResult.CONFLICT
        mirror = ready_world.find(SECRET, MIRROR, "team-a")
        assert "uid-new" in [owner["uid"] for owner in mirror["metadata"]["ownerReferences"]]

    def test_a_secret_that_is_no_mirror_is_left(self, api):
        foreign = {
            "metadata": {
                "name": MIRROR,
                "namespace": "team-a",
                "ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "uid-web"}],
            }
        }
        api.put(SECRET, foreign)
        assert self.release(api, "uid-web") is MirrorResult.KEPT


class TestRunnerAccess:
    def subjects(self, api):
        binding = api.find(ROLE_BINDING, "captf-runner", "team-a")
        return None if binding is None else [subject["name"] for subject in binding["subjects"]]

    def account(self, api, name, opted_in=True):
        meta = {"name": name, "namespace": "team-a"}
        if opted_in:
            meta["labels"] = {labels.RUNNER: "true"}
        api.put(SERVICE_ACCOUNT, {"metadata": meta})

    def binding(self, api, subjects, managed=True, role="captf-runner"):
        meta = {"name": "captf-runner", "namespace": "team-a"}
        if managed:
            meta["labels"] = {labels.MANAGED: "true"}
        api.put(
            ROLE_BINDING,
            {
                "metadata": meta,
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                "subjects": subjects,
            },
        )

    def subject(self, name, kind="ServiceAccount", namespace="team-a"):
        return {"kind": kind, "name": name, "namespace": namespace}

    def test_the_default_account_and_its_binding(self, ready_world):
        prepare(ready_world)
        account = ready_world.find(SERVICE_ACCOUNT, "captf-runner", "team-a")
        assert account["metadata"]["labels"] == {labels.MANAGED: "true"}
        binding = ready_world.find(ROLE_BINDING, "captf-runner", "team-a")
        assert binding["metadata"]["labels"] == {labels.MANAGED: "true"}
        assert binding["roleRef"] == {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "captf-runner",
        }
        assert binding["subjects"] == [self.subject("captf-runner")]

    def test_an_account_that_exists_is_used_as_it_is(self, ready_world):
        self.account(ready_world, "captf-runner", opted_in=False)
        before = ready_world.find(SERVICE_ACCOUNT, "captf-runner", "team-a")
        assert prepare(ready_world).ready
        assert ready_world.find(SERVICE_ACCOUNT, "captf-runner", "team-a") == before

    def test_an_override_that_opted_in_is_bound(self, ready_world):
        self.account(ready_world, "deployer")
        prepare(ready_world)
        credentials = prepare(ready_world, account="deployer")
        assert credentials.ready
        assert credentials.service_account == "deployer"
        assert self.subjects(ready_world) == ["captf-runner", "deployer"]

    @pytest.mark.parametrize("exists", [True, False])
    def test_one_that_did_not_is_refused_and_loses_its_place(self, ready_world, exists):
        if exists:
            self.account(ready_world, "deployer", opted_in=False)
        self.binding(ready_world, [self.subject("deployer"), self.subject("captf-runner")])
        running = prepare(ready_world, account="deployer", job_running=True)
        assert said(running)[2] == ("False", "ServiceAccountNotOptedIn")
        assert self.subjects(ready_world) == ["deployer", "captf-runner"]
        credentials = prepare(ready_world, account="deployer")
        message = credentials.observations[2].message
        assert "team-a/deployer" in message
        assert labels.RUNNER in message
        assert credentials.error is None
        assert self.subjects(ready_world) == ["captf-runner"]

    def test_the_last_subject_takes_the_binding_with_it(self, ready_world):
        self.binding(ready_world, [self.subject("deployer")])
        prepare(ready_world, account="deployer")
        assert self.subjects(ready_world) is None

    def test_a_run_under_way_keeps_the_account_that_it_runs_as(self, ready_world):
        self.binding(ready_world, [self.subject("deployer")])
        pod = {
            "metadata": {"name": "p", "namespace": "team-a", "labels": {labels.MANAGED: "true"}},
            "spec": {"serviceAccountName": "deployer"},
            "status": {"phase": "Running"},
        }
        ready_world.put(POD, pod)
        assert not prepare(ready_world, account="deployer").ready
        assert self.subjects(ready_world) == ["deployer"]

    def test_subjects_are_those_who_may_be_there_in_order_and_once(self, ready_world):
        self.account(ready_world, "opted-in")
        self.account(ready_world, "unlabelled", opted_in=False)
        self.binding(
            ready_world,
            [
                {"kind": "User", "name": "eve", "apiGroup": "rbac.authorization.k8s.io"},
                self.subject("opted-in"),
                self.subject("unlabelled"),
                self.subject("missing"),
                self.subject("opted-in"),
                self.subject("captf-runner", namespace="other"),
                {"kind": "Group", "name": "all", "apiGroup": "rbac.authorization.k8s.io"},
            ],
        )
        prepare(ready_world)
        assert self.subjects(ready_world) == ["opted-in", "captf-runner"]

    def test_a_binding_that_is_not_ours_is_an_error_and_stays(self, ready_world):
        self.binding(ready_world, [self.subject("x")], managed=False)
        credentials = prepare(ready_world)
        assert said(credentials)[2] == ("False", "RBACFailed")
        assert credentials.error is not None
        assert credentials.secret_name == ""
        assert self.subjects(ready_world) == ["x"]

    def test_another_role_is_replaced(self, ready_world):
        self.account(ready_world, "opted-in")
        self.binding(ready_world, [self.subject("opted-in")], role="admin")
        assert prepare(ready_world).ready
        binding = ready_world.find(ROLE_BINDING, "captf-runner", "team-a")
        assert binding["roleRef"]["name"] == "captf-runner"
        assert self.subjects(ready_world) == ["opted-in", "captf-runner"]

    def test_first_uses_at_once_all_end_ready(self, ready_world):
        def race(verb, kind, name):
            if (verb, kind) == ("create", ROLE_BINDING):
                ready_world.before = lambda *_: None
                self.account(ready_world, "deployer")
                self.binding(ready_world, [self.subject("deployer")])

        ready_world.before = race
        assert prepare(ready_world).ready
        assert self.subjects(ready_world) == ["deployer", "captf-runner"]

    def test_an_api_error_is_reported_and_returned(self, ready_world):
        def fail(verb, kind, name):
            if (verb, kind) == ("create", SERVICE_ACCOUNT):
                raise Forbidden("quota", code=403)

        ready_world.before = fail
        credentials = prepare(ready_world)
        assert said(credentials)[2] == ("False", "RBACFailed")
        assert "quota" in credentials.observations[2].message
        assert isinstance(credentials.error, Forbidden)
