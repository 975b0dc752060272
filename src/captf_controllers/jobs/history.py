"""Which finished Jobs are kept, and the deletion of the others."""

from __future__ import annotations

from collections.abc import Iterable

from captf_controllers.jobs.failures import DEFAULT_HISTORY_LIMIT
from captf_controllers.jobs.views import JobPhase, JobView, newest_created_first
from captf_runtime.client.errors import Conflict, NotFound
from captf_runtime.client.verbs import Verbs
from captf_runtime.objects import JOB

__all__ = ["prune", "prune_choice"]


def prune_choice(
    views: Iterable[JobView], successful_limit: int | None, failed_limit: int | None
) -> list[JobView]:
    """The finished Jobs of one object that history has no room for.

    For each op on its own, newest created first: the first `successful_limit` successes and `failed_limit`
    failures stay (3 when unset). Always kept: the newest success, and the newest failure while no success of
    the op is newer. So the Job that the object's status names is never chosen: it is the newest of its op.
    The outcome here is Kubernetes' own. Running Jobs are never chosen.
    """
    limits = {
        JobPhase.SUCCEEDED: DEFAULT_HISTORY_LIMIT if successful_limit is None else successful_limit,
        JobPhase.FAILED: DEFAULT_HISTORY_LIMIT if failed_limit is None else failed_limit,
    }
    chosen: list[JobView] = []
    seen: dict[tuple[str, JobPhase], int] = {}
    for view in newest_created_first(views):
        if not view.is_finished:
            continue
        index = seen.get((view.op, view.phase), 0)
        seen[view.op, view.phase] = index + 1
        success_is_newer = (view.op, JobPhase.SUCCEEDED) in seen
        newest_of_its_kind = index == 0 and (view.phase is JobPhase.SUCCEEDED or not success_is_newer)
        if index >= limits[view.phase] and not newest_of_its_kind:
            chosen.append(view)
    return chosen


def prune(client: Verbs, views: Iterable[JobView]) -> None:
    """Delete the Jobs, their pods and Secrets after them in the background. One already gone is no error.

    Raises:
        ApiError: a deletion failed; the Jobs before it are gone.
    """
    for view in views:
        try:
            client.delete(JOB, view.name, view.namespace, propagation_policy="Background", uid=view.uid)
        except (NotFound, Conflict):
            continue
