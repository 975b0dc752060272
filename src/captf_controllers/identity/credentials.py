"""Preparing an object's credentials: identity, mirror, runner access, each with its condition.

A refusal is an answer and not an error: it is reported, and no Job starts. An error is handed back beside the
observations, because bookkeeping goes on and only the end of the pass raises it.
"""

from __future__ import annotations

from dataclasses import dataclass

from captf_controllers.api import conditions as types
from captf_controllers.api import names, reasons
from captf_controllers.api.conditions import FALSE, TRUE, UNKNOWN
from captf_controllers.api.identity import TerraformClusterIdentitySpec
from captf_controllers.api.kinds import TERRAFORM_CLUSTER_IDENTITY
from captf_controllers.api.owner import Owner
from captf_controllers.api.typed import spec_of
from captf_controllers.api.workspace import IdentityRef
from captf_controllers.identity.allowed import namespace_allowed
from captf_controllers.identity.mirror import (
    MirrorConflict,
    MirrorResult,
    drop_mirror_owner,
    ensure_mirror,
    mirrored_identity,
    remove_mirror,
    secret_bytes,
)
from captf_controllers.identity.reference import is_local_secret
from captf_controllers.identity.runner_access import ForeignBinding, NotOptedIn, ensure_runner_access
from captf_controllers.observability.events import Events
from captf_controllers.observability.observation import Observation
from captf_controllers.observability.refusals import LET_THROUGH, is_refusal, words
from captf_runtime.client import ApiError, NotFound, Reader
from captf_runtime.client.verbs import Verbs
from captf_runtime.clock import SYSTEM_CLOCK, Clock
from captf_runtime.log import get_logger
from captf_runtime.objects import SECRET, Object, name_of, owner_references

__all__ = ["REFUSALS", "Credentials", "CredentialsRequest", "leave_mirror", "prepare_credentials"]

logger = get_logger(__name__)

REFUSALS = frozenset({reasons.NAMESPACE_NOT_ALLOWED, reasons.IDENTITY_NOT_FOUND})
"""Reasons of IdentityAllowed that a waiting destroy reports as `IdentityNotAllowed`, and only these."""


@dataclass(frozen=True, slots=True)
class CredentialsRequest:
    """What is to be prepared.

    Args:
        owner: the object.
        reference: its effective identity reference, None when there is none.
        service_account: the effective `jobs.serviceAccountName`.
        job_running: whether a Job of the object runs; then a refusal is reported and nothing is taken away.
        mirrors: metadata of the mirrors of the namespace, from a cache: the object leaves those of identities
            that it does not use any more. Empty leaves them to cleanup.
    """

    owner: Owner
    reference: IdentityRef | None
    service_account: str
    job_running: bool = False
    mirrors: tuple[Object, ...] = ()


@dataclass(frozen=True, slots=True)
class Credentials:
    """What came of it.

    `observations` holds IdentityAllowed and CredentialsMirrored, and RunnerRBACReady once that was reached.
    `secret_name` is the Secret that Jobs mount, "" unless ready. `error` is what the pass has to raise at its
    end. `owner_repaired` says that a reference to an earlier object of the same name was replaced on the
    mirror.
    """

    observations: tuple[Observation, ...]
    secret_name: str = ""
    service_account: str = ""
    error: Exception | None = None
    owner_repaired: bool = False

    @property
    def ready(self) -> bool:
        """Whether a Job may start."""
        return len(self.observations) == 3 and self.first_not_true is None

    @property
    def first_not_true(self) -> Observation | None:
        """The first of the three conditions that is not True, None when all are."""
        return next((item for item in self.observations if item.status != TRUE), None)

    @property
    def refused(self) -> bool:
        """Whether the identity is missing or does not allow the namespace."""
        return any(
            item.type == types.IDENTITY_ALLOWED and item.status == FALSE and item.reason in REFUSALS
            for item in self.observations
        )


