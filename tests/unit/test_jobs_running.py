"""Active, vanished and crashed Jobs: stuck detection, cache lag, what may have applied, images to try."""

from __future__ import annotations

import pytest
from tests.unit.job_objects import at, job, job_object, pod, pod_object, result
from tests.unit.memory_api import MemoryApi

from captf_controllers.api import annotations, labels, names
from captf_controllers.api.kinds import TERRAFORM_MACHINE
from captf_controllers.jobs.images import choose_image, fallbacks_of, next_image, parse_image_list
from captf_controllers.jobs.lag import lost, unseen_job
from captf_controllers.jobs.leases import LeaseOwner, LeaseRequest, acquire_leases
from captf_controllers.jobs.outcomes import classify
from captf_controllers.jobs.pods import pod_facts
from captf_controllers.jobs.stuck import (
    KnownImages,
    NoPod,
    PullFailed,
    StuckCause,
    StuckJob,
    check_stuck,
    decide_stuck,
    delete_stuck,
)
from captf_controllers.jobs.unconfirmed import (
    crashed,
    find_vanished,
    may_have_applied,
    may_have_applied_now,
)
from captf_controllers.jobs.views import view_job
from captf_controllers.state.lock import lock_version
from captf_runtime.client import Conflict, InternalError
from captf_runtime.objects import JOB, LEASE, POD, SECRET
from captf_runtime.testing.clock import VirtualClock

NAME = "captf-m-web-apply-a1-abc123"
SUFFIX = names.state_suffix("ns", "TerraformMachine", "web")
NO_IMAGES = KnownImages("", ())


@pytest.fixture
def clock():
    return VirtualClock(at(0))


@pytest.fixture
def api(clock):
    return MemoryApi(clock)


def decide(view, pods, second, *, missing=False, images=NO_IMAGES):
    return decide_stuck(view, pods, at(second), run_secret_missing=missing, images=images)


class TestMissingSecret:
    @pytest.mark.parametrize(("second", "stuck"), [(59, False), (60, True)])
    @pytest.mark.parametrize("pods", [[], [pod(phase="Pending", waiting="ContainerCreating")]])
    def test_from_a_minute_on(self, second, stuck, pods):
        found = decide(job(), pods, second, missing=True)
        assert isinstance(found, StuckJob) is stuck
        if stuck:
            assert found.cause is StuckCause.RUN_SECRET_MISSING
            assert f"captf-run-{NAME}" in found.detail

    @pytest.mark.parametrize("phase", ["Running", "Succeeded", "Failed", "Unknown"])
    def test_a_pod_that_started_is_never_touched(self, phase):
        assert decide(job(), [pod(phase=phase)], 600, missing=True) is None

    def test_a_secret_that_is_there_is_no_reason(self):
        assert decide(job(), [pod(phase="Pending", waiting="ContainerCreating")], 600) is None


class TestNoPod:
    def test_from_two_minutes_on_and_never_deleted(self):
        assert decide(job(), [], 119) is None
        found = decide(job(), [], 120)
        assert isinstance(found, NoPod)
        assert f"kubectl describe job -n ns {NAME}" in found.detail

    @pytest.mark.parametrize("count", ["active", "succeeded", "failed"])
    def test_a_pod_that_is_gone_was_made(self, count):
        view = view_job(job_object() | {"status": {count: 1}})
        assert decide(view, [], 600) is None


class TestContainerConfig:
    def pods(self, created=0, **more):
        return [pod(phase="Pending", waiting="CreateContainerConfigError", created=created, **more)]

    @pytest.mark.parametrize(
        ("second", "created", "stuck"), [(119, 0, False), (120, 0, True), (130, 20, False), (140, 20, True)]
    )
    def test_job_and_pod_must_both_be_two_minutes_old(self, second, created, stuck):
        found = decide(job(), self.pods(created), second)
        assert isinstance(found, StuckJob) is stuck
        if stuck:
            assert found.cause is StuckCause.CONTAINER_NOT_CREATED
            assert "CreateContainerConfigError" in found.detail

    def test_the_init_container_counts_too(self):
        assert decide(job(), self.pods(waiting_in="runner"), 120) is not None

    def test_a_pod_of_another_job_of_the_name_does_not(self):
        assert decide(job(), self.pods(job_uid="another"), 600) is None


