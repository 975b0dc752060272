"""What an object may be stuck in, brought about as it comes about: by deletes, failures and neighbours.

``DELETIONS`` leave an object whose deletion waits or is about to take a step; ``LIVE`` one that lives and waits.
Each is a function of a case whose world is at its beginning. The manager's last pass is over in all of them.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable

from tests import state_secrets
from tests.deletion_case import Case
from tests.world import IDENTITY, OPERATOR, TEAM, World

from captf_controllers.api import names
from captf_controllers.api.kinds import CLUSTER, TERRAFORM_CLUSTER_IDENTITY
from captf_runtime.objects import LEASE, NAMESPACE, SECRET, Kind, Object, format_time

Situation = Callable[[Case], None]

LOCK_HOLDER = "alice@laptop"
LOCK_ID = "0a1b2c3d-0000-4000-8000-000000000000"


def deleted(case: Case) -> None:
    """Deleted while everything is well; no pass since."""
    case.provision()
    case.delete()


def destroying(case: Case) -> None:
    case.destroying()


def never_applied(case: Case) -> None:
    case.add()
    case.reconcile()
    case.delete()


def destroyed(case: Case) -> None:
    """The destroy has succeeded and no pass has seen it."""
    case.destroying()
    case.end()


def destroyed_and_brought_back(case: Case) -> None:
    """The destroy has succeeded, and somebody put the state back that was before it."""
    destroyed(case)
    case.world.write_state(case.kind, case.name, cluster=case.cluster)


def destroyed_nothing(case: Case) -> None:
    """The state was removed before the destroy read it; what the destroy left is another, empty one."""
    case.destroying()
    case.remove_secrets(case.states())
    case.end(state=None)
    empty = state_secrets.document(serial=1, resources=0, lineage="of-the-destroy")
    case.world.write_state(case.kind, case.name, cluster=case.cluster, payload=state_secrets.payload(empty))


def failed_destroy(case: Case) -> None:
    case.destroying()
    case.fail()


def failed_destroy_due_again(case: Case) -> None:
    case.destroying()
    case.advance(case.fail()[0])


def lost(case: Case) -> None:
    case.provision()
    case.remove_secrets(case.states())
    case.delete()
    case.reconcile()


def lost_to_a_refresh(case: Case) -> None:
    """The state was removed while a refresh ran, which stored one with outputs and without resources."""
    case.provision()
    case.remove_secrets(case.states())
    outputs = {"health": {"state": "running", "healthy": True}}
    made = state_secrets.document(serial=2, resources=0, outputs=outputs, lineage="of-the-refresh")
    case.world.write_state(case.kind, case.name, cluster=case.cluster, payload=state_secrets.payload(made))
    case.delete()
    case.reconcile()


def lost_without_backup(case: Case) -> None:
    case.provision()
    case.remove_secrets([*case.states(), *case.backups()])
    case.delete()
    case.reconcile()


def corrupt(case: Case) -> None:
    _spoiled(case, b"noise")


def encrypted(case: Case) -> None:
    envelope = {"meta": {}, "encrypted_data": "AAAA", "encryption_version": "v0"}
    _spoiled(case, gzip.compress(json.dumps(envelope).encode()))


def inconsistent(case: Case) -> None:
    """A chunk is there twice over a gap."""
    case.provision()
    stray = state_secrets.secret(
        names.state_chunk(case.suffix, 2),
        b"rest",
        suffix=case.suffix,
        labels=names.state_labels(case.kind, case.name, case.cluster),
    )
    case.world.client.create(SECRET, stray, TEAM)
    case.delete()
    case.reconcile()


def outcome_unknown(case: Case) -> None:
    """The first apply ended without a word before it wrote a state."""
    case.add()
    case.settle()
    case.world.start_pod(case.job("apply"))
    case.end("no-result")
    case.reconcile()
    case.delete()
    case.reconcile()


def wrong_abandon(case: Case) -> None:
    lost(case)
    case.abandon("yes")
    case.reconcile()


def abandoned(case: Case) -> None:
    """Held, with the annotation; no pass since."""
    lost(case)
    case.abandon()


def abandoned_after_failure(case: Case) -> None:
    failed_destroy(case)
    case.abandon()


def abandoned_too_early(case: Case) -> None:
    """The annotation is set, and the destroy can start."""
    deleted(case)
    case.abandon()


def retained(case: Case) -> None:
    """Held, with the policy set; no pass since."""
    lost(case)
    case.spec(deletionPolicy="Retain")


def restore_asked(case: Case) -> None:
    lost(case)
    case.restore(1)


def restore_not_found(case: Case) -> None:
    lost(case)
    case.restore("seven")
    case.reconcile()


def restore_failed(case: Case) -> None:
    restore_asked(case)
    case.reconcile()
    case.end("failed")
    case.reconcile()


def identity_refused(case: Case) -> None:
    case.provision()
    refuse_identity(case.world)
    case.delete()
    case.reconcile()


def credentials_missing(case: Case) -> None:
    case.provision()
    _delete(case.world, SECRET, f"{IDENTITY}-credentials", OPERATOR)
    case.delete()
    case.reconcile()


def inputs_gone(case: Case) -> None:
    """A machine's destroy has nothing to render; a cluster or pool renders its spec."""
    case.provision()
    case.remove_inputs()
    case.delete()
    case.reconcile()


