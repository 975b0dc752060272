"""Mirrors ConfigMaps: each one labelled as a source is copied into every namespace labelled as a target.

The copies follow their source: they change with it and go with it, and a copy that somebody changed or deleted
is put right. A ConfigMap that is there already under the name of a source is left alone.
"""

from __future__ import annotations

import sys

from captf_runtime import (
    Cache,
    Client,
    Context,
    Controller,
    LeaderElectionConfig,
    Manager,
    Object,
    Request,
    Result,
    Watch,
    enqueue_mapped,
    log,
)
from captf_runtime.cache import Header
from captf_runtime.client import AlreadyExists
from captf_runtime.controller import label_selector
from captf_runtime.objects import CONFIG_MAP, NAMESPACE, labels_of, name_of, namespace_of, uid_of
from captf_runtime.queue.policies import GATE

ROLE = "mirror.example.com/role"  # on ConfigMaps: source or copy
FROM = "mirror.example.com/from"  # on copies: the namespace of the source, which has the same name
TARGET = "mirror.example.com/target"  # on namespaces: true


def source_of(header: Header) -> list[str]:
    return [f"{header.labels.get(FROM, header.namespace)}/{header.name}"]


def content(config_map: Object) -> Object:
    return {field: config_map.get(field) or {} for field in ("data", "binaryData")}


def mirror(client: Client, cache: Cache) -> Controller:
    """The controller; a request names a source."""
    cache.informer(CONFIG_MAP, label_selector=ROLE, indexes={"source": source_of})
    cache.informer(NAMESPACE, metadata_only=True)

    def reconcile(ctx: Context, request: Request) -> Result | None:
        api, result = client.bind(ctx), None
        family = cache.list(CONFIG_MAP, index=("source", f"{request.namespace}/{request.name}"))
        copies = {namespace_of(config_map): config_map for config_map in family}
        source = copies.pop(request.namespace, {})
        wanted = set()
        if source:
            targets = cache.headers(NAMESPACE, label_selector=f"{TARGET}=true")
            wanted = {target.name for target in targets if not target.is_deleting} - {request.namespace}
        for namespace, copy in copies.items():
            if namespace not in wanted:
                api.delete(
                    CONFIG_MAP, request.name, namespace, propagation_policy="Background", uid=uid_of(copy)
                )
            elif content(copy) != content(source):
                api.update(CONFIG_MAP, copy | content(source))
        for namespace in wanted - copies.keys():
            labels = {ROLE: "copy", FROM: request.namespace}
            copy = {"metadata": {"name": request.name, "labels": labels}, **content(source)}
            try:
                api.create(CONFIG_MAP, copy, namespace)
            except AlreadyExists:
                ctx.logger.warning("the name is taken", target=namespace)
                result = Result(requeue_after=GATE.delay())
        return result

    def to_source(config_map: Object) -> list[Request]:
        return [Request(labels_of(config_map).get(FROM, namespace_of(config_map)), name_of(config_map))]

    def to_every_source(_: Object) -> list[Request]:
        sources = cache.headers(CONFIG_MAP, label_selector=f"{ROLE}=source")
        return [Request(source.namespace, source.name) for source in sources]

    return Controller(
        "mirror",
        for_=CONFIG_MAP,
        predicates=[label_selector(f"{ROLE}=source")],
        watches=[
            Watch(CONFIG_MAP, enqueue_mapped(to_source), [label_selector(FROM)]),
            Watch(NAMESPACE, enqueue_mapped(to_every_source)),
        ],
        reconciler=reconcile,
        cache=cache,
    )


def main() -> int:
    """Run against the cluster of the kubeconfig or of the pod, until SIGTERM."""
    log.configure("info", "text")
    with Client.from_config(user_agent="mirror") as client:
        cache = Cache(client)
        election = LeaderElectionConfig(client.namespace or "default", "mirror")
        manager = Manager(client=client, caches=[cache], leader_election=election)
        manager.add(mirror(client, cache))
        return manager.run()


if __name__ == "__main__":
    sys.exit(main())