class TestPull:
    PODS = (pod(phase="Pending", waiting="ImagePullBackOff"),)

    def found(self, op="destroy", second=120, images=None, marks=None, pods=PODS):
        view = job(op=op, image="a@sha256:1", marks=marks)
        return decide(view, list(pods), second, images=images or KnownImages("", ()))

    @pytest.mark.parametrize("op", ["destroy", "refresh", "drift", "restore"])
    def test_the_next_image_replaces_one_that_cannot_be_pulled(self, op):
        fallbacks = {annotations.IMAGE_FALLBACKS: '["b:1"]'}
        found = self.found(op, marks=fallbacks)
        assert (found.cause, found.next_image) == (StuckCause.IMAGE_NOT_PULLED, "b:1")
        assert self.found(op, 119, marks=fallbacks) is None

    @pytest.mark.parametrize("op", ["apply", "plan"])
    def test_apply_and_plan_run_the_spec_image_and_no_other(self, op):
        assert self.found(op, images=KnownImages("spec:2", ())) is None

    def test_the_present_spec_image_comes_after_the_fallbacks(self):
        fallbacks = {annotations.IMAGE_FALLBACKS: '["b:1"]'}
        found = self.found(images=KnownImages("spec:2", ("b:1",)), marks=fallbacks)
        assert found.next_image == "spec:2"

    @pytest.mark.parametrize(
        "images", [KnownImages("", ()), KnownImages("a@sha256:1", ()), KnownImages("spec:2", None)]
    )
    def test_with_nothing_left_or_nowhere_to_record_it_is_reported_and_left(self, images):
        found = self.found(images=images)
        assert isinstance(found, PullFailed)
        assert found.message.startswith(f"Job {NAME}:")
        assert "a@sha256:1" in found.message

    def test_the_runner_image_does_not_count(self):
        waiting = (pod(phase="Pending", waiting="ErrImagePull", waiting_in="runner"),)
        assert self.found(images=KnownImages("spec:2", ()), pods=waiting) is None


class TestChecking:
    def put(self, api, secret=True, **pod_fields):
        view = view_job(api.put(JOB, job_object()))
        if secret:
            api.put(SECRET, {"metadata": {"name": f"captf-run-{NAME}", "namespace": "ns"}})
        if pod_fields:
            api.put(POD, pod_object(**pod_fields))
        return view

    def test_a_young_job_costs_no_request(self, api):
        assert check_stuck(api, self.put(api), at(59), NO_IMAGES) is None
        assert api.requests == []

    def test_a_running_pod_costs_one(self, api):
        view = self.put(api, secret=False, phase="Running")
        assert check_stuck(api, view, at(600), NO_IMAGES) is None
        assert api.requests == [("list", "pods", "")]

    def test_a_missing_secret_is_found(self, api):
        found = check_stuck(api, self.put(api, secret=False), at(60), NO_IMAGES)
        assert found.cause is StuckCause.RUN_SECRET_MISSING
        assert check_stuck(api, self.put(api), at(60), NO_IMAGES) is None

    def machine(self, api, active=NAME, uid="owner-uid"):
        return api.put(
            TERRAFORM_MACHINE,
            {
                "metadata": {"name": "web", "namespace": "ns", "uid": uid},
                "status": {"observedGeneration": 1, "activeJob": {"name": active}},
            },
        )

    def test_status_is_cleared_before_the_job_goes(self, api):
        view, obj = self.put(api), self.machine(api)
        delete_stuck(api, TERRAFORM_MACHINE, obj, view)
        assert [verb for verb, _, _ in api.writes] == ["patch", "delete"]
        assert api.find(TERRAFORM_MACHINE, "web", "ns")["status"] == {"observedGeneration": 1}
        assert api.all(JOB) == []

    def test_a_failure_to_clear_it_keeps_the_job(self, api):
        view, obj = self.put(api), self.machine(api)

        def fail(verb, kind, name):
            if verb == "patch":
                raise Conflict("modified", code=409)

        api.before = fail
        with pytest.raises(Conflict):
            delete_stuck(api, TERRAFORM_MACHINE, obj, view)
        assert len(api.all(JOB)) == 1

    def test_a_status_that_names_another_job_is_left_alone(self, api):
        view, obj = self.put(api), self.machine(api, active="another")
        delete_stuck(api, TERRAFORM_MACHINE, obj, view)
        assert [verb for verb, _, _ in api.writes] == ["delete"]


class TestVanished:
    def obj(self, api, active=NAME, uid="owner-uid"):
        return TestChecking().machine(api, active, uid)

    def find(self, api, obj, op="apply", views=()):
        return find_vanished(api, TERRAFORM_MACHINE, obj, NAME, op, views)

    def test_a_job_that_status_names_and_nobody_has(self, api):
        assert self.find(api, self.obj(api)) == NAME

    def test_only_applies_vanish(self, api):
        assert self.find(api, self.obj(api), op="destroy") is None

    def test_a_job_in_the_list_or_on_the_server_did_not(self, api):
        obj = self.obj(api)
        assert self.find(api, obj, views=[job()]) is None
        api.put(JOB, job_object())
        assert self.find(api, obj) is None

    def test_a_job_of_the_name_that_another_object_controls_is_not_it(self, api):
        obj = self.obj(api)
        api.put(JOB, job_object(owner="other", owner_uid="other-uid"))
        assert self.find(api, obj) == NAME

    def test_a_stuck_job_that_the_controller_deleted_is_not_brought_back_by_a_stale_cache(self, api):
        stale = self.obj(api)
        view = view_job(api.put(JOB, job_object()))
        delete_stuck(api, TERRAFORM_MACHINE, stale, view)
        assert self.find(api, stale) is None

    def test_nor_does_another_object_of_the_name_count(self, api):
        stale = self.obj(api)
        self.obj(api, uid="later")
        assert self.find(api, stale) is None


