"""The commands that a person may paste, for what an object waits for."""

from __future__ import annotations

import re
from typing import Final

from captf_controllers.api import annotations as keys
from captf_controllers.api import conditions as types
from captf_controllers.api import labels, names, reasons
from captf_controllers.api.kinds import OWNER_KINDS, TERRAFORM_CLUSTER
from captf_controllers.approvals.plans import approve_own_command
from captf_controllers.cli.diagnosis import Exit
from captf_controllers.cli.examination import Examination
from captf_controllers.deletion import ways_out
from captf_controllers.deletion.facts import Subject
from captf_controllers.deletion.ways_out import Way
from captf_controllers.state.lock import LockKind
from captf_runtime.objects import name_of

_SOURCE: Final = re.compile(
    r"(?P<kind>Secret|ConfigMap) (?P<name>\S+) \([^)]*\) (?P<why>does not exist|lacks)"
)


def of_ways(found: Examination, ways: tuple[Way, ...]) -> tuple[Exit, ...]:
    """The ways out of a deletion, each with its command; a restore names the serials that there are."""
    return tuple(way for each in ways for way in _of_way(found, each))


def _of_way(found: Examination, way: Way) -> tuple[Exit, ...]:
    match way.name:
        case "restore":
            return (restore(found),)
        case "abandon":
            return (
                Exit(
                    "leave the infrastructure running and untracked (captf abandon shows first what is left)",
                    (way.command,),
                ),
            )
        case "retain":
            kept = "keep its state for a later object"
            if found.namespace_terminating:
                kept = "leave its state to the namespace, which is being deleted and takes it along"
            return (Exit(f"let the object go without a destroy and {kept}", (way.command,)),)
        case "confirm":
            job = found.facts.hold.job if found.facts is not None and found.facts.hold is not None else ""
            about = f"Job {job}" if job else "the Job"
            return (
                Exit(
                    f"go on as if {about} had never run, after checking at the provider that it created "
                    "nothing",
                    (way.command,),
                ),
            )


def restore(found: Examination) -> Exit:
    """Restoring a backup: the newest complete one is in the command, the others are named."""
    serials = found.complete_serials
    if found.backups is not None and not serials:
        harmed = ", and what there is of backups is damaged" if found.damaged else ""
        return Exit(
            f"bring the state back only from a copy of your own: no complete backup exists here{harmed}"
        )
    listed = f"complete ones: {', '.join(map(str, serials))}" if serials else "captf state backups lists them"
    serial = str(serials[0]) if serials else ways_out.SERIAL
    return Exit(
        f"restore a backup of the state ({listed})", (ways_out.restore(found.subject, serial).command,)
    )


def restore_or_give_up(found: Examination) -> tuple[Exit, ...]:
    """Restoring a backup of a live object; without one there is its deletion, whose hold leads on."""
    if found.backups is None or found.complete_serials:
        return (restore(found),)
    give_up = (
        "give the object up: delete it; the deletion is held until you choose captf retain or captf abandon"
    )
    return (restore(found), Exit(give_up))


def confirm(found: Examination) -> tuple[Exit, ...]:
    """Confirming that an apply of unknown outcome created nothing."""
    job = found.unconfirmed_apply
    if not job:
        return ()
    return (
        Exit(
            f"apply anew, after checking at the provider that Job {job} created nothing or removing what it did",
            (ways_out.confirm(found.subject, job).command,),
        ),
    )


def adopt_or_discard(found: Examination) -> tuple[Exit, ...]:
    """The two exits of a live object that found state of an earlier one."""
    subject = found.subject
    adopt = subject.command("patch", """--type merge -p '{"spec":{"adoptRetainedState":true}}'""")
    exits = [Exit("manage that infrastructure with this object", (adopt,))]
    uid = _foreign_uid(found)
    if uid:
        discard = f"kubectl delete secrets -n {subject.namespace} -l {labels.RETAINED_FROM_UID}={uid}"
        exits.append(Exit("start afresh and leave that infrastructure unmanaged", (discard,)))
    return tuple(exits)


def _foreign_uid(found: Examination) -> str:
    if found.facts is not None:
        return found.facts.retained.foreign_uid
    return ""


