"""What an object says when the API server refuses a Job, or what a Job needs to run: one place for all operations.

Until the Job exists a live object says it on the condition of the operation, and a deleting one on ``Deleting``,
where the ways out are. Once it exists the condition of the operation says it of either: the Job is shown as the
active one, and nothing else would tell why it does not run.
"""

from __future__ import annotations

from captf_controllers.api import conditions as types
from captf_controllers.api import reasons
from captf_controllers.api.workspace import Condition, Operation
from captf_controllers.deletion import obstacles
from captf_controllers.jobs.operations import condition_type
from captf_controllers.jobs.reporting import cannot_start_observation
from captf_controllers.jobs.views import JobView
from captf_controllers.observability.conditions import job_in_message
from captf_controllers.observability.observation import Observation
from captf_controllers.observability.refusals import LET_THROUGH, is_refusal, words
from captf_controllers.reconcile.scope import Scope
from captf_runtime.client.errors import ApiError


def tell(
    scope: Scope, operation: Operation, error: ApiError, *, job: str = "", abandonable: bool = False
) -> None:
    """Say that a start of ``operation`` ended in ``error``; the next pass that gets through takes it back.

    ``job`` is the Job when it exists already, and what was refused is its per-run Secret or the record of what it
    runs. ``abandonable`` says that an abandon of the deletion acts all the same. Failures that are no refusals say
    nothing on a live object: the next pass may well not meet them again.
    """
    why = words(error)
    if scope.deleting and operation in ("destroy", "restore") and error.code:
        scope.observe(obstacles.not_started(scope.subject, operation, why, abandonable=abandonable))
    if not is_refusal(error):
        return
    if job:
        detail = f"what it runs cannot be recorded: {why}. It is made anew every minute; to let it run, {LET_THROUGH}"
        scope.observe(cannot_start_observation(operation, job, detail))
    elif not scope.deleting:
        text = (
            f"{obstacles.cannot_start(operation, why)}. It is tried again; to let it through, {LET_THROUGH}"
        )
        scope.observe(Observation(condition_type(operation), types.FALSE, reasons.JOB_CANNOT_START, text))


def stands(told: Condition | None, active: JobView | None) -> bool:
    """Whether what an earlier pass told is about the Job that is still there and waits."""
    if told is None or active is None or told.reason != reasons.JOB_CANNOT_START:
        return False
    return job_in_message(told.message) == active.name
