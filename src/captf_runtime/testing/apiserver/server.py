"""The embedded API server: options, life cycle, and what tests and embedders may do with it."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from captf_runtime.clock import SYSTEM_CLOCK, Clock
from captf_runtime.objects import Object
from captf_runtime.testing.apiserver import bootstrap_policy
from captf_runtime.testing.apiserver import kubeconfig as kubeconfigs
from captf_runtime.testing.apiserver.access import MASTERS, Authenticator
from captf_runtime.testing.apiserver.admission import (
    DefinitionGate,
    NamespaceGate,
    RoleGate,
    ServiceAccountGate,
    ValidatingWebhooks,
)
from captf_runtime.testing.apiserver.backend import INTERNAL, Backend
from captf_runtime.testing.apiserver.calls import Call
from captf_runtime.testing.apiserver.certificates import ServerIdentity, local_identity
from captf_runtime.testing.apiserver.customresources import TABLE as DEFINITIONS
from captf_runtime.testing.apiserver.customresources import is_established, resources_of
from captf_runtime.testing.apiserver.definition_cleanup import DefinitionCleanup
from captf_runtime.testing.apiserver.field_management import FieldManagement
from captf_runtime.testing.apiserver.handler import Handler
from captf_runtime.testing.apiserver.http_server import Exchange, HttpServer
from captf_runtime.testing.apiserver.kinds.base import Mode
from captf_runtime.testing.apiserver.kinds.catalog import built_in, definition_resource
from captf_runtime.testing.apiserver.kinds.rbac import GROUP as RBAC_GROUP
from captf_runtime.testing.apiserver.object_store import BackendObjectStore
from captf_runtime.testing.apiserver.openapi import OpenApiPaths
from captf_runtime.testing.apiserver.rbac import EscalationGate, Rbac
from captf_runtime.testing.apiserver.reading import ReadLimits
from captf_runtime.testing.apiserver.request_log import RequestLog
from captf_runtime.testing.apiserver.resources import Registry, Resource
from captf_runtime.testing.apiserver.rest import Endpoints
from captf_runtime.testing.apiserver.reviews import Reviews
from captf_runtime.testing.apiserver.storage import HISTORY_BYTES, Change, Record, Snapshot, Store
from captf_runtime.testing.apiserver.subresources import Bindings, Finalize, LogProvider, Logs, Tokens
from captf_runtime.testing.controllers.garbage import GarbageCollector
from captf_runtime.testing.controllers.namespaces import NamespaceLifecycle
from captf_runtime.testing.controllers.stepping import SteppedController
from captf_runtime.testing.faults import Faults

FIRST_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")


class Driver(Protocol):
    """An extension that lives with the server, such as a kubelet: started after it, stopped before it."""

    def start(self, server: ApiServer) -> None: ...
    def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ServerSnapshot:
    """The stored content at one moment and, of a server with a seed, how its uids go on from there."""

    content: Snapshot
    random_state: tuple[object, ...] | None = None


class ApiServer:
    """A Kubernetes API server in this process.

    Expected flow::

        with ApiServer(crds=[manifest]) as server:
            client = Client.from_config(kubeconfig=str(server.kubeconfig()))

    Guarantees: the answers of a real server for the kinds of its catalog and for custom resources; state in
    memory only; `stop` ends every thread and socket that `start` made; no request is served after it.

    Args:
        port: 0 takes a free one.
        tls: serve HTTPS with a certificate authority of this process, embedded in the kubeconfigs.
        rbac: authorize from stored roles; without it everybody may do everything.
        mode: `modern` or `1.20`, where the versions of the real server differ.
        controllers: run garbage collection and namespace lifecycle in background; without it, call `step`.
        clock: for timestamps, token expiry and the controllers. Watches last in real time.
        crds: CustomResourceDefinitions to register at start.
        bookmark_interval: seconds between bookmarks.
        history_limit: changes kept for each kind, for watches from older versions.
        history_bytes: JSON of the changes kept for all kinds together, in bytes; the oldest go first.
        watch_buffer: changes that may wait for one slow watcher before it is cut.
        aggregated_discovery: serve the aggregated form to clients that ask for it (modern mode).
        seed: for uids, generated names and fault injection.
        webhook_services: (namespace, name) of Services that webhooks name, and the host:port behind each.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        host: str = "127.0.0.1",
        tls: bool = False,
        rbac: bool = False,
        mode: Mode = "modern",
        controllers: bool = True,
        clock: Clock = SYSTEM_CLOCK,
        crds: Iterable[Object] = (),
        bookmark_interval: float = 60.0,
        history_limit: int = 10_000,
        history_bytes: int = HISTORY_BYTES,
        watch_buffer: int = 10_000,
        aggregated_discovery: bool = True,
        seed: int | None = None,
        webhook_services: Mapping[tuple[str, str], str] | None = None,
    ) -> None:
        self.mode: Mode = mode
        self._seeded = seed is not None
        self.clock = clock
        self.faults = Faults(seed or 0)
        self.requests = RequestLog()
        self.store = Store(history_limit=history_limit, history_bytes=history_bytes)
        self.registry = Registry(built_in())
        self.backend = Backend(self.store, self.registry, clock, mode=mode, seed=seed)
        self.limits = ReadLimits(bookmark_interval, watch_buffer=watch_buffer)
        self.endpoints = Endpoints(self.backend, self.limits)
        self.authenticator = Authenticator(self.store, clock)
        self.drivers: list[Driver] = []
        self._lock = threading.Lock()
        self._host = host
        self._identity: ServerIdentity | None = local_identity() if tls else None
        self._background = controllers
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._running: ExitStack | None = None
        self._crds = list(crds)
        self._http = HttpServer(
            self._handle, host=host, port=port, tls=self._identity.context if self._identity else None
        )
        self.handler = Handler(
            self.registry,
            self.endpoints,
            self.authenticator,
            self.faults,
            self.requests,
            clock,
            mode=mode,
            aggregated_discovery=aggregated_discovery and mode == "modern",
            stopping=self._http.stopping,
            compact=self.compact,
        )
        self.handler.paths.append(OpenApiPaths(self.registry))
        fields = FieldManagement(clock, mode=mode)
        self.backend.ownership = fields
        self.endpoints.patching.applier = fields
        self.rbac = Rbac(self.store) if rbac else None
        self.webhooks = ValidatingWebhooks(self.store, self.registry, webhook_services or {})
        self.backend.gates += [
            NamespaceGate(self.store),
            DefinitionGate(self.store),
            ServiceAccountGate(self.store),
        ]
        if self.rbac is not None:
            self.backend.gates.append(RoleGate(EscalationGate(self.rbac)))
            self.handler.authorizer = self.rbac
        self.backend.admission.append(self.webhooks)
        self._logs = Logs(self.backend)
        self._serve_subresources()
        self.registry.replace(DEFINITIONS, [definition_resource(self.registry)])
        self.store.observe(self._on_change)
        self.objects = BackendObjectStore(self.backend)
        self._controllers: list[SteppedController] = [
            GarbageCollector(self.objects),
            NamespaceLifecycle(self.objects, clock),
            DefinitionCleanup(self.backend),
        ]
        self._bootstrap()

    # Life

    def start(self) -> Self:
        """Listen and serve; returns itself.

        A server starts once: keep its content for another one with `snapshot`. When a driver fails to start,
        everything that was started before is stopped again.
        """
        if self._running is not None or self._http.stopping.is_set():
            raise RuntimeError("this API server was started before; make a new one")
        with ExitStack() as opened:
            self._http.start()
            opened.callback(self._http.stop)
            self.handler.address = f"{self._host}:{self._http.port}"
            if self._background:
                for controller in self._controllers:
                    controller.start()
                    opened.callback(controller.stop)
            self._running = opened
            try:
                for driver in self.drivers:
                    self._start_driver(driver)
            except BaseException:
                self._running = None
                raise
            self._running = opened.pop_all()
        return self

    def stop(self) -> None:
        """End drivers, controllers and connections, in this order; a second call does nothing."""
        running, self._running = self._running, None
        if running is not None:
            running.close()
        with self._lock:
            folder, self._folder = self._folder, None
        if folder is not None:
            folder.cleanup()

    def _start_driver(self, driver: Driver) -> None:
        driver.start(self)
        if self._running is not None:
            self._running.callback(driver.stop)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def add_driver(self, driver: Driver) -> None:
        """Extend the server; a running one starts the driver at once."""
        self.drivers.append(driver)
        if self._running is not None:
            self._start_driver(driver)

    # What a client needs

    @property
    def url(self) -> str:
        """The address, without a slash at the end; known once the server is started."""
        if self._http.port == 0:
            raise RuntimeError("the API server has no address yet: start it first")
        scheme = "https" if self._identity is not None else "http"
        return f"{scheme}://{self._host}:{self._http.port}"

    @property
    def certificate_authority(self) -> bytes | None:
        """The PEM that clients of a TLS server trust."""
        return self._identity.authority if self._identity is not None else None

    def token(self, user: str = "admin", groups: Iterable[str] | None = None) -> str:
        """A bearer token for a user; `admin` is in system:masters unless `groups` says otherwise."""
        chosen = tuple(groups) if groups is not None else (MASTERS,) if user == "admin" else ()
        return self.authenticator.add(user, chosen)

    def revoke(self, token: str) -> None:
        """Let a token count for nothing from now on; `token` then gives the user another one."""
        self.authenticator.revoke(token)

    def kubeconfig(
        self,
        path: str | Path | None = None,
        *,
        user: str = "admin",
        groups: Iterable[str] | None = None,
        namespace: str = "default",
    ) -> Path:
        """Write a kubeconfig for a user and return its path (default: a file that `stop` removes)."""
        if path is None:
            with self._lock:
                if self._folder is None:
                    self._folder = tempfile.TemporaryDirectory(prefix="captf-apiserver-")
                safe = "".join(c if c.isalnum() else "-" for c in user)
                path = Path(self._folder.name) / f"{safe}-{namespace}.kubeconfig"
        config = kubeconfigs.content(
            self.url,
            self.token(user, groups),
            authority=self.certificate_authority,
            user=user,
            namespace=namespace,
        )
        target = Path(path)
        kubeconfigs.write(target, config)
        return target

    def register_log_provider(self, provider: LogProvider) -> None:
        """Let `provider(namespace, pod, options)` answer reads of pods' logs; the first that has one wins."""
        self._logs.providers.append(provider)

    # What a test may do

    def apply_definition(self, definition: Object) -> None:
        """Register a CustomResourceDefinition, or replace the one of that name."""
        resource = self.registry.of_table(DEFINITIONS)
        assert resource is not None
        name = definition["metadata"]["name"]
        if self.store.get(DEFINITIONS, "", name) is None:
            self.backend.create(resource, "", definition, INTERNAL)
        else:
            self.backend.update(
                resource, "", name, lambda current: {**current, "spec": definition["spec"]}, INTERNAL
            )

    def step(self, rounds: int = 100) -> bool:
        """Let the controllers do all that is due, in this thread; true when anything was done."""
        worked = False
        for _ in range(rounds):
            # Every controller has its turn, also when an earlier one was busy.
            turns = [controller.step() for controller in self._controllers]
            if not any(turns):
                break
            worked = True
        return worked

    def compact(self) -> int:
        """Forget all history: watches from older versions are answered with 410. Returns the present version."""
        return self.store.compact()

    def snapshot(self) -> ServerSnapshot:
        """Remember the stored content."""
        state = self.backend.random_state() if self._seeded else None
        return ServerSnapshot(self.store.snapshot(), state)

    def restore(self, snapshot: ServerSnapshot) -> None:
        """Bring remembered content back, as changes that watchers see.

        With a seed, what is created from then on gets the uids and names that it got the first time.
        """
        self.store.restore(snapshot.content)
        if snapshot.random_state is not None:
            self.backend.go_on_from(snapshot.random_state)

    def drop_connections(self) -> None:
        """Cut every connection, as a restart would."""
        self._http.drop_connections()

    def drop_watches(self) -> int:
        """Cut the connection of every watch that is open; returns how many there were."""
        return self.store.cut_listeners()

    @property
    def open_connections(self) -> int:
        """How many client connections are open."""
        return self._http.open_connections

    # Inside

    def _handle(self, exchange: Exchange) -> None:
        self.handler(exchange)

    def _serve_subresources(self) -> None:
        special = self.handler.special
        special["serviceaccounts", "token"] = Tokens(self.backend, self.endpoints, self.authenticator)
        special["namespaces", "finalize"] = Finalize(self.backend, self.endpoints)
        special["pods", "binding"] = Bindings(self.backend, self.endpoints)
        special["pods", "log"] = self._logs

        def read(call: Call, resource: Resource) -> Object:
            return self.endpoints.bodies.read_as(call, resource.kind, resource.group, resource.version)

        reviews = Reviews(self.authenticator, self.rbac, read)
        for resource in self.registry.virtual():
            special[resource.storage, ""] = reviews

    def _bootstrap(self) -> None:
        namespaces = self.registry.find("", "v1", "namespaces")
        assert namespaces is not None
        for name in FIRST_NAMESPACES:
            self.backend.create(namespaces, "", {"metadata": {"name": name}}, INTERNAL)
        if self.rbac is not None:
            for plural, objects in (
                ("clusterroles", bootstrap_policy.cluster_roles()),
                ("clusterrolebindings", bootstrap_policy.cluster_role_bindings()),
            ):
                resource = self.registry.find(RBAC_GROUP, "v1", plural)
                assert resource is not None
                for obj in objects:
                    self.backend.create(resource, "", obj, INTERNAL)
        for definition in self._crds:
            self.apply_definition(definition)
        self.store.compact()

    def _on_change(self, table: str, change: Change) -> None:
        if table == DEFINITIONS:
            record = None if change.type == "DELETED" else change.record
            self._serve_definition(record, change.record.name)
            before = change.previous.object.get("spec") if change.previous is not None else None
            if before is not None and (record is None or record.object.get("spec") != before):
                # As on the real server, watches end when what they watch is defined anew.
                self.store.dismiss(change.record.name)

    def _serve_definition(self, record: Record | None, name: str) -> None:
        if record is None or not is_established(record.object):
            self.registry.replace(name, [])
        else:
            self.registry.replace(name, resources_of(record.object, self.mode))