def unlock(found: Examination) -> tuple[Exit, ...]:
    """Releasing a lock whose holder is gone."""
    lock = found.lock
    if lock is None or lock.kind is not LockKind.FOREIGN:
        return ()
    command = (
        f"kubectl patch lease -n {found.subject.namespace} {lock.lease} --type merge "
        """-p '{"spec":{"holderIdentity":null}}'"""
    )
    return (Exit(f"release the lock, once you are sure that {lock.holder} is gone", (command,)),)


def unpause(found: Examination) -> tuple[Exit, ...]:
    """Taking away what pauses the object."""
    subject = found.subject
    exits = []
    if "cluster" in found.paused_by:
        command = (
            f"kubectl patch clusters.cluster.x-k8s.io -n {subject.namespace} {found.owners.pausing_cluster_name} "
            """--type merge -p '{"spec":{"paused":false}}'"""
        )
        exits.append(Exit("unpause the whole Cluster", (command,)))
    if "annotation" in found.paused_by:
        exits.append(Exit("unpause this object", (subject.command("annotate", f"{keys.PAUSED}-"),)))
    return tuple(exits)


def why_cluster(found: Examination) -> tuple[Exit, ...]:
    """Asking about the TerraformCluster that a machine or pool waits for."""
    cluster = found.owners.terraform_cluster
    if cluster is None or found.subject.kind == TERRAFORM_CLUSTER.kind:
        return ()
    return (
        Exit(
            f"see what TerraformCluster {name_of(cluster)} waits for",
            (f"captf why terraformcluster {name_of(cluster)} -n {found.subject.namespace}",),
        ),
    )


def show_owner(found: Examination) -> tuple[Exit, ...]:
    """Looking at the owner that Cluster API sets."""
    owner = OWNER_KINDS[found.subject.kind]
    return (
        Exit(
            f"look at the {owner.kind} objects that may own it",
            (f"kubectl get {owner.resource} -n {found.subject.namespace}",),
        ),
    )


def show_identity(found: Examination) -> tuple[Exit, ...]:
    """Looking at the identity whose credentials the Jobs need."""
    identity = found.config.identity
    missing = found.conditions.reason(types.IDENTITY_ALLOWED) == reasons.IDENTITY_NOT_FOUND
    if identity is None or (missing and identity.kind != "Secret"):
        return (Exit("see which identities there are", ("kubectl get terraformclusteridentities",)),)
    if identity.kind == "Secret":
        command = f"kubectl get secret -n {found.subject.namespace} {identity.name}"
        return (Exit("look at the Secret that the object names", (command,)),)
    command = f"kubectl get terraformclusteridentity {identity.name} -o yaml"
    return (Exit("look at the identity that the object uses", (command,)),)


def variables_source(found: Examination) -> tuple[Exit, ...]:
    """Letting a module read the ConfigMap or Secret that the condition names, or making it."""
    condition = found.conditions.get(types.DEPENDENCIES_READY)
    named = _SOURCE.match(condition.message) if condition is not None else None
    if named is None:
        return ()
    kind, name, where = named["kind"], named["name"], f"-n {found.subject.namespace}"
    label = f"{labels.VARIABLES}={labels.TRUE}"
    if named["why"] == "does not exist":
        show = f"kubectl get {kind.lower()}s {where} -l {label}"
        return (Exit(f"see which {kind}s there are for modules to read", (show,)),)
    command = f"kubectl label {kind.lower()} {where} {name} {label} --overwrite"
    return (Exit(f"let the modules of this namespace read that {kind}", (command,)),)


def drift(found: Examination) -> tuple[Exit, ...]:
    """Reading what the check found, and having it corrected where an apply may do that."""
    read = logs_of_check(found)
    if not found.mutable or found.config.drift_action == "Remediate":
        return read
    command = found.subject.command(
        "patch", """--type merge -p '{"spec":{"drift":{"action":"Remediate"}}}'"""
    )
    return (*read, Exit("have this drift, and any later one, corrected by an apply", (command,)))


def opt_in_service_account(found: Examination) -> tuple[Exit, ...]:
    """Letting Jobs run as the ServiceAccount that the policy names."""
    account = found.config.jobs.service_account
    command = f"kubectl label serviceaccount -n {found.subject.namespace} {account} {labels.RUNNER}=true --overwrite"
    return (Exit(f"let Jobs run as ServiceAccount {account}", (command,)),)