def failed(*, pods=None, reason="", op="apply", marks=None):
    view = job(op=op, outcome="Failed", reason=reason, marks=marks)
    return classify(view, pods if pods is not None else [])


LOCK = {annotations.STATE_LOCK_VERSION: "7"}


@pytest.mark.parametrize(
    ("finished", "lock", "expected"),
    [
        (failed(pods=[pod(message=result(kind="step", step="init", steps=("init",)))]), None, False),
        (failed(pods=[pod(message=result(kind="step", steps=("init", "validate", "apply")))]), None, True),
        (failed(pods=[pod(message=result(kind="blocked", steps=("init", "plan")))]), None, False),
        (failed(pods=[pod(message="")]), None, True),
        (failed(pods=[pod(message="", started=None)]), None, True),
        (failed(pods=[pod(phase="Running")]), None, True),
        (failed(pods=[pod(phase="Pending", waiting="ErrImagePull")]), None, False),
        (failed(pods=[pod(phase="Pending", waiting="PodInitializing")]), None, False),
        (failed(), None, True),
        (failed(marks=LOCK), "7", False),
        (failed(marks=LOCK), "8", True),
        (failed(marks=LOCK), None, True),
        (failed(marks={annotations.STATE_LOCK_VERSION: "none"}), "none", False),
        (failed(marks={annotations.STATE_LOCK_VERSION: "none"}), "1", True),
        (failed(), "none", True),
        (failed(op="destroy"), None, False),
        (failed(op="refresh"), None, False),
    ],
)
def test_what_may_have_applied(finished, lock, expected):
    assert may_have_applied(finished, lock) is expected


def test_a_container_that_could_not_be_started_applied_nothing():
    obj = pod_object(message="")
    obj["status"]["containerStatuses"][0]["state"]["terminated"] = {
        "reason": "StartError",
        "startedAt": "1970-01-01T00:00:00Z",
    }

    assert not may_have_applied(failed(pods=[pod_facts(obj)]), None)


def test_a_pod_whose_node_was_lost_before_it_reported_may_have_applied():
    obj = pod_object(phase="Failed")
    obj["status"].pop("containerStatuses")

    assert may_have_applied(failed(pods=[pod_facts(obj)]), None)


class TestCrashed:
    def test_with_a_result_it_is_an_ordinary_failure(self, api):
        finished = failed(pods=[pod(message=result(kind="step", steps=("apply",)))])
        assert not crashed(api, finished, SUFFIX)
        assert may_have_applied_now(api, finished, SUFFIX)

    def test_without_a_word_it_crashed(self, api):
        assert crashed(api, failed(pods=[pod(message="")]), SUFFIX)
        assert api.requests == []

    def test_a_counted_job_is_not_judged_again(self, api):
        assert not crashed(api, failed(marks={annotations.BOOKKEPT: "true"}), SUFFIX)

    def lock(self, api):
        return api.put(LEASE, {"metadata": {"name": names.state_lock_lease(SUFFIX), "namespace": "ns"}})

    def test_an_untouched_lock_proves_that_nothing_was_applied(self, api):
        self.lock(api)
        version = lock_version(api, "ns", SUFFIX)
        marks = {annotations.STATE_LOCK_VERSION: version}
        assert not crashed(api, failed(marks=marks), SUFFIX)
        self.lock(api)
        assert crashed(api, failed(marks=marks), SUFFIX)

    def test_an_absent_one_is_none(self, api):
        assert lock_version(api, "ns", SUFFIX) == "none"
        assert not crashed(api, failed(marks={annotations.STATE_LOCK_VERSION: "none"}), SUFFIX)

    def test_a_read_that_fails_proves_nothing(self, api):
        def fail(verb, kind, name):
            raise InternalError("boom", code=500)

        api.before = fail
        assert crashed(api, failed(marks={annotations.STATE_LOCK_VERSION: "none"}), SUFFIX)