def run_lease_held(case: Case) -> None:
    case.provision()
    case.world.hold_run_lease(case.kind, case.name, "captf-of-another")
    case.delete()
    case.reconcile()


def slots_taken(case: Case) -> None:
    case.provision()
    case.world.restart(max_active_jobs=1)
    case.world.env.slots.reserve("elsewhere", "captf-other", "")
    case.delete()
    case.reconcile()


def locked(case: Case) -> None:
    """Somebody else holds the state lock; the destroy starts all the same."""
    case.provision()
    lock(case)
    case.delete()


def namespace_terminating(case: Case) -> None:
    """The namespace went first, and nothing that a Job needs can be created any more."""
    case.provision()
    _delete(case.world, SECRET, names.credential_mirror(IDENTITY), TEAM)
    case.delete()
    _delete(case.world, NAMESPACE, TEAM, "")
    case.reconcile()


def foreign_state(case: Case) -> None:
    """Deleted while it found the state of an earlier object of its name."""
    found_retained(case)
    case.delete()


def foreign_state_adopted(case: Case) -> None:
    found_retained(case)
    case.spec(adoptRetainedState=True)
    case.delete()


def dependents(case: Case) -> None:
    """A cluster with machines that are left."""
    case.provision()
    for name in ("a", "b"):
        case.world.add("TerraformMachine", name, cluster=case.cluster)
    case.delete()
    case.reconcile()


