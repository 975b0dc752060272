"""The controller of TerraformMachineTemplate: it publishes the capacity that scaling from zero reads.

No image is inspected, so what a machine of the template offers is what `spec.capacity` says, or nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from captf_controllers.api import conditions as types
from captf_controllers.api import reasons
from captf_controllers.api.conditions import TRUE
from captf_controllers.api.kinds import TERRAFORM_MACHINE_TEMPLATE
from captf_controllers.api.labels import is_watched
from captf_controllers.api.templates import TerraformMachineTemplateStatus
from captf_controllers.api.typed import status_of, to_object
from captf_controllers.observability.conditions import Conditions
from captf_controllers.observability.events import Events, EventSink
from captf_runtime.client import NotFound
from captf_runtime.client.patches import merge_from
from captf_runtime.client.verbs import Verbs
from captf_runtime.clock import SYSTEM_CLOCK, Clock
from captf_runtime.controller import Context, Request, Result
from captf_runtime.objects import (
    Object,
    generation_of,
    is_deleting,
    name_of,
    namespace_of,
)

__all__ = ["MachineTemplateReconciler"]

_NOT_DECLARED: Final = (
    "spec.capacity is not set, so the autoscaler cannot scale machines of this template from zero"
)


class MachineTemplateReconciler:
    """Reconciles one machine template. Its machines are never touched.

    Args:
        bind: gives the client of a pass. The template is read live: what an earlier version declared must not
            be written over a newer one.
        sink: where events go, None drops them.
        watch_filter: the label value that a template must bear, "" for any.
    """

    def __init__(
        self,
        bind: Callable[[Context], Verbs],
        sink: EventSink | None,
        clock: Clock = SYSTEM_CLOCK,
        *,
        watch_filter: str = "",
    ) -> None:
        self._bind = bind
        self._sink = sink
        self._watch_filter = watch_filter
        self._clock = clock

    def reconcile(self, ctx: Context, request: Request) -> Result | None:
        """Publish the capacity; nothing is done for a template that is gone or going.

        Raises:
            ApiError: the read or the write failed.
        """
        client = self._bind(ctx)
        try:
            template = client.get(TERRAFORM_MACHINE_TEMPLATE, request.name, request.namespace)
        except NotFound:
            return None
        if is_deleting(template):
            return None
        if not is_watched(template, self._watch_filter):
            return None
        before: Object = template.get("status") or {}
        after, declared = self._status(template, before)
        patch = merge_from(
            {"metadata": template["metadata"], "status": before},
            {"metadata": template["metadata"], "status": after},
            optimistic_lock=True,
        )
        if not patch:
            return None
        try:
            client.patch(
                TERRAFORM_MACHINE_TEMPLATE,
                name_of(template),
                patch,
                namespace_of(template),
                subresource="status",
            )
        except NotFound:
            return None
        if before.get("capacity") != after.get("capacity"):
            Events(self._sink, template).normal(reasons.EVENT_CAPACITY_RESOLVED, _note(declared))
        return None

    def _status(self, template: Object, before: Object) -> tuple[Object, Object]:
        declared: Object = (template.get("spec") or {}).get("capacity") or {}
        known = status_of(template, TerraformMachineTemplateStatus)
        conditions = Conditions.of(known.conditions).set(
            types.CAPACITY_RESOLVED,
            TRUE,
            reasons.CAPACITY_RESOLVED if declared else reasons.CAPACITY_NOT_DECLARED,
            "" if declared else _NOT_DECLARED,
            now=self._clock.now(),
            generation=generation_of(template),
        )
        written = to_object(TerraformMachineTemplateStatus(conditions=conditions.items))
        after = {**before, "conditions": written["conditions"]}
        for name in ("capacity", "capacitySource"):
            after.pop(name, None)
        if declared:
            after |= {"capacity": declared, "capacitySource": {"source": "Spec"}}
        return after, declared


def _note(declared: Object) -> str:
    if not declared:
        return _NOT_DECLARED
    offered = ", ".join(f"{resource} {declared[resource]}" for resource in sorted(declared))
    return f"A machine of this template offers {offered} (spec.capacity)"
