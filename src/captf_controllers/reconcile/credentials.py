"""Preparing what a Job runs with: identity check, mirror, ServiceAccount, RoleBinding."""

from __future__ import annotations

from captf_controllers.api import labels
from captf_controllers.api.owner import Owner
from captf_controllers.identity.credentials import Credentials, CredentialsRequest, prepare_credentials
from captf_controllers.observability.events import Events
from captf_controllers.reconcile.config import EffectiveConfig
from captf_controllers.reconcile.scope import Scope
from captf_runtime.objects import SECRET

#: The credential mirrors of a namespace, whatever their identity.
MIRRORS = f"{labels.MIRRORED}=true"


def prepare(scope: Scope, config: EffectiveConfig, *, job_running: bool = False) -> Credentials:
    """Prepare the credentials and show how far that came in the three credential conditions.

    A live object does so on every pass, a deleting one only when a Job is about to start. Failures are in the
    result, never raised: they block starts and nothing else.
    """
    prepared = prepare_credentials(
        scope.client,
        CredentialsRequest(
            owner=Owner.of(scope.obj),
            reference=config.identity,
            service_account=config.jobs.service_account,
            job_running=job_running,
            mirrors=tuple(scope.env.cache.list(SECRET, scope.namespace, label_selector=MIRRORS)),
        ),
        Events(scope.env.recorder, scope.obj),
        clock=scope.env.clock,
    )
    scope.observe(*prepared.observations)
    return prepared
