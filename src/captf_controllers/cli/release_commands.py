"""``captf abandon`` and ``captf retain``: letting an object go without a destroy, with open eyes.

Both show what is left running and what becomes of the state, say whether they act now, ask, and only then
change one thing on the object. The manager does the rest.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import click

from captf_controllers.api import annotations as keys
from captf_controllers.api import labels, names
from captf_controllers.api.kinds import workload_kind
from captf_controllers.cli.connection import Connection, one_line
from captf_controllers.cli.examination import Examination, examine
from captf_controllers.cli.following import Follower, Pause
from captf_controllers.cli.inventory import Inventory, of_state
from captf_controllers.cli.target import Target
from captf_controllers.cli.why import next_step
from captf_controllers.deletion.decision import AdoptRetained, Cleanup, Start, Wait
from captf_controllers.deletion.facts import Facts
from captf_runtime.objects import Object, annotations_of

#: How many addresses are printed; the rest is counted.
SHOWN = 40

Verb = Literal["abandon", "retain"]


@dataclass(frozen=True, slots=True)
class Effect:
    """When a release acts. ``now`` says that the next pass carries it out."""

    now: bool
    text: str


@dataclass(frozen=True, slots=True)
class Wish:
    """How the command was given: without asking, and waiting up to ``timeout`` seconds."""

    yes: bool
    wait: bool
    timeout: float


def release(connection: Connection, target: Target, verb: Verb, wish: Wish, pause: Pause) -> None:
    """Show what ``verb`` means for the object, ask, set it, and follow the object when that is wished.

    Raises:
        click.ClickException: it cannot act on this object, nobody can be asked, or the wait took too long.
        click.Abort: the answer was no.
    """
    obj = connection.get(target)
    found = examine(connection, obj)
    _refuse(found, verb)
    effect = abandon_effect(found) if verb == "abandon" else retain_effect(found)
    for line in preview(found, verb, of_state(connection.client, found), effect):
        click.echo(line)
    if _is_set(found, verb):
        click.echo(f"Nothing to change: {_setting(found, verb)} is set already.")
    else:
        ask(wish.yes, f"Set {_setting(found, verb)}?")
        connection.client.patch(
            workload_kind(target.kind), target.name, _patch(found, verb), connection.namespace
        )
        click.echo(f"{_setting(found, verb)} is set.")
    if not wish.wait:
        return
    if not found.deleting:
        click.echo("The object is not being deleted: there is nothing to wait for.")
        return
    follower = Follower(connection, target, found.subject.uid, wish.timeout, pause)
    follower.until_gone()
    click.echo(f"{target.resource} {target.name} is gone.")


def ask(yes: bool, question: str) -> None:
    """Ask a person, unless ``yes``.

    Raises:
        click.ClickException: nobody sits at the terminal.
        click.Abort: the answer was no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.ClickException("there is no terminal to ask at: give --yes to go on without a question")
    click.confirm(question, abort=True)


def abandon_effect(found: Examination) -> Effect:
    """When an abandon annotation with this object's UID acts, decided as the manager decides it."""
    if not found.deleting:
        return Effect(
            False,
            "not before the object is deleted, and then only when the deletion is held or its destroy fails or "
            "cannot start; set ahead of time it turns a failed destroy into infrastructure that nobody tracks",
        )
    common = _common_effect(found)
    if common is not None:
        return common
    assert found.facts is not None
    facts = replace(found.facts, abandon=found.subject.uid)
    match next_step(found, facts):
        case Cleanup("abandoned", cause):
            return _at_the_next_pass(found, cause)
        case Cleanup("retained"):
            return Effect(False, "never: spec.deletionPolicy is Retain, which wins and loses nothing")
        case Cleanup(mode):
            return Effect(False, f"never: the deletion ends without it ({mode})")
        case AdoptRetained():
            return Effect(False, "not yet: the state of an earlier object is taken over first")
        case Wait("DependentsExist"):
            return Effect(False, "not before the machines and pools of the cluster are gone")
        case Wait() | Start():
            return Effect(
                False,
                "not now: the state reads and a destroy can start, so it is started; the annotation acts only "
                "once that destroy failed or cannot start",
            )


def retain_effect(found: Examination) -> Effect:
    """When ``deletionPolicy: Retain`` on this object acts, decided as the manager decides it."""
    common = _common_effect(found)
    if common is not None:
        return common
    assert found.facts is not None
    facts: Facts = replace(found.facts, policy="Retain")
    match next_step(found, facts):
        case Cleanup("retained"):
            return _at_the_next_pass(found, "")
        case Cleanup("destroyed"):
            return Effect(False, "never: the destroy has succeeded already")
        case Cleanup(mode):
            return Effect(False, f"never: the deletion ends without it ({mode})")
        case Wait("DependentsExist"):
            return Effect(False, "not before the machines and pools of the cluster are gone")
        case _:
            return Effect(False, "not yet: the state of an earlier object is taken over first")


def preview(found: Examination, verb: Verb, inventory: Inventory, effect: Effect) -> Iterator[str]:
    """What a person reads before the question. Addresses and counts, never a value."""
    subject = found.subject
    name = f"{subject.kind} {subject.namespace}/{subject.name}"
    earlier = _earlier_uid(found)
    if earlier:
        yield f"{name}: the state found under its name is that of an earlier object."
        yield ""
        yield "A deletion of this object leaves that state, its backups and its inputs as they are, whatever is set;"
        yield f"they bear {labels.RETAINED_FROM_UID}={earlier}. captf why says how to adopt or discard them."
        yield ""
        yield f"When it acts: {one_line(effect.text)}."
        return
    if verb == "abandon":
        yield f"{name}: its infrastructure is left running, and nothing tracks it any more."
    else:
        yield f"{name}: its infrastructure is left running; its state is kept for a later object."
    yield ""
    yield f"Left running, by {inventory.source}:"
    yield from _addresses(inventory)
    yield ""
    yield from _secrets(found, verb)
    yield ""
    yield f"When it acts: {one_line(effect.text)}."


