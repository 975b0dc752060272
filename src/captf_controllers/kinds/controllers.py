"""The controllers of the workload kinds: which events lead to which passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from captf_controllers.api import labels
from captf_controllers.api.kinds import (
    CLUSTER,
    TERRAFORM_CLUSTER,
    TERRAFORM_CLUSTER_IDENTITY,
    TERRAFORM_MACHINE,
    TERRAFORM_MACHINE_POOL,
    TERRAFORM_MACHINE_TEMPLATE,
    TERRAFORM_PLAN,
)
from captf_controllers.identity.reconciler import IdentityReconciler, identity_requests
from captf_controllers.identity.sources import SourceWatches
from captf_controllers.kinds import watches
from captf_controllers.kinds.cluster import ClusterAdapter
from captf_controllers.kinds.machine import MachineAdapter
from captf_controllers.kinds.machine_template import MachineTemplateReconciler
from captf_controllers.kinds.machinepool import MachinePoolAdapter
from captf_controllers.reconcile.adapter import Adapter
from captf_controllers.reconcile.environment import Environment
from captf_controllers.reconcile.reconciler import WorkloadReconciler
from captf_runtime.cache import Cache
from captf_runtime.client import Client
from captf_runtime.controller import (
    Controller,
    EventHandler,
    Predicate,
    Request,
    Watch,
    enqueue_mapped,
    enqueue_owner,
    predicates,
)
from captf_runtime.objects import CONFIG_MAP, JOB, NAMESPACE, SECRET, Kind

MANAGED_SELECTOR = f"{labels.MANAGED}=true"
JOB_SELECTOR = f"{MANAGED_SELECTOR},{labels.OWNER_KIND}"
VARIABLES_SELECTOR = f"{labels.VARIABLES}=true"


@dataclass(frozen=True, slots=True)
class Caches:
    """The two caches of the manager. ``variables`` holds the metadata of labelled variables sources.

    ``namespace`` restricts every informer of a namespaced kind; empty means all namespaces.
    """

    main: Cache
    variables: Cache
    namespace: str = ""

    def watch(
        self,
        kind: Kind,
        handler: EventHandler,
        *passing: Predicate,
        variables: bool = False,
        label_selector: str = "",
        metadata_only: bool = False,
    ) -> Watch:
        """A watch of one kind under the namespace restriction; all of ``passing`` must let an event by."""
        return Watch(
            kind,
            handler,
            passing,
            cache=self.variables if variables else self.main,
            options={
                "namespace": self.namespace if kind.namespaced else "",
                "label_selector": label_selector,
                "metadata_only": metadata_only,
            },
        )


class _ClusterAdapterType(Protocol):
    """Only for reading: the three adapters in one list."""

    def __call__(self) -> Adapter: ...


ADAPTERS: dict[Kind, _ClusterAdapterType] = {
    TERRAFORM_CLUSTER: ClusterAdapter,  # type: ignore[dict-item]
    TERRAFORM_MACHINE: MachineAdapter,  # type: ignore[dict-item]
    TERRAFORM_MACHINE_POOL: MachinePoolAdapter,  # type: ignore[dict-item]
}


def workload_controllers(env: Environment, caches: Caches, concurrency: dict[Kind, int]) -> list[Controller]:
    """One controller for each workload kind. ``concurrency`` gives the workers by kind."""
    return [_controller(env, caches, kind, concurrency[kind]) for kind in ADAPTERS]


def identity_controller(env: Environment, caches: Caches, concurrency: int) -> Controller:
    """The controller of TerraformClusterIdentity: it reports on the source Secret and on who uses it.

    The watch filter applies to identities as to every other kind.
    """
    return Controller(
        TERRAFORM_CLUSTER_IDENTITY.kind.lower(),
        for_=TERRAFORM_CLUSTER_IDENTITY,
        reconciler=IdentityReconciler(
            env.api.bind, caches.main, env.recorder, env.clock, watch_filter=env.options.watch_filter
        ),
        cache=caches.main,
        watches=[
            caches.watch(
                SECRET, enqueue_mapped(identity_requests), label_selector=MANAGED_SELECTOR, metadata_only=True
            )
        ],
        predicates=_own_changes(env),
        concurrency=concurrency,
    )


def machine_template_controller(env: Environment, caches: Caches, concurrency: int) -> Controller:
    """The controller of TerraformMachineTemplate: it publishes the capacity of a machine."""
    return Controller(
        TERRAFORM_MACHINE_TEMPLATE.kind.lower(),
        for_=TERRAFORM_MACHINE_TEMPLATE,
        reconciler=MachineTemplateReconciler(
            env.api.bind, env.recorder, env.clock, watch_filter=env.options.watch_filter
        ),
        cache=caches.main,
        predicates=_own_changes(env),
        concurrency=concurrency,
        options=_restricted(caches),
    )


def source_watches(
    env: Environment, client: Client, caches: Caches, identities: Controller, workloads: Sequence[Controller]
) -> SourceWatches:
    """The watches of the Secrets that identities name: a new key wakes the identity and all who use it.

    Args:
        client: for the watches.
        identities, workloads: the controllers that are woken.
    """
    users = [
        (controller, watches.users_of_identity(caches.main, controller.kind)) for controller in workloads
    ]

    def wake(identity: str) -> None:
        identities.enqueue(Request("", identity))
        for controller, requests in users:
            for request in requests({"metadata": {"name": identity}}):
                controller.enqueue(request)

    made = SourceWatches(client, wake, env.clock)
    caches.main.informer(TERRAFORM_CLUSTER_IDENTITY).add_handler(made, name="identity-sources")
    return made


def _own_changes(env: Environment) -> list[Predicate]:
    """What passes of the events of a kind whose status is its controller's alone."""
    passing = [predicates.generation_changed()]
    if env.options.watch_filter:
        passing.append(predicates.label_selector(f"{labels.WATCH_FILTER}={env.options.watch_filter}"))
    return passing


