"""A manager killed after any single write of a deletion leaves the next one enough to end it the same way.

Each ending is run once undisturbed, which counts the manager's writes; then once for every one of these writes,
with the manager killed as soon as the API server has committed it, and a new manager afterwards.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from tests.belongings import complete, cut_state, lose_state, mirror_owners, spoil_state
from tests.deletion_case import Case
from tests.world import KINDS, TEAM, Crash, World

from captf_controllers.api import annotations as keys
from captf_controllers.api import labels, names
from captf_controllers.jobs.views import view_job
from captf_runtime.objects import (
    JOB,
    ROLE_BINDING,
    SECRET,
    SERVICE_ACCOUNT,
    Object,
    annotations_of,
    labels_of,
    name_of,
    owner_references,
)

#: Passes that an ending takes at most, waits and a Job that must be found stuck included.
PASSES = 40


@dataclass(frozen=True)
class Ending:
    """How an object ends: what is prepared, when the end is reached, and what a user does again on the way.

    A consumed confirmation that a crash made useless is asked for anew by the hold's message, on purpose: one
    that outlived its use could confirm a later Job unasked.
    """

    prepare: Callable[[Case], None]
    ended: Callable[[Case], bool]
    nudge: Callable[[Case], None] | None = None


def destroyed(case: Case) -> None:
    case.provision()
    cut_state(case)
    complete(case)
    case.delete()


def nothing_to_destroy(case: Case) -> None:
    case.add()
    case.settle()
    case.end("failed", steps=("init",))
    case.settle()
    complete(case)
    case.delete()


def abandoned(case: Case) -> None:
    case.provision()
    complete(case)
    lose_state(case)
    case.delete()
    case.abandon()


def abandoned_over_a_broken_state(case: Case) -> None:
    case.provision()
    complete(case)
    cut_state(case)
    spoil_state(case)
    case.delete()
    case.abandon()


def abandoned_after_a_failed_destroy(case: Case) -> None:
    case.provision()
    complete(case)
    case.delete()
    case.reconcile()
    case.end("failed")
    case.reconcile()
    case.abandon()


def retained(case: Case) -> None:
    case.provision()
    cut_state(case)
    complete(case)
    case.spec(deletionPolicy="Retain")
    case.delete()


def restored(case: Case) -> None:
    case.provision()
    lose_state(case)
    case.restore(1)
    case.delete()


def confirmed(case: Case) -> None:
    case.add()
    case.settle()
    job = name_of(case.job())
    case.world.client.delete(JOB, job, TEAM, propagation_policy="Background")
    case.advance(61)
    case.delete()
    assert case.reconcile() == 60
    case.annotate(confirm_no_resources=job)


def confirm_again(case: Case) -> None:
    """Do what the message of the hold says."""
    if case.says("StateReadable") == "False/ApplyOutcomeUnknown":
        command = case.message("StateReadable").partition("captf.io/confirm-no-resources=")[2]
        case.annotate(confirm_no_resources=command.split()[0].rstrip(";."))


def left_behind(case: Case) -> None:
    """An object of the name was retained; the Secrets are another's."""
    case.provision()
    case.spec(deletionPolicy="Retain")
    case.delete(keep=False)
    case.reconcile()
    case.world.step()
    case.world.add(case.kind, case.name, cluster=case.cluster)


def adopting(case: Case) -> None:
    left_behind(case)
    case.settle()
    case.spec(adoptRetainedState=True)


def adopting_and_deleted(case: Case) -> None:
    adopting(case)
    case.delete()


def held_and_deleted(case: Case) -> None:
    left_behind(case)
    case.settle()
    case.delete()


def managed_by_somebody_else(case: Case) -> None:
    case.provision()
    cut_state(case)
    complete(case)
    case.patch({"metadata": {"annotations": {"cluster.x-k8s.io/managed-by": "somebody"}}})
    case.delete()


def never_taken_up(case: Case) -> None:
    case.add()
    case.reconcile()
    case.patch({"metadata": {"ownerReferences": None}})
    case.delete()


def is_released(case: Case) -> bool:
    return case.released


def is_managed(case: Case) -> bool:
    owners = {reference.uid for secret in case.states() for reference in owner_references(secret)}
    return case.says("StateReadable") == "True/StateRead" and owners == {case.uid}


ENDINGS = {
    "destroyed": Ending(destroyed, is_released),
    "nothing to destroy": Ending(nothing_to_destroy, is_released),
    "abandoned": Ending(abandoned, is_released),
    "abandoned over a broken state": Ending(abandoned_over_a_broken_state, is_released),
    "abandoned after a failed destroy": Ending(abandoned_after_a_failed_destroy, is_released),
    "retained": Ending(retained, is_released),
    "restored and destroyed": Ending(restored, is_released),
    "confirmed": Ending(confirmed, is_released, confirm_again),
    "adopted": Ending(adopting, is_managed),
    "adopted and destroyed": Ending(adopting_and_deleted, is_released),
    "released from a retained hold": Ending(held_and_deleted, is_released),
    "managed by somebody else": Ending(managed_by_somebody_else, is_released),
    "never taken up": Ending(never_taken_up, is_released),
}


#: The kinds that an ending runs for, where the others would only repeat what another ending shows of them.
KINDS_OF = {
    "nothing to destroy": ["TerraformMachinePool"],
    "abandoned over a broken state": ["TerraformMachinePool"],
    "abandoned after a failed destroy": ["TerraformMachine"],
    "restored and destroyed": ["TerraformCluster"],
    "confirmed": ["TerraformMachine"],
    "adopted and destroyed": ["TerraformMachine"],
    "released from a retained hold": ["TerraformMachine"],
    "managed by somebody else": ["TerraformCluster"],
    "never taken up": ["TerraformMachine"],
}


