"""The reconciler of the three workload kinds: one shared pass, an adapter for what differs."""

from __future__ import annotations

from captf_controllers.api import conditions as types
from captf_controllers.api import finalizers
from captf_controllers.api.kinds import API_VERSION
from captf_controllers.api.labels import is_watched
from captf_controllers.api.typed import spec_of, status_of
from captf_controllers.deletion import progress, ways_out
from captf_controllers.observability.conditions import Conditions
from captf_controllers.observability.refusals import is_refusal, words
from captf_controllers.reconcile import passes, preamble
from captf_controllers.reconcile.adapter import Adapter
from captf_controllers.reconcile.bookkeeping import Books
from captf_controllers.reconcile.environment import Environment
from captf_controllers.reconcile.finish import finish
from captf_controllers.reconcile.own_writes import OwnWrites
from captf_controllers.reconcile.scope import Outcome, Scope
from captf_runtime.client.errors import ApiError, NotFound
from captf_runtime.controller import Context, Request, Result
from captf_runtime.objects import has_finalizer, is_deleting


class WorkloadReconciler:
    """Reconciles one of TerraformCluster, TerraformMachine and TerraformMachinePool.

    Expected flow: a controller hands it requests; each runs one pass over the object as the cache knows it.
    It guarantees one status write per pass, that nothing runs on an object of another watch filter, and that
    an object that is gone leaves no metric series behind.
    """

    def __init__(self, env: Environment, adapter: Adapter) -> None:
        self._env = env
        self._adapter = adapter
        self._own_writes = OwnWrites(env.cache, adapter.kind)

    def reconcile(self, ctx: Context, request: Request) -> Result | None:
        """Run one pass. Raises the pass's error after its status was written as far as it came."""
        adapter, env = self._adapter, self._env
        kind = adapter.kind
        try:
            obj = self._own_writes.latest(request.namespace, request.name)
        except NotFound:
            env.metrics.remove_object(kind.kind, request.namespace, request.name)
            return None
        if not is_watched(obj, env.options.watch_filter):
            # It may have been this manager's until its label changed.
            env.metrics.remove_object(kind.kind, request.namespace, request.name)
            return None
        if is_deleting(obj) and not has_finalizer(obj, finalizers.finalizer_of(kind.kind)):
            env.metrics.remove_object(kind.kind, request.namespace, request.name)
            return None
        obj = {**obj, "apiVersion": API_VERSION, "kind": kind.kind}
        scope = Scope(
            env=env,
            ctx=ctx,
            client=env.api.bind(ctx),
            adapter=adapter,
            obj=obj,
            now=env.clock.now(),
            spec=spec_of(obj, adapter.spec_type),
            status=status_of(obj, adapter.status_type),
        )
        outcome = self._run(scope)
        self._own_writes.wrote(scope.written)
        if scope.deferred_error is not None:
            raise scope.deferred_error
        return Result(requeue_after=outcome.requeue_after) if outcome.requeue_after > 0 else None

    def _run(self, scope: Scope) -> Outcome:
        entered = preamble.enter(scope)
        if isinstance(entered, Outcome):
            return entered
        found = scope.conditions
        books: list[Books] = []
        try:
            outcome = passes.run(scope, paused=entered.paused, gathered_into=books)
        except Exception as error:
            # The conditions reached so far are worth writing whatever went wrong; the error goes on.
            _keep_what_deleting_told(scope, found)
            _tell_of_refusal(scope, error)
            try:
                finish(scope, found, books[0] if books else None, Outcome())
            except ApiError as second:
                raise ExceptionGroup(
                    "the pass failed, and so did its status patch", [error, second]
                ) from None
            raise
        outcome = finish(scope, found, books[0] if books else None, outcome)
        if not entered.paused and not scope.deleting and scope.config is not None:
            scope.adapter.after(scope, scope.config)
        return outcome


def _keep_what_deleting_told(scope: Scope, found: Conditions) -> None:
    """A pass that failed before it knew what the deletion waits for takes nothing back of what was told."""
    told, now = found.get(types.DELETING), scope.conditions.get(types.DELETING)
    if told is not None and now is not None and told.status == now.status and not now.message:
        scope.conditions = scope.conditions.put(told)


def _tell_of_refusal(scope: Scope, error: Exception) -> None:
    """A deletion that fails at the same step again and again says so.

    Unless something is told that still holds: ways out of a wait, or a Job that this pass did not see to its end.
    """
    if not scope.deleting or not isinstance(error, ApiError) or not is_refusal(error):
        return
    condition = scope.conditions.get(types.DELETING)
    told = condition.message if condition is not None else ""
    if not told or (ways_out.HEADING not in told and scope.status.active_job is None):
        scope.observe(progress.failed(words(error)))