def _earlier_uid(found: Examination) -> str:
    """The UID of the object that retained the state found, unless this object adopts it; empty without one."""
    if found.facts is None or found.facts.adopt_retained:
        return ""
    return found.facts.retained.foreign_uid


def _addresses(inventory: Inventory) -> Iterator[str]:
    count = len(inventory.addresses)
    if not count:
        yield "  (unknown)" if not inventory.known else "  nothing"
        return
    yield from (f"  {address}" for address in inventory.addresses[:SHOWN])
    if count > SHOWN:
        yield f"  … and {count - SHOWN} more (captf state list shows all)"
    yield f"  {count} resource instance{'s' if count != 1 else ''} in all{'' if inventory.known else ' that are known'}"


def _secrets(found: Examination, verb: Verb) -> Iterator[str]:
    kept, subject = found.kept, found.subject
    where = f"kubectl get secrets -n {subject.namespace}"
    state = names.state_selector(found.suffix)
    backups = names.backup_selector(found.suffix)
    inputs = (
        names.durable_inputs_secret(subject.kind, subject.name),
        names.applied_inputs_secret(subject.kind, subject.name),
    )
    if kept is None:
        counts = "the state Secrets, their backups and the inputs Secrets"
    else:
        serials = ", ".join(map(str, found.complete_serials)) or "none complete"
        counts = (
            f"{len(kept.states)} state, {len(kept.backups)} backup (serials: {serials}) and "
            f"{len(kept.inputs)} inputs Secrets"
        )
    if kept is not None and not (kept.states or kept.backups or kept.inputs):
        yield f"{'Kept' if verb == 'retain' else 'Lost'}: nothing; no state, backup or inputs Secret of it is left."
        return
    if verb == "retain":
        yield f"Kept: {counts}, labelled {labels.RETAINED_FROM_UID}={subject.uid}."
        yield "Removed: the state lock, the plan key, the leases, the object's place on the credential mirror."
        yield (
            f"A new {subject.kind} of this name in this namespace takes them over with "
            "spec.adoptRetainedState: true."
        )
        if found.namespace_terminating:
            yield "The namespace is being deleted and takes them with it: save them first."
        return
    yield f"Lost: {counts}. Save them first if you may need them:"
    if kept is None or kept.states:
        yield f"  {where} -l {state} -o yaml > {subject.name}-state.yaml"
    if kept is None or kept.backups:
        yield f"  {where} -l {backups} -o yaml > {subject.name}-backups.yaml"
    if kept is None or kept.inputs:
        yield f"  {where} {' '.join(inputs)} --ignore-not-found -o yaml > {subject.name}-inputs.yaml"
    yield "Kept: nothing of CAPTF's. captf retain keeps all of it."


def _common_effect(found: Examination) -> Effect | None:
    """What stands before either release, whatever the facts are."""
    if not found.deleting:
        return Effect(False, "not before the object is deleted")
    if found.paused_by:
        return Effect(False, "not while the object is paused")
    if found.active is not None:
        return Effect(False, f"not before {found.active.op} Job {found.active.name} has ended")
    if found.facts is None:
        return Effect(False, f"that cannot be told without the permission to {', '.join(found.not_read)}")
    return None


def _at_the_next_pass(found: Examination, cause: str) -> Effect:
    because = f" ({cause})" if cause else ""
    if found.lease is not None:
        return Effect(True, f"as soon as Job {found.lease.holder} gave up its run lease{because}")
    return Effect(True, f"at once, with the manager's next pass{because}")


def _refuse(found: Examination, verb: Verb) -> None:
    subject = found.subject
    name = f"{subject.resource} {subject.name}"
    if keys.MANAGED_BY in annotations_of(found.obj):
        raise click.ClickException(
            f"{name} is externally managed ({keys.MANAGED_BY}): CAPTF lets it go without a destroy anyway"
        )
    if found.deleting and not found.held_by_captf:
        raise click.ClickException(f"CAPTF has let {name} go already; captf why says what still keeps it")


def _is_set(found: Examination, verb: Verb) -> bool:
    if verb == "retain":
        return found.spec.deletion_policy == "Retain"
    return annotations_of(found.obj).get(keys.ABANDON_INFRASTRUCTURE) == found.subject.uid


def _setting(found: Examination, verb: Verb) -> str:
    if verb == "retain":
        return "spec.deletionPolicy: Retain"
    return f"{keys.ABANDON_INFRASTRUCTURE}={found.subject.uid}"


def _patch(found: Examination, verb: Verb) -> Object:
    # The UID makes the API server refuse when the object was made anew since it was looked at.
    metadata: Object = {"uid": found.subject.uid}
    if verb == "retain":
        return {"metadata": metadata, "spec": {"deletionPolicy": "Retain"}}
    return {"metadata": {**metadata, "annotations": {keys.ABANDON_INFRASTRUCTURE: found.subject.uid}}}


__all__ = ["Effect", "Wish", "abandon_effect", "ask", "preview", "release", "retain_effect"]