def follow_job(found: Examination) -> tuple[Exit, ...]:
    """Following the Job that runs."""
    if found.active is None:
        return ()
    job, namespace = found.active.name, found.subject.namespace
    return (
        Exit("follow its output", (f"kubectl logs -n {namespace} job/{job} -c source --follow",)),
        Exit("see why its pod does not run", (f"kubectl describe pods -n {namespace} -l job-name={job}",))
        if found.pod is None or found.pod.phase == "Pending"
        else Exit("stop it", (f"kubectl delete job -n {namespace} {job}",)),
        *(unlock(found) if found.deleting else ()),
    )


def logs_of(found: Examination, *ops: str) -> tuple[Exit, ...]:
    """Reading the output of the newest finished Job of the operations, while its pod is there."""
    job = next((each for each in found.finished if each.op in ops), None)
    if job is None:
        return ()
    command = f"kubectl logs -n {found.subject.namespace} job/{job.name} -c source"
    return (Exit(f"read what {job.op} Job {job.name} wrote, while its pod is kept", (command,)),)


def logs_of_apply(found: Examination) -> tuple[Exit, ...]:
    """Reading the output of the newest apply or plan."""
    return logs_of(found, "apply", "plan")


def logs_of_change(found: Examination) -> tuple[Exit, ...]:
    """Reading the output of the newest apply, plan or destroy."""
    return logs_of(found, "apply", "plan", "destroy")


def logs_of_destroy(found: Examination) -> tuple[Exit, ...]:
    """Reading the output of the newest destroy."""
    return logs_of(found, "destroy")


def logs_of_check(found: Examination) -> tuple[Exit, ...]:
    """Reading the output of the newest refresh or drift check."""
    return logs_of(found, "refresh", "drift")


def approve(found: Examination) -> tuple[Exit, ...]:
    """Reading the plan that waits, and approving it."""
    plan = found.pending_plan
    if not plan:
        show = f"kubectl get terraformplans -n {found.subject.namespace}"
        return (Exit("see the plans of the namespace", (show,)),)
    namespace = found.subject.namespace
    return (
        Exit("read the plan", (f"kubectl get terraformplan -n {namespace} {plan} -o yaml",)),
        Exit(
            "approve it in your own name",
            (approve_own_command(namespace, plan),),
        ),
    )


def restore_again(found: Examination) -> tuple[Exit, ...]:
    """Naming another backup, or the same one anew."""
    subject = found.subject
    return (
        restore(found),
        Exit("withdraw the request", (subject.command("annotate", f"{keys.RESTORE_STATE}-"),)),
    )


def show_lease(found: Examination) -> tuple[Exit, ...]:
    """Looking at the run lease and at the pods of the Job that holds it."""
    if found.lease is None:
        return ()
    namespace = found.subject.namespace
    return (
        Exit(
            "see whether the Job that holds the lease still runs",
            (
                f"kubectl get lease -n {namespace} {names.run_lease(found.suffix)} -o yaml",
                f"kubectl get pods -n {namespace} -l job-name={found.lease.holder}",
            ),
        ),
    )


def remaining_finalizers(subject: Subject) -> tuple[Exit, ...]:
    """Looking at what else keeps an object."""
    command = subject.command("get", "-o jsonpath='{.metadata.finalizers}'")
    return (Exit("see the finalizers that are left", (command,)),)


def delete_dependents(found: Examination) -> tuple[Exit, ...]:
    """Deleting the machines and pools that a cluster waits for, through what Cluster API deletes."""
    where = f"-n {found.subject.namespace} -l {labels.CLUSTER_NAME}={names.label_value(found.cluster_name)}"
    return (
        Exit(
            "see what is left of the cluster",
            (f"kubectl get terraformmachines,terraformmachinepools {where}",),
        ),
        Exit(
            "see the Machines and MachinePools that they go with",
            (f"kubectl get machines.cluster.x-k8s.io,machinepools.cluster.x-k8s.io {where}",),
        ),
    )


def find_manager(found: Examination) -> tuple[Exit, ...]:
    """Looking for the manager."""
    return (
        Exit(
            "see whether a manager runs",
            (
                "kubectl get pods -A -l app.kubernetes.io/name=cluster-api-provider-terraform",
                f"kubectl get leases -A --field-selector metadata.name={names.ELECTION_LEASE}",
            ),
        ),
    )