def prepare_credentials(
    client: Verbs,
    request: CredentialsRequest,
    events: Events,
    *,
    identities: Reader | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Credentials:
    """Check the identity, and make sure of the mirror and of the runner's access.

    Expected flow: on every pass of a live object, and of a deleting one right before a Job starts.

    Guarantees: never raises for what the API server answers; no write while the identity is refused but the
    removal of the mirror; no write to the source Secret, ever.

    Args:
        client: for live reads and for writes.
        events: of the object.
        identities: where to read the TerraformClusterIdentity; the client itself when None.
    """
    if is_local_secret(request.reference):
        credentials = _local(client, request)
    else:
        credentials = _mirrored(client, request, events, identities or client, clock)
    if request.mirrors and not request.job_running and credentials.error is None:
        _leave_other_mirrors(client, request, events)
    if credentials.first_not_true is not None:
        return credentials
    return _with_runner_access(client, request, credentials, clock)


def _local(client: Verbs, request: CredentialsRequest) -> Credentials:
    assert request.reference is not None
    name, namespace = request.reference.name, request.owner.namespace
    absent = _refused(FALSE, reasons.SECRET_NOT_FOUND, f"Secret {namespace}/{name} does not exist")
    if not names.may_name_object(name):
        return absent
    try:
        client.get(SECRET, name, namespace, metadata_only=True)
    except NotFound:
        return absent
    except ApiError as error:
        return _refused(UNKNOWN, reasons.IDENTITY_CHECK_FAILED, str(error), error)
    return Credentials(
        (
            Observation(types.IDENTITY_ALLOWED, TRUE, reasons.LOCAL_SECRET),
            Observation(
                types.CREDENTIALS_MIRRORED,
                TRUE,
                reasons.MIRRORED,
                f"the Secret {name} of this namespace is used in place",
            ),
        ),
        secret_name=name,
    )


def _mirrored(
    client: Verbs, request: CredentialsRequest, events: Events, identities: Reader, clock: Clock
) -> Credentials:
    reference, namespace = request.reference, request.owner.namespace
    if reference is None or not reference.name:
        return _refused(FALSE, reasons.IDENTITY_NOT_FOUND, "the object names no identity and inherits none")
    identity = reference.name
    try:
        spec = _read_identity(identities, identity) if names.may_name_object(identity) else None
        if spec is None:
            _revoke(client, request, identity, events)
            message = f"TerraformClusterIdentity {identity} does not exist"
            return _refused(FALSE, reasons.IDENTITY_NOT_FOUND, message)
        if not namespace_allowed(client, spec, namespace):
            _revoke(client, request, identity, events)
            message = f"TerraformClusterIdentity {identity} does not allow namespace {namespace}"
            return _refused(FALSE, reasons.NAMESPACE_NOT_ALLOWED, message)
        source = _read_source(client, spec)
    except (ApiError, ValueError) as error:
        return _refused(UNKNOWN, reasons.IDENTITY_CHECK_FAILED, str(error), error)
    if source is None:
        message = f"{_source_name(spec)} of TerraformClusterIdentity {identity} does not exist"
        return _refused(FALSE, reasons.SECRET_NOT_FOUND, message)
    missing = missing_keys(spec, source)
    if missing:
        message = f"{_source_name(spec)} lacks the required keys {', '.join(missing)}"
        return _refused(FALSE, reasons.CREDENTIALS_INCOMPLETE, message)
    allowed = Observation(types.IDENTITY_ALLOWED, TRUE, reasons.IDENTITY_ALLOWED)
    try:
        mirror = ensure_mirror(client, identity, source, request.owner, clock)
    except (ApiError, MirrorConflict) as error:
        text = _failure("The mirror", error)
        failed = Observation(types.CREDENTIALS_MIRRORED, FALSE, reasons.MIRROR_FAILED, text)
        # A conflict of names is the namespace's to solve; trying again would change nothing.
        return Credentials((allowed, failed), error=None if isinstance(error, MirrorConflict) else error)
    if mirror.created:
        events.normal(
            reasons.EVENT_MIRROR_CREATED,
            f"Secret {mirror.name} now mirrors the credentials of TerraformClusterIdentity {identity}",
        )
    mirrored = Observation(types.CREDENTIALS_MIRRORED, TRUE, reasons.MIRRORED)
    return Credentials((allowed, mirrored), secret_name=mirror.name, owner_repaired=mirror.repaired)


def _with_runner_access(
    client: Verbs, request: CredentialsRequest, credentials: Credentials, clock: Clock
) -> Credentials:
    type_ = types.RUNNER_RBAC_READY
    error: Exception | None = None
    try:
        refusal = ensure_runner_access(
            client,
            request.owner.namespace,
            request.service_account,
            job_running=request.job_running,
            clock=clock,
        )
    except (ApiError, ForeignBinding) as failure:
        error = failure
        access = Observation(type_, FALSE, reasons.RBAC_FAILED, _failure("The runner's access", failure))
    else:
        if isinstance(refusal, NotOptedIn):
            access = Observation(type_, FALSE, reasons.SERVICE_ACCOUNT_NOT_OPTED_IN, refusal.message)
        else:
            access = Observation(type_, TRUE, reasons.RBAC_READY)
    return Credentials(
        (*credentials.observations, access),
        secret_name=credentials.secret_name if access.status == TRUE else "",
        service_account=request.service_account if access.status == TRUE else "",
        error=error,
        owner_repaired=credentials.owner_repaired,
    )


def _failure(what: str, error: Exception) -> str:
    """What a condition says of a failure: of a refusal, who refused, and the way out."""
    if isinstance(error, ApiError) and is_refusal(error):
        return f"{what} is refused: {words(error)}. It is tried again; to let it through, {LET_THROUGH}"
    return str(error)


def missing_keys(spec: TerraformClusterIdentitySpec, source: Object) -> list[str]:
    """The required keys that the source Secret lacks, sorted. Values are never looked at."""
    present = secret_bytes(source)
    return sorted(key for key in spec.required_keys or () if key not in present)


def _read_identity(reader: Reader, name: str) -> TerraformClusterIdentitySpec | None:
    try:
        return spec_of(reader.get(TERRAFORM_CLUSTER_IDENTITY, name), TerraformClusterIdentitySpec)
    except NotFound:
        return None


def _read_source(client: Verbs, spec: TerraformClusterIdentitySpec) -> Object | None:
    if spec.secret_ref is None:
        return None
    try:
        return client.get(SECRET, spec.secret_ref.name, spec.secret_ref.namespace)
    except NotFound:
        return None


def _source_name(spec: TerraformClusterIdentitySpec) -> str:
    if spec.secret_ref is None:
        return "spec.secretRef is not set: the Secret"
    return f"Secret {spec.secret_ref.namespace}/{spec.secret_ref.name}"


def _refused(status: types.Status, reason: str, message: str, error: Exception | None = None) -> Credentials:
    return Credentials(
        (
            Observation(types.IDENTITY_ALLOWED, status, reason, message),
            Observation(
                types.CREDENTIALS_MIRRORED,
                UNKNOWN,
                reasons.MIRROR_PENDING,
                f"IdentityAllowed is {status} ({reason})",
            ),
        ),
        error=error,
    )


def _revoke(client: Verbs, request: CredentialsRequest, identity: str, events: Events) -> None:
    """Remove the mirror of an identity that is refused here."""
    namespace = request.owner.namespace
    if request.job_running or not remove_mirror(client, namespace, identity):
        return
    events.normal(
        reasons.EVENT_MIRROR_REMOVED,
        f"Secret {names.credential_mirror(identity)}, the mirror of TerraformClusterIdentity {identity}, was "
        f"removed from namespace {namespace}: the identity does not exist or does not allow it",
    )


def _leave_other_mirrors(client: Verbs, request: CredentialsRequest, events: Events) -> None:
    """After a change of identity: the old credentials must not stay readable on this object's account."""
    reference = request.reference
    current = "" if reference is None or is_local_secret(reference) else reference.name
    for mirror in request.mirrors:
        identity = mirrored_identity(mirror)
        if not identity or identity == current:
            continue
        if any(owner.uid == request.owner.uid for owner in owner_references(mirror)):
            try:
                leave_mirror(client, request.owner.namespace, request.owner.uid, identity, events)
            except ApiError as error:
                logger.warning("mirror not left", mirror=name_of(mirror), err=error)


def leave_mirror(client: Verbs, namespace: str, uid: str, identity: str, events: Events) -> MirrorResult:
    """Take the object off the mirror of an identity, and the mirror away with its last user.

    Raises:
        ApiError: a request failed.
    """
    result = drop_mirror_owner(client, namespace, uid, identity)
    if result is MirrorResult.DELETED:
        events.normal(
            reasons.EVENT_MIRROR_REMOVED,
            f"Secret {names.credential_mirror(identity)}, the mirror of TerraformClusterIdentity {identity}, was "
            f"removed from namespace {namespace}: its last user is gone",
        )
    return result