@pytest.mark.acceptance("RA14", "CG10")
@pytest.mark.parametrize(
    ("ending", "kind"),
    [(ending, kind) for ending in ENDINGS for kind in KINDS_OF.get(ending, sorted(KINDS))],
)
def test_a_crash_after_any_write_changes_nothing_about_the_end(world: World, ending: str, kind: str) -> None:
    case, plan = Case(world, kind), ENDINGS[ending]
    plan.prepare(case)
    start = world.checkpoint()
    world.rewind(start)
    held: list[bool] = []
    world.write_watch.watch(lambda _: held.append(not case.released))
    drive(case, plan)
    world.write_watch.watch(None)
    writes, before_release = len(held), sum(held)
    undisturbed, said = picture(case), terminal_events(case)
    assert writes >= 1
    for last in range(1, writes + 1):
        world.rewind(start)
        world.write_watch.watch(kill_after(last))
        with pytest.raises(Crash):
            drive(case, plan)
        world.restart()
        world.write_watch.watch(None)
        drive(case, plan)
        assert picture(case) == undisturbed, f"killed after write {last} of {writes}"
        # What a write made true is said after it: the event of the very write that was the last is lost.
        assert set(terminal_events(case)) <= set(said), f"killed after write {last} of {writes}"
        if last < before_release and ending != "adopted":
            assert terminal_events(case)[-1:] == said[-1:], f"killed after write {last} of {writes}"


def kill_after(last: int) -> Callable[[int], None]:
    """Kill the manager once its write of that number is committed."""

    def after(write: int) -> None:
        if write == last:
            raise Crash

    return after


def drive(case: Case, plan: Ending) -> None:
    """Pass after pass until the end is reached: time goes by, and Jobs that can start succeed."""
    for _ in range(PASSES):
        requeue = case.reconcile()
        if plan.ended(case) and not running(case):
            return
        jobs = [job for job in running(case) if case.has_secret(names.per_run_secret(name_of(job)))]
        if jobs:
            case.world.finish_job(jobs[0])
            continue
        if plan.nudge is not None:
            plan.nudge(case)
        case.advance(requeue or 1)
    raise AssertionError(f"not ended after {PASSES} passes")


def running(case: Case) -> list[Object]:
    return [job for job in case.jobs() if not view_job(job).is_finished]


def terminal_events(case: Case) -> list[str]:
    """What the releases of the object said, in order."""
    terminal = {
        "Destroyed",
        "FinalizerRemoved",
        "InfrastructureAbandoned",
        "InfrastructureRetained",
        "RetainedStateAdopted",
        "ExternallyManagedReleased",
    }
    return [
        event["reason"]
        for event in case.world.events.events
        if event["reason"] in terminal and event["name"] == case.name
    ]


def picture(case: Case) -> dict[str, Any]:
    """The world as a user sees it, without what differs from run to run: times, UIDs, versions, attempts.

    Of an object that is on its way out only what outlives the way counts: what a pass in between would have
    shown of its state and outputs is nobody's any more.
    """
    world = case.world
    world.step()
    obj = case.object
    status = obj.get("status") or {}
    conditions = {item["type"]: (item["status"], item["reason"]) for item in status.get("conditions") or []}
    seen = {
        "finalizers": obj["metadata"].get("finalizers"),
        "active": status.get("activeJob"),
        "conditions": {key: conditions.get(key) for key in ("ApplyJobSucceeded", "Deleting")},
    }
    if not case.released:
        seen |= {
            "annotations": sorted(annotations_of(obj)),
            "spec": obj["spec"],
            "conditions": conditions,
            "provisioned": status.get("initialization"),
            "serial": status.get("observedStateSerial"),
        }
    return seen | {
        "secrets": {name_of(item): _secret(case, item) for item in world.client.list(SECRET, TEAM).items},
        "leases": world.leases(),
        "mirror": mirror_owners(world),
        "accounts": [name_of(item) for item in world.client.list(SERVICE_ACCOUNT, TEAM).items],
        "bindings": [name_of(item) for item in world.client.list(ROLE_BINDING, TEAM).items],
        "jobs": sorted({labels_of(job)[labels.OP] for job in world.jobs(case.name)}),
    }


def _secret(case: Case, secret: Object) -> Object:
    kept = {
        key: value
        for key, value in annotations_of(secret).items()
        if key.startswith("captf.io/") and key not in _RUN_TO_RUN
    }
    owners = sorted((reference.kind, reference.name) for reference in owner_references(secret))
    return {"labels": labels_of(secret), "annotations": kept, "owners": owners, "data": _content(secret)}


_RUN_TO_RUN = {keys.STATE_BACKUP_TAKEN_AT, keys.STATE_BACKUP_SOURCE_JOB, keys.JOB}


def _content(secret: Object) -> str:
    """A digest of the payload; of a state what it says, for its serial counts writes."""
    data = secret.get("data") or {}
    if "tfstate" in data and len(data) == 1:
        try:
            document = json.loads(gzip.decompress(base64.b64decode(data["tfstate"])))
        except (OSError, EOFError, ValueError):
            pass
        else:
            return json.dumps(
                {key: document[key] for key in ("outputs", "resources", "lineage")}, sort_keys=True
            )
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