def paused_deletion(case: Case) -> None:
    case.provision()
    case.patch({"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}})
    case.reconcile()
    case.delete()
    case.reconcile()


DELETIONS: dict[str, Situation] = {
    "deleted": deleted,
    "never applied": never_applied,
    "destroyed": destroyed,
    "destroyed, state brought back": destroyed_and_brought_back,
    "destroyed nothing": destroyed_nothing,
    "destroy failed": failed_destroy,
    "destroy failed, due again": failed_destroy_due_again,
    "state lost": lost,
    "state lost, another in its place": lost_to_a_refresh,
    "state lost, no backup": lost_without_backup,
    "state corrupt": corrupt,
    "state encrypted": encrypted,
    "state inconsistent": inconsistent,
    "outcome unknown": outcome_unknown,
    "wrong abandon": wrong_abandon,
    "abandoned": abandoned,
    "abandoned after a failure": abandoned_after_failure,
    "abandoned too early": abandoned_too_early,
    "retained": retained,
    "restore asked": restore_asked,
    "restore not found": restore_not_found,
    "restore failed": restore_failed,
    "identity refused": identity_refused,
    "credentials missing": credentials_missing,
    "inputs gone": inputs_gone,
    "run lease held": run_lease_held,
    "slots taken": slots_taken,
    "state locked": locked,
    "namespace terminating": namespace_terminating,
    "foreign state": foreign_state,
    "foreign state adopted": foreign_state_adopted,
}


# Live objects


def healthy(case: Case) -> None:
    case.provision()


def found_retained(case: Case) -> None:
    """A new object of the name of one that was retained."""
    case.provision()
    case.spec(deletionPolicy="Retain")
    case.delete(keep=False)
    case.reconcile()
    case.world.add(case.kind, case.name, cluster=case.cluster)
    case.settle()


def held(case: Case) -> None:
    case.provision()
    case.remove_secrets(case.states())
    case.settle()


def unconfirmed(case: Case) -> None:
    case.add()
    case.settle()
    case.world.start_pod(case.job("apply"))
    case.end("no-result")
    case.settle()


def first_apply_failed(case: Case) -> None:
    case.add()
    case.settle()
    case.end("failed")
    case.settle()


def paused_by_annotation(case: Case) -> None:
    case.provision()
    case.patch({"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}})
    case.settle()


def paused_by_cluster(case: Case) -> None:
    case.provision()
    case.world.client.patch(CLUSTER, case.cluster, {"spec": {"paused": True}}, TEAM)
    case.settle()


def locked_alive(case: Case) -> None:
    case.provision()
    lock(case)
    case.settle()


def refused_alive(case: Case) -> None:
    case.provision()
    refuse_identity(case.world)
    case.settle()


def restore_failed_alive(case: Case) -> None:
    case.provision()
    case.restore(1)
    case.settle()
    case.end("failed")
    case.settle()


def restore_not_found_alive(case: Case) -> None:
    case.provision()
    case.restore(99)
    case.settle()


def variables_unlabelled(case: Case) -> None:
    """Somebody named a Secret of variables and did not say that modules may read it."""
    data = {"size": base64.b64encode(b"large").decode()}
    # After the object: a stage that was there before takes the place of whatever was made ahead of it.
    case.add(variablesFrom=[{"secretRef": {"name": "sizes"}}])
    case.world.create(SECRET, {"metadata": {"name": "sizes"}, "data": data}, TEAM)
    case.settle()


def variables_missing(case: Case) -> None:
    case.add(variablesFrom=[{"configMapRef": {"name": "sizes"}}])
    case.settle()


LIVE: dict[str, Situation] = {
    "healthy": healthy,
    "variables unlabelled": variables_unlabelled,
    "variables missing": variables_missing,
    "found retained": found_retained,
    "held": held,
    "unconfirmed": unconfirmed,
    "first apply failed": first_apply_failed,
    "paused by annotation": paused_by_annotation,
    "paused by cluster": paused_by_cluster,
    "locked": locked_alive,
    "identity refused": refused_alive,
    "restore failed": restore_failed_alive,
    "restore not found": restore_not_found_alive,
}


# What somebody does


def refuse_identity(world: World) -> None:
    """The identity no longer allows the team's namespace."""
    patch: Object = {"spec": {"allowedNamespaces": {"list": ["elsewhere"], "selector": None}}}
    world.client.patch(TERRAFORM_CLUSTER_IDENTITY, IDENTITY, patch)


def lock(case: Case) -> None:
    """Somebody runs Terraform by hand and holds the lock."""
    info = {
        "ID": LOCK_ID,
        "Operation": "OperationTypeApply",
        "Who": LOCK_HOLDER,
        "Version": "1.11.4",
        "Created": format_time(case.world.clock.now()),
    }
    case.world.create(
        LEASE,
        {
            "metadata": {
                "name": names.state_lock_lease(case.suffix),
                "annotations": {"app.terraform.io/lock-info": json.dumps(info)},
            },
            "spec": {"holderIdentity": LOCK_ID},
        },
        TEAM,
    )


def _spoiled(case: Case, payload: bytes) -> None:
    case.provision()
    case.world.write_state(case.kind, case.name, cluster=case.cluster, payload=payload)
    case.delete()
    case.reconcile()


def _delete(world: World, kind: Kind, name: str, namespace: str) -> None:
    world.client.delete(kind, name, namespace, propagation_policy="Background")