class TestCacheLag:
    OWNER = LeaseOwner("ns", "TerraformMachine", "web", "prod")

    def lags(self, api, clock, views=(), active="", matters=True):
        return unseen_job(
            api,
            views,
            self.OWNER,
            uid="owner-uid",
            created=at(0),
            active_name=active,
            lease_matters=matters,
            now=clock.now(),
        )

    def lease(self, api, clock, job_name):
        acquire_leases(api, LeaseRequest(self.OWNER, "apply", job_name, 3600), clock)
        api.requests.clear()

    def test_an_idle_object_reads_nothing(self, api, clock):
        assert not self.lags(api, clock, matters=False)
        assert api.requests == []

    def test_a_job_that_status_names_and_the_list_lacks(self, api, clock):
        assert not self.lags(api, clock, active=NAME)
        api.put(JOB, job_object(outcome="Complete"))
        assert self.lags(api, clock, active=NAME)
        assert not self.lags(api, clock, active=NAME, views=[job(outcome="Complete")])

    def test_the_holder_of_a_live_lease_is_evidence_of_a_job(self, api, clock):
        self.lease(api, clock, NAME)
        assert not self.lags(api, clock)
        api.put(JOB, job_object())
        assert self.lags(api, clock)
        assert not self.lags(api, clock, views=[job()])

    def test_another_objects_job_is_the_gates_business(self, api, clock):
        self.lease(api, clock, "captf-m-other-apply-a1-abc123")
        api.put(JOB, job_object("captf-m-other-apply-a1-abc123", owner="other"))
        assert not self.lags(api, clock)

    @pytest.mark.parametrize(("name", "mine"), [("n" * 64, True), ("ce068a195ab380a8", False)])
    def test_a_job_of_an_object_with_the_hash_for_a_name_is_not_mine(self, api, clock, name, mine):
        """The label of a long name is a hash; the controller bears the whole name."""
        owner = LeaseOwner("ns", "TerraformMachine", "n" * 64, "prod")
        acquire_leases(api, LeaseRequest(owner, "apply", NAME, 3600), clock)
        obj = job_object(owner=name, owner_uid="some-uid")
        obj["metadata"]["labels"][labels.OWNER_NAME] = "ce068a195ab380a8"
        api.put(JOB, obj)
        found = unseen_job(
            api, [], owner, uid="u", created=at(0), active_name="", lease_matters=True, now=clock.now()
        )
        assert (found is not None) is mine

    def test_a_free_lease_is_no_evidence(self, api, clock):
        self.lease(api, clock, NAME)
        api.put(JOB, job_object(outcome="Failed"))
        assert not self.lags(api, clock)

    def test_a_job_that_another_object_controls_is_not_the_one_of_the_status(self, api, clock):
        api.put(JOB, job_object(owner_uid="earlier"))
        assert not self.lags(api, clock, active=NAME)

    @pytest.mark.parametrize(
        ("fields", "is_lost"),
        [
            ({"owner_uid": ""}, True),
            ({"owner": "other"}, True),
            ({}, False),
            ({"owner_uid": "earlier", "owner": "other"}, False),
            ({"name": "captf-m-other-apply-a1-abc123", "owner_uid": ""}, False),
            ({"owner_uid": "", "created": -3600}, False),
        ],
    )
    def test_a_lost_job_has_the_objects_name_for_it_and_nobody_elses_reference(self, fields, is_lost):
        assert lost(job(**fields), self.OWNER, "owner-uid", at(0)) is is_lost

    def test_a_failed_read_is_an_error(self, api, clock):
        def fail(verb, kind, name):
            raise InternalError("boom", code=500)

        api.before = fail
        with pytest.raises(InternalError):
            self.lags(api, clock, active=NAME)


class TestImages:
    @pytest.mark.parametrize(
        ("pinned", "record", "spec", "unpullable", "image", "fallbacks"),
        [
            ("p", "r", "s", (), "p", ("r", "s")),
            ("p", "r", "", (), "p", ("r",)),
            ("", "r", "r", (), "r", ()),
            ("p", "r", "s", ("p",), "r", ("s",)),
            ("p", "r", "s", ("p", "r"), "s", ()),
            ("p", "r", "s", ("s", "r", "p"), "p", ()),
            ("", "", "s", (), "s", ()),
        ],
    )
    def test_choice(self, pinned, record, spec, unpullable, image, fallbacks):
        choice = choose_image(pinned, record, spec, unpullable)
        assert (choice.image, choice.fallbacks) == (image, fallbacks)

    def test_no_image_at_all(self):
        assert choose_image("", "", "") is None

    def test_next(self):
        view = job(image="p", marks={annotations.IMAGE_FALLBACKS: '["r","s"]'})
        assert fallbacks_of(view) == ("r", "s")
        assert next_image(view, "s", ()) == "r"
        assert next_image(view, "t", ("r", "s")) == "t"
        assert next_image(view, "", ("r", "s")) == ""

    @pytest.mark.parametrize("text", ["", "{", "[1]", '"x"', "null"])
    def test_what_is_no_list_is_empty(self, text):
        assert parse_image_list(text) == ()
