"""The controller of TerraformClusterIdentity. It copies nothing: it reports.

Each pass reads the source Secret, sets `Ready`, and lists in `status.namespaces` where a mirror of the
identity is in use. The one write that it ever makes to a source Secret takes an owner reference off that
would let the garbage collector delete the operator's credentials together with the identity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from captf_controllers.api import conditions as types
from captf_controllers.api import names, reasons
from captf_controllers.api.conditions import FALSE, TRUE
from captf_controllers.api.identity import TerraformClusterIdentitySpec, TerraformClusterIdentityStatus
from captf_controllers.api.kinds import GROUP, TERRAFORM_CLUSTER_IDENTITY
from captf_controllers.api.labels import MIRRORED, is_watched
from captf_controllers.api.typed import spec_of, status_of, to_object
from captf_controllers.identity.credentials import missing_keys
from captf_controllers.identity.mirror import is_mirror_of, mirrored_identity
from captf_controllers.identity.usage import find_users, users_in
from captf_controllers.observability.conditions import Conditions
from captf_controllers.observability.events import Events, EventSink
from captf_controllers.observability.observation import Observation
from captf_runtime.client import NotFound, Reader
from captf_runtime.client.verbs import Verbs
from captf_runtime.clock import SYSTEM_CLOCK, Clock
from captf_runtime.controller import Context, Request, Result
from captf_runtime.log import get_logger
from captf_runtime.objects import (
    SECRET,
    Object,
    generation_of,
    is_deleting,
    name_of,
    namespace_of,
    owner_references,
    resource_version_of,
    uid_of,
)

__all__ = ["IdentityReconciler", "identity_requests", "ready_observation", "used_namespaces"]

logger = get_logger(__name__)

READ_SECONDS: Final = 15.0
RECHECK_READY_SECONDS: Final = 300.0
RECHECK_FAILED_SECONDS: Final = 30.0
MAX_NAMESPACES: Final = 1000
"""What the schema of `status.namespaces` takes; one more would make the whole status write fail."""


class IdentityReconciler:
    """Reconciles one identity.

    Args:
        bind: gives the client of a pass, which reads live and writes.
        cache: where identities, mirrors (metadata of Secrets labelled as such) and the objects that use them
            are read.
        sink: where events go, None drops them.
        watch_filter: the label value that an identity must bear, "" for any; a mirror wakes others too.
    """

    def __init__(
        self,
        bind: Callable[[Context], Verbs],
        cache: Reader,
        sink: EventSink | None,
        clock: Clock = SYSTEM_CLOCK,
        *,
        watch_filter: str = "",
    ) -> None:
        self._bind = bind
        self._cache = cache
        self._sink = sink
        self._clock = clock
        self._watch_filter = watch_filter

    def reconcile(self, ctx: Context, request: Request) -> Result | None:
        """Report on the identity; nothing is done for one that is gone or going.

        Raises:
            ApiError: a read or write failed.
        """
        try:
            identity = self._cache.get(TERRAFORM_CLUSTER_IDENTITY, request.name)
        except NotFound:
            return None
        if is_deleting(identity):
            return None
        if not is_watched(identity, self._watch_filter):
            return None
        client = self._bind(ctx)
        spec = spec_of(identity, TerraformClusterIdentitySpec)
        source = _read_source(client, spec)
        if source is not None:
            _disown(client, identity, source)
        ready = ready_observation(spec, source)
        self._report(client, identity, ready, used_namespaces(self._cache, name_of(identity)))
        return Result(requeue_after=RECHECK_READY_SECONDS if ready.status == TRUE else RECHECK_FAILED_SECONDS)

    def _report(
        self, client: Verbs, identity: Object, ready: Observation, namespaces: tuple[str, ...]
    ) -> None:
        before = status_of(identity, TerraformClusterIdentityStatus)
        conditions = Conditions.of(before.conditions)
        was = conditions.status(types.READY)
        conditions = conditions.set(
            ready.type,
            ready.status,
            ready.reason,
            ready.message,
            now=self._clock.now(),
            generation=generation_of(identity),
        )
        after = msgspec.structs.replace(before, conditions=conditions.items, namespaces=namespaces or None)
        if after != before:
            # A merge patch replaces lists whole, and null takes a field away.
            status = {"namespaces": None, **to_object(after)}
            try:
                client.patch(
                    TERRAFORM_CLUSTER_IDENTITY, name_of(identity), {"status": status}, subresource="status"
                )
            except NotFound:
                return
        self._tell(identity, was, ready)

    def _tell(self, identity: Object, was: str | None, ready: Observation) -> None:
        events = Events(self._sink, identity)
        if ready.status == FALSE and was != FALSE:
            events.warning(reasons.EVENT_IDENTITY_SECRET_NOT_FOUND, ready.message)
        elif ready.status == TRUE and was == FALSE:
            # An identity that is new and complete is quiet.
            reference = spec_of(identity, TerraformClusterIdentitySpec).secret_ref
            name = f"{reference.namespace}/{reference.name}" if reference is not None else ""
            events.normal(reasons.EVENT_IDENTITY_SECRET_FOUND, f"Secret {name} is there and complete")


def ready_observation(spec: TerraformClusterIdentitySpec, source: Object | None) -> Observation:
    """The identity's `Ready`. Pure.

    Args:
        source: the Secret that the spec names, None when it does not exist.
    """
    if spec.secret_ref is None:
        message = "spec.secretRef is not set"
        return Observation(types.READY, FALSE, reasons.SECRET_NOT_FOUND, message)
    name = f"{spec.secret_ref.namespace}/{spec.secret_ref.name}"
    if source is None:
        return Observation(types.READY, FALSE, reasons.SECRET_NOT_FOUND, f"Secret {name} does not exist")
    missing = missing_keys(spec, source)
    if missing:
        message = f"Secret {name} lacks the required keys {', '.join(missing)}"
        return Observation(types.READY, FALSE, reasons.CREDENTIALS_INCOMPLETE, message)
    return Observation(types.READY, TRUE, reasons.SECRET_FOUND)


def used_namespaces(cache: Reader, identity: str) -> tuple[str, ...]:
    """Namespaces that hold the identity's mirror and an object that uses it: sorted, at most 1000.

    Both halves count: a Secret that anybody can create must not pin the identity for ever.

    Raises:
        ApiError: a list failed.
    """
    name = names.credential_mirror(identity)
    holding = sorted(
        namespace_of(mirror)
        for mirror in cache.list(SECRET, label_selector=f"{MIRRORED}=true")
        if name_of(mirror) == name and not is_deleting(mirror) and is_mirror_of(mirror, identity)
    )
    used: list[str] = []
    for namespace in holding:
        if any(True for _ in users_in(find_users(cache, namespace), identity)):
            used.append(namespace)
            if len(used) == MAX_NAMESPACES:
                break
    return tuple(used)


def identity_requests(secret: Object) -> Iterable[Request]:
    """The identity to reconcile when a Secret's metadata changed: the one that it mirrors, if any."""
    identity = mirrored_identity(secret)
    return (Request("", identity),) if identity else ()


def _read_source(client: Verbs, spec: TerraformClusterIdentitySpec) -> Object | None:
    if spec.secret_ref is None:
        return None
    try:
        return client.get(SECRET, spec.secret_ref.name, spec.secret_ref.namespace, timeout=READ_SECONDS)
    except NotFound:
        return None


def _disown(client: Verbs, identity: Object, source: Object) -> None:
    """Take an owner reference to this identity off the source Secret."""
    raw = list(source["metadata"].get("ownerReferences") or [])
    left = [
        entry
        for entry, reference in zip(raw, owner_references(source), strict=True)
        if not (
            reference.group == GROUP
            and reference.kind == TERRAFORM_CLUSTER_IDENTITY.kind
            and (reference.uid == uid_of(identity) or reference.name == name_of(identity))
        )
    ]
    if len(left) == len(raw):
        return
    patch: Object = {
        "metadata": {
            "resourceVersion": resource_version_of(source),
            # null when it was the only one: an empty list would be stored as such.
            "ownerReferences": left or None,
        }
    }
    client.patch(SECRET, name_of(source), patch, namespace_of(source))
    logger.info(
        "owner reference taken off the source Secret",
        namespace=namespace_of(source),
        name=name_of(source),
    )