def _restricted(caches: Caches) -> dict[str, object]:
    return {"namespace": caches.namespace} if caches.namespace else {}


def _controller(env: Environment, caches: Caches, kind: Kind, concurrency: int) -> Controller:
    return Controller(
        kind.kind.lower(),
        for_=kind,
        reconciler=WorkloadReconciler(env, ADAPTERS[kind]()),
        cache=caches.main,
        watches=_watches(caches, kind),
        concurrency=concurrency,
        options=_restricted(caches),
    )


def _watches(caches: Caches, kind: Kind) -> Sequence[Watch]:
    main, watch = caches.main, caches.watch

    def managed_secrets(handler: EventHandler) -> Watch:
        # Metadata only: no payload of a state or credential is ever held by an informer.
        return watch(SECRET, handler, label_selector=MANAGED_SELECTOR, metadata_only=True)

    owner = watches.OWNER_OF[kind]
    named = enqueue_mapped(watches.referenced_infrastructure(owner, kind))
    common = [
        watch(JOB, enqueue_owner(kind), label_selector=JOB_SELECTOR),
        managed_secrets(enqueue_mapped(watches.owned_secret(kind))),
        watch(owner, named, watches.cluster_changed) if owner == CLUSTER else watch(owner, named),
        watch(
            TERRAFORM_CLUSTER_IDENTITY,
            enqueue_mapped(watches.users_of_identity(main, kind)),
            watches.identity_changed,
        ),
        watch(
            NAMESPACE,
            enqueue_mapped(watches.objects_in_namespace(main, kind)),
            predicates.labels_changed(),
            metadata_only=True,
        ),
        *(
            watch(
                source,
                enqueue_mapped(watches.users_of_source(main, kind, source)),
                variables=True,
                label_selector=VARIABLES_SELECTOR,
                metadata_only=True,
            )
            for source in (CONFIG_MAP, SECRET)
        ),
    ]
    if kind != TERRAFORM_MACHINE:
        common.append(watch(TERRAFORM_PLAN, enqueue_owner(kind)))
    if kind == TERRAFORM_CLUSTER:
        gone = enqueue_mapped(watches.cluster_of_member(main))
        members = (TERRAFORM_MACHINE, TERRAFORM_MACHINE_POOL)
        return [*common, *(watch(member, gone, watches.deleted) for member in members)]
    return [
        *common,
        watch(CLUSTER, enqueue_mapped(watches.members_of_cluster(main, kind)), watches.cluster_changed),
        watch(
            TERRAFORM_CLUSTER,
            enqueue_mapped(watches.members_of_terraform_cluster(main, kind)),
            watches.inherited_changed,
        ),
        managed_secrets(enqueue_mapped(watches.cluster_state(main, kind))),
    ]
