"""CAPTF over the embedded API server, one pass at a time: real HTTP, virtual time, scripted Jobs.

Expected flow::

    with World() as world:
        world.provisioned("TerraformMachine", "m1")   # created, applied, Ready
        world.delete("TerraformMachine", "m1")
        world.reconcile("TerraformMachine", "m1")     # one pass
        world.finish_job(world.running_job("m1"))     # the destroy succeeded
        world.settle()

Guarantees: a pass is one call, so what follows what is the test's own decision; caches never lag, unless a
test hides something from them with ``hide``; every request goes over HTTP to the server, whose log and faults
a test may use.
"""

from __future__ import annotations

import base64
import gzip
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal, Self

import msgspec
import yaml
from prometheus_client import generate_latest
from tests import state_secrets

from captf_controllers.api import annotations as keys
from captf_controllers.api import names
from captf_controllers.api.kinds import (
    API_VERSION,
    CLUSTER,
    GROUP,
    MACHINE,
    MACHINE_POOL,
    OWNER_KINDS,
    TERRAFORM_CLUSTER_IDENTITY,
    WORKLOAD_KINDS,
)
from captf_controllers.jobs.slots import JobOwner, JobSlots
from captf_controllers.kinds.controllers import ADAPTERS
from captf_controllers.observability.metrics import Metrics
from captf_controllers.reconcile.environment import Environment, Options
from captf_controllers.reconcile.reconciler import WorkloadReconciler
from captf_controllers.state.cache import StateCache
from captf_runtime import log
from captf_runtime.client import Client
from captf_runtime.client.errors import AlreadyExists, NotFound
from captf_runtime.controller import Context, Request, Result
from captf_runtime.election import Fence
from captf_runtime.objects import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    CUSTOM_RESOURCE_DEFINITION,
    JOB,
    LEASE,
    NAMESPACE,
    POD,
    SECRET,
    Kind,
    Object,
    ObjectKey,
    annotations_of,
    format_time,
    key_of,
    labels_of,
    name_of,
    namespace_of,
    parse_label_selector,
    uid_of,
)
from captf_runtime.testing.apiserver import ApiServer
from captf_runtime.testing.apiserver.request_log import LoggedRequest
from captf_runtime.testing.apiserver.server import ServerSnapshot
from captf_runtime.testing.clock import VirtualClock

ROOT = Path(__file__).resolve().parents[1]
#: Libyaml where it is there: it reads the definitions in a tenth of the time.
YAML_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
TEAM = "team-a"
OPERATOR = "captf-system"
IDENTITY = "cloud"
IMAGE = "example.com/modules/x:v1"
DIGEST = "sha256:" + "a" * 64
RUNNER_IMAGE = "example.com/captf/manager:v1"
FOREIGN_FINALIZER = "tests.example.com/keep"
KINDS: dict[str, Kind] = {kind.kind: kind for kind in WORKLOAD_KINDS}

Outcome = Literal[
    "succeeded",
    "failed",
    "deadline",
    "interrupted",
    "no-result",
    "image-layout",
    "pull-failed",
    "blocked",
    "plan-changed",
]

HEALTHY = {"state": "running", "healthy": True, "message": None, "reasons": []}
OUTPUTS: dict[str, dict[str, Any]] = {
    "TerraformCluster": {
        "control_plane_endpoint": {"host": "api.example.com", "port": 6443},
        "failure_domains": [],
        "exports": {"network_id": "net-1"},
        "health": HEALTHY,
    },
    "TerraformMachine": {
        "provider_id": "noop:///m1",
        "addresses": [],
        "failure_domain": None,
        "interruptible": False,
        "health": HEALTHY,
    },
    "TerraformMachinePool": {
        "provider_id": "noop:///pool",
        "provider_id_list": ["noop:///pool/0"],
        "replicas": 1,
        "instances": [],
        "health": HEALTHY,
    },
}


class Crash(BaseException):
    """The manager was killed here."""


class WriteWatch:
    """Sees each write of the manager right after the API server has committed it.

    ``after`` is called with the number of the write, counted from 1, in the thread that wrote: it may change
    the world at that very moment, or raise ``Crash``.
    """

    def __init__(self) -> None:
        self.count = 0
        self.after: Callable[[int], object] | None = None

    def request(self, *, method: str, verb: str, host: str, code: str, seconds: float) -> None:
        """The client's report of an answered request."""
        if method == "GET" or not code.startswith("2"):
            return
        self.count += 1
        if self.after is not None:
            self.after(self.count)

    def retry(self, *, verb: str, host: str, code: str) -> None:
        """Nothing was committed that was not reported."""

    def watch(self, after: Callable[[int], object] | None) -> None:
        """Count from 1 again and call ``after`` for each write from now on."""
        self.count, self.after = 0, after


class SkippingClock:
    """The world's clock as the manager sees it: a pause of a pass moves the time and takes none."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock

    def now(self) -> datetime:
        return self._clock.now()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def wait(self, event: threading.Event, timeout: float | None) -> bool:
        if timeout is not None and not event.is_set():
            self._clock.advance(timeout)
        return event.is_set()

    def wait_condition(self, condition: threading.Condition, timeout: float | None) -> None:
        self._clock.advance(timeout or 0.0)

    def sleep(self, seconds: float, stop: threading.Event | None = None) -> bool:
        return self.wait(stop if stop is not None else threading.Event(), seconds)


class FreshCache:
    """The cache of a manager whose watches never lag: it shows what the server holds, and asks nobody.

    ``hidden`` names Jobs that the cache has not shown yet.
    """

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self.hidden: set[str] = set()

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object:
        found = self._server.objects.get(kind, namespace, name)
        if found is None or (kind == JOB and name in self.hidden):
            raise NotFound(f'{kind.resource} "{name}" not found', code=404, reason="NotFound")
        return _copy_of(found)

    def list(self, kind: Kind, namespace: str = "", *, label_selector: str = "") -> list[Object]:
        selector = parse_label_selector(label_selector)
        found = [
            _copy_of(item)
            for item in self._server.objects.items(kind, namespace)
            if selector.matches(labels_of(item)) and not (kind == JOB and name_of(item) in self.hidden)
        ]
        return sorted(found, key=key_of)

    def wait_for(self, kind: Kind, key: ObjectKey, resource_version: str, timeout: float) -> bool:
        return True


class EventLog:
    """The recorder's end: what was said, in order."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def emit(
        self,
        obj: Object,
        type: str,
        reason: str,
        action: str,
        note: str,
        *,
        related: Object | None = None,
        important: bool = False,
    ) -> None:
        self.events.append(
            {
                "kind": obj.get("kind"),
                "namespace": namespace_of(obj),
                "name": name_of(obj),
                "uid": uid_of(obj),
                "type": type,
                "reason": reason,
                "action": action,
                "note": note,
                "related": name_of(related) if related is not None else "",
            }
        )

    def reasons(self, name: str | None = None) -> list[str]:
        """The reasons of the events about one object (or all), in order."""
        return [event["reason"] for event in self.events if name is None or event["name"] == name]

    def of(self, reason: str, name: str | None = None) -> list[dict[str, Any]]:
        """The events of one reason."""
        return [
            event
            for event in self.events
            if event["reason"] == reason and (name is None or event["name"] == name)
        ]


@dataclass(frozen=True)
class Checkpoint:
    """What a world can be brought back to: the server's content and the time."""

    content: ServerSnapshot
    now: datetime


class World:
    """One embedded API server with CAPTF's definitions and a reconciler of each kind.

    Args:
        options: overrides of the pass's options (``state_backups=0`` and so on).
        controllers: run garbage collection and namespace lifecycle in background; else call ``step``.
        shipped_role: let the manager do only what the shipped ClusterRole allows.
        clock: the clock of everything; by default one that only ``advance`` moves.
        seed: of the uids, which then are the same after each ``rewind``.
    """

    def __init__(
        self,
        *,
        controllers: bool = False,
        shipped_role: bool = False,
        clock: VirtualClock | None = None,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        self.clock = clock if clock is not None else VirtualClock()
        self.server = ApiServer(clock=self.clock, controllers=controllers, rbac=shipped_role, seed=seed)
        self._shipped_role = shipped_role
        #: Whom the manager's requests come from: with a role of its own, faults may strike it alone.
        self.manager_user = "captf-manager" if shipped_role else "admin"
        self._given = options
        self._options = dict(options)
        self._stack = ExitStack()
        self._stop = threading.Event()
        self._stages: dict[str, Checkpoint] = {}

    def __enter__(self) -> Self:
        self._stack.enter_context(self.server)
        self.client = self._stack.enter_context(Client.from_config(kubeconfig=self.server.kubeconfig()))
        #: The manager's own client; faults may be set for its user agent, requests counted.
        self.write_watch = WriteWatch()
        kubeconfig = self.server.kubeconfig(user=self.manager_user)
        self.manager_client = self._stack.enter_context(
            Client.from_config(kubeconfig=kubeconfig, user_agent="captf-manager", observer=self.write_watch)
        )
        if self._shipped_role:
            self._bind_shipped_role("captf-manager")
        for path in definitions():
            for document in yaml.load_all(path.read_text(), YAML_LOADER):
                if document and document["kind"] == CUSTOM_RESOURCE_DEFINITION.kind:
                    self.client.create(CUSTOM_RESOURCE_DEFINITION, document)
        self.restart()
        for namespace in (TEAM, OPERATOR):
            self.create(NAMESPACE, {"metadata": {"name": namespace}})
        self.add_identity()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._stack.close()

    def _bind_shipped_role(self, user: str) -> None:
        for name in ("manager_role", "runner_role"):
            for role in yaml.load_all((ROOT / "config" / "rbac" / f"{name}.yaml").read_text(), YAML_LOADER):
                if role["kind"] == CLUSTER_ROLE.kind:
                    self.client.create(CLUSTER_ROLE, role)
        self.create(
            CLUSTER_ROLE_BINDING,
            {
                "metadata": {"name": user},
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "ClusterRole",
                    "name": "manager-role",
                },
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
            },
        )

    def restart(self, **options: Any) -> None:
        """A new manager process: nothing in memory survives but the API server's content."""
        self._options.update(options)
        self.events = getattr(self, "events", None) or EventLog()
        self.metrics = Metrics()
        self.cache = FreshCache(self.server)
        self.env = Environment(
            api=self.manager_client,
            cache=self.cache,
            recorder=self.events,  # type: ignore[arg-type]
            metrics=self.metrics,
            clock=SkippingClock(self.clock),
            options=Options(runner_image=RUNNER_IMAGE, **self._options),
            slots=JobSlots(self.clock),
            states=StateCache(),
        )
        self._reconcilers = {
            kind.kind: WorkloadReconciler(self.env, adapter()) for kind, adapter in ADAPTERS.items()
        }

    def checkpoint(self) -> Checkpoint:
        """Remember the server's content and the time, for ``rewind``."""
        return Checkpoint(self.server.snapshot(), self.clock.now())

    def rewind(self, checkpoint: Checkpoint) -> None:
        """Go back to a checkpoint, with a new manager and nothing left of faults, requests and events.

        A millisecond instead of the third of a second that a new world takes.
        """
        self.server.faults.clear()
        self.write_watch.watch(None)
        self.server.restore(checkpoint.content)
        self.clock.set(checkpoint.now)
        self._options = dict(self._given)
        self.events.events.clear()
        self.write_watch.watch(None)
        self.restart()
        self.forget_requests()

    def stage(self, name: str, build: Callable[[], object]) -> None:
        """Bring about what ``build`` makes of the world as it is now; the second time from memory.

        Assumes that the world is fresh, so that a name always means the same.
        """
        if name not in self._stages:
            build()
            self._stages[name] = self.checkpoint()
        self.rewind(self._stages[name])

    # Passes

    def reconcile(self, kind: str, name: str, namespace: str = TEAM) -> float:
        """One pass; the seconds until the next one (0: on an event). Raises what the pass raises."""
        ctx = Context(
            stop=self._stop,
            fence=Fence.open(),
            clock=SkippingClock(self.clock),
            logger=log.get_logger("tests.world"),
        )
        result = self._reconcilers[kind].reconcile(ctx, Request(namespace, name))
        return (result or Result()).requeue_after

    def settle(self, kind: str, name: str, namespace: str = TEAM, *, passes: int = 12) -> float:
        """Passes until one changes nothing on the object; the requeue of the last.

        Stands for the events that a pass's own writes cause. A pass that writes on and on fails here.
        """
        for _ in range(passes):
            before = self.find(kind, name, namespace)
            if before is None:
                return 0.0
            requeue = self.reconcile(kind, name, namespace)
            after = self.find(kind, name, namespace)
            if after is None or _version(before) == _version(after):
                return requeue
        raise AssertionError(f"{kind} {name} still changes after {passes} passes")

    def step(self) -> None:
        """Garbage collection and namespace lifecycle, until nothing is due."""
        self.server.step()

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    # Objects

    def create(self, kind: Kind, obj: Object, namespace: str = "") -> Object:
        obj = {"apiVersion": kind.api_version, "kind": kind.kind, **obj}
        if namespace:
            obj["metadata"] = {**obj["metadata"], "namespace": namespace}
        return self.client.create(kind, obj, namespace or obj["metadata"].get("namespace", ""))

    def get(self, kind: str, name: str, namespace: str = TEAM) -> Object:
        return self.client.get(KINDS[kind], name, namespace)

    def find(self, kind: str, name: str, namespace: str = TEAM) -> Object | None:
        try:
            return self.get(kind, name, namespace)
        except NotFound:
            return None

    def exists(self, kind: Kind, name: str, namespace: str = TEAM) -> bool:
        try:
            self.client.get(kind, name, namespace, metadata_only=True)
        except NotFound:
            return False
        return True

    def patch(self, kind: str, name: str, patch: Object, namespace: str = TEAM, **more: Any) -> Object:
        return self.client.patch(KINDS[kind], name, patch, namespace, **more)

    def annotate(self, kind: str, name: str, **annotations: str | None) -> None:
        """Set annotations by their short names in ``captf.io`` (``restore_state="7"``), or remove with None."""
        values = {f"captf.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
        self.patch(kind, name, {"metadata": {"annotations": values}})

    def delete(self, kind: str, name: str, namespace: str = TEAM, policy: str = "Background") -> None:
        self.client.delete(KINDS[kind], name, namespace, propagation_policy=policy)  # type: ignore[arg-type]

    def keep(self, kind: str, name: str) -> None:
        """Put a foreign finalizer on, so that the final state can be read after CAPTF's is off."""
        current = self.get(kind, name)["metadata"].get("finalizers", [])
        self.patch(kind, name, {"metadata": {"finalizers": [*current, FOREIGN_FINALIZER]}})

    def released(self, kind: str, name: str) -> bool:
        """CAPTF's finalizer is off (or the object gone)."""
        obj = self.find(kind, name)
        return obj is None or not any(
            finalizer.endswith(GROUP) for finalizer in obj["metadata"].get("finalizers", [])
        )

    def condition(self, kind: str, name: str, type_: str) -> Object:
        obj = self.get(kind, name)
        conditions = (obj.get("status") or {}).get("conditions") or []
        return next((item for item in conditions if item["type"] == type_), {})

    def says(self, kind: str, name: str, type_: str) -> str:
        """A condition as ``Status/Reason``."""
        found = self.condition(kind, name, type_)
        return f"{found['status']}/{found['reason']}" if found else ""

    def add_identity(self, name: str = IDENTITY, **spec: Any) -> None:
        self.create(SECRET, secret(f"{name}-credentials", {"TOKEN": "t0p-s3cret"}), OPERATOR)
        self.create(
            TERRAFORM_CLUSTER_IDENTITY,
            {
                "metadata": {"name": name},
                "spec": {
                    "secretRef": {"name": f"{name}-credentials", "namespace": OPERATOR},
                    "allowedNamespaces": {"selector": {}},
                    **spec,
                },
            },
        )

    def add(
        self, kind: str, name: str, *, cluster: str = "prod", namespace: str = TEAM, **spec: Any
    ) -> Object:
        """Create an object with the owners that Cluster API would give it."""
        owner = self._owner(kind, name, cluster, namespace)
        reference = {
            "apiVersion": OWNER_KINDS[kind].api_version,
            "kind": OWNER_KINDS[kind].kind,
            "name": name_of(owner),
            "uid": uid_of(owner),
        }
        if kind == "TerraformCluster":
            spec.setdefault("identityRef", {"name": IDENTITY})
        return self.create(
            KINDS[kind],
            {
                "metadata": {
                    "name": name,
                    "labels": {"cluster.x-k8s.io/cluster-name": cluster},
                    "ownerReferences": [reference],
                },
                "spec": {"source": {"image": IMAGE}, **spec},
            },
            namespace,
        )

    def _owner(self, kind: str, name: str, cluster: str, namespace: str) -> Object:
        capi = self._cluster(cluster, namespace)
        if kind == "TerraformCluster":
            return capi
        bootstrap = f"{name}-bootstrap"
        self._ensure(SECRET, secret(bootstrap, {"value": "#cloud-config\n"}), namespace)
        infra = {"apiGroup": GROUP, "kind": kind, "name": name}
        labels = {"cluster.x-k8s.io/cluster-name": cluster}
        if kind == "TerraformMachine":
            owner: Object = {
                "metadata": {"name": name, "labels": labels},
                "spec": {
                    "clusterName": cluster,
                    "bootstrap": {"dataSecretName": bootstrap},
                    "infrastructureRef": infra,
                },
            }
            return self._ensure(MACHINE, owner, namespace)
        owner = {
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "clusterName": cluster,
                "template": {
                    "spec": {
                        "clusterName": cluster,
                        "bootstrap": {"dataSecretName": bootstrap},
                        "infrastructureRef": infra,
                    }
                },
            },
        }
        return self._ensure(MACHINE_POOL, owner, namespace)

    def _cluster(self, name: str, namespace: str) -> Object:
        """The Cluster, with its infrastructure reported as provisioned."""
        obj = {
            "metadata": {"name": name},
            "spec": {"infrastructureRef": {"apiGroup": GROUP, "kind": "TerraformCluster", "name": name}},
        }
        found = self._ensure(CLUSTER, obj, namespace)
        if not (found.get("status") or {}).get("initialization"):
            found = self.client.patch(
                CLUSTER,
                name,
                {"status": {"initialization": {"infrastructureProvisioned": True}}},
                namespace,
                subresource="status",
            )
        return found

    def _ensure(self, kind: Kind, obj: Object, namespace: str) -> Object:
        try:
            return self.create(kind, obj, namespace)
        except AlreadyExists:
            return self.client.get(kind, name_of(obj), namespace)

    def ensure_cluster(self, cluster: str = "prod") -> None:
        """A TerraformCluster with a readable state, as machines and pools need it."""
        if self.find("TerraformCluster", cluster) is None:
            self.add("TerraformCluster", cluster)
            self.provision("TerraformCluster", cluster)

    # Jobs

    def jobs(self, name: str | None = None, *, op: str | None = None, namespace: str = TEAM) -> list[Object]:
        """The Jobs of an object (or all), oldest first."""
        items = self.client.list(JOB, namespace).items
        found = [
            item
            for item in items
            if (
                name is None
                or labels_of(item).get("captf.infrastructure.cluster.x-k8s.io/owner-name") == name
            )
            and (op is None or labels_of(item).get("captf.infrastructure.cluster.x-k8s.io/op") == op)
        ]
        return sorted(found, key=lambda item: item["metadata"]["creationTimestamp"])

    def running_job(self, name: str, *, op: str | None = None) -> Object:
        """The one unfinished Job of an object."""
        running = [job for job in self.jobs(name, op=op) if not _finished(job)]
        assert len(running) == 1, f"{name}: {[name_of(job) for job in running]} run"
        return running[0]

    def start_pod(self, job: Object, *, phase: str = "Running") -> Object:
        """The pod that the Job controller would make, running."""
        namespace = namespace_of(job)
        template = job["spec"]["template"]
        pod = self.create(
            POD,
            {
                "metadata": {
                    "name": f"{name_of(job)}-x7k2p",
                    "labels": {**template["metadata"]["labels"], "job-name": name_of(job)},
                    "ownerReferences": [
                        {
                            "apiVersion": "batch/v1",
                            "kind": "Job",
                            "name": name_of(job),
                            "uid": uid_of(job),
                            "controller": True,
                        }
                    ],
                },
                "spec": template["spec"],
            },
            namespace,
        )
        image = template["spec"]["containers"][0]["image"]
        status = {
            "phase": phase,
            "containerStatuses": [
                {
                    "name": "source",
                    "image": image,
                    "imageID": f"{image.partition('@')[0].rpartition(':')[0] or image}@{DIGEST}",
                    "ready": phase == "Running",
                    "restartCount": 0,
                    "state": {"running": {"startedAt": format_time(self.clock.now())}},
                }
            ],
        }
        self.client.patch(POD, name_of(pod), {"status": status}, namespace, subresource="status")
        self.client.patch(
            JOB,
            name_of(job),
            {"status": {"active": 1, "startTime": format_time(self.clock.now())}},
            namespace,
            subresource="status",
        )
        return self.client.get(POD, name_of(pod), namespace)

    def finish_job(
        self,
        job: Object,
        outcome: Outcome = "succeeded",
        *,
        tail: str = "Error: boom",
        steps: tuple[str, ...] = ("init", "validate", "apply"),
        state: Mapping[str, Any] | Literal["keep"] | None = "keep",
        resources: int = 1,
        serial: int | None = None,
        plan: Mapping[str, Any] | None = None,
        drift: Mapping[str, Any] | None = None,
    ) -> None:
        """End a Job as the runner and the Job controller would.

        ``state`` replaces the outputs written by a successful apply, ``resources`` counts what it made; a successful
        destroy empties the state.
        """
        namespace, name = namespace_of(job), name_of(job)
        op = labels_of(job)["captf.infrastructure.cluster.x-k8s.io/op"]
        pod_name = f"{name}-x7k2p"
        if not self.exists(POD, pod_name, namespace):
            self.start_pod(job)
        if outcome == "succeeded":
            self._write_state(job, op, state, resources, serial)
        message = self._result(op, outcome, tail, steps, plan, drift)
        now = format_time(self.clock.now())
        succeeded = outcome == "succeeded"
        exit_code = 0 if succeeded else 1
        pod = self.client.get(POD, pod_name, namespace)
        statuses = pod["status"]["containerStatuses"]
        statuses[0]["ready"] = False
        statuses[0]["state"] = {
            "terminated": {
                "exitCode": exit_code,
                "reason": "Completed" if succeeded else "Error",
                "message": message,
                "startedAt": now,
                "finishedAt": now,
            }
        }
        if outcome == "pull-failed":
            statuses[0]["state"] = {"waiting": {"reason": "ImagePullBackOff"}}
        self.client.patch(
            POD,
            pod_name,
            {"status": {"phase": "Succeeded" if succeeded else "Failed", "containerStatuses": statuses}},
            namespace,
            subresource="status",
        )
        self.end_job(job, succeeded=succeeded, deadline=outcome in ("deadline", "pull-failed"))

    def end_job(self, job: Object, *, succeeded: bool, deadline: bool = False) -> None:
        """Set the Job's terminal condition."""
        now = format_time(self.clock.now())
        terminal = {
            "type": "Complete" if succeeded else "Failed",
            "status": "True",
            "lastProbeTime": now,
            "lastTransitionTime": now,
        }
        if not succeeded:
            terminal["reason"] = "DeadlineExceeded" if deadline else "BackoffLimitExceeded"
        status: Object = {"active": None, "conditions": [terminal]}
        status["succeeded" if succeeded else "failed"] = 1
        if succeeded:
            status["completionTime"] = now
        self.client.patch(JOB, name_of(job), {"status": status}, namespace_of(job), subresource="status")

    @staticmethod
    def _result(
        op: str,
        outcome: Outcome,
        tail: str,
        steps: tuple[str, ...],
        plan: Mapping[str, Any] | None,
        drift: Mapping[str, Any] | None,
    ) -> str:
        if outcome in ("no-result", "pull-failed"):
            return ""
        document: dict[str, Any] = {
            "version": 1,
            "op": op,
            "image": {"ref": IMAGE},
            "runtime": {"version": "1.11.4"},
            "steps": [
                {
                    "name": step if step != "apply" else op,
                    "seconds": 0.5,
                    "exit": 0 if outcome == "succeeded" else 1,
                }
                for step in steps
            ],
        }
        if plan is not None:
            document["plan"] = plan
        if drift is not None:
            document["drift"] = {"detected": True, **drift}
        if outcome == "succeeded":
            document["changes"] = {"add": 1, "change": 0, "destroy": 0, "import": 0}
        else:
            kind = {
                "failed": "step",
                "deadline": "interrupted",
                "interrupted": "interrupted",
                "image-layout": "image-layout",
                "blocked": "blocked",
                "plan-changed": "plan-changed",
            }[outcome]
            step = op if steps[-1] == "apply" else steps[-1]
            document["error"] = {"kind": kind, "step": step, "tail": tail, "resources": []}
        return json.dumps(document)

    def _write_state(
        self,
        job: Object,
        op: str,
        outputs: Mapping[str, Any] | Literal["keep"] | None,
        resources: int,
        serial: int | None,
    ) -> None:
        owner = job["metadata"]["ownerReferences"][0]
        kind, name = owner["kind"], owner["name"]
        cluster = labels_of(job).get("cluster.x-k8s.io/cluster-name", "")
        namespace = namespace_of(job)
        if op == "apply":
            values = OUTPUTS[kind] if outputs == "keep" or outputs is None else outputs
            self.write_state(
                kind,
                name,
                outputs=values,
                resources=resources,
                cluster=cluster,
                namespace=namespace,
                serial=serial,
            )
        elif op == "destroy":
            self.write_state(
                kind, name, outputs={}, resources=0, cluster=cluster, namespace=namespace, serial=serial
            )
        elif op == "restore":
            self._push_backup(job, kind, name, namespace)

    def write_state(
        self,
        kind: str,
        name: str,
        *,
        outputs: Mapping[str, Any] | None = None,
        resources: int = 1,
        cluster: str = "prod",
        namespace: str = TEAM,
        serial: int | None = None,
        payload: bytes | None = None,
    ) -> None:
        """Write the state Secret as Terraform's backend does: data and backend labels, annotations kept."""
        suffix = names.state_suffix(namespace, kind, name)
        if serial is None:
            serial = self.serial(kind, name, namespace) + 1
        content = payload
        if content is None:
            content = state_secrets.payload(
                state_secrets.document(serial=serial, outputs=outputs or {}, resources=resources)
            )
        made = state_secrets.secret(
            names.state_secret(suffix),
            content,
            suffix=suffix,
            namespace=namespace,
            labels=names.state_labels(kind, name, cluster),
        )
        try:
            self.client.create(SECRET, made, namespace)
        except AlreadyExists:
            self.client.patch(SECRET, name_of(made), {"data": made["data"]}, namespace)

    def serial(self, kind: str, name: str, namespace: str = TEAM) -> int:
        """The serial of the state as it is, 0 without one."""
        suffix = names.state_suffix(namespace, kind, name)
        try:
            found = self.client.get(SECRET, names.state_secret(suffix), namespace)
        except NotFound:
            return 0
        data = base64.b64decode(found.get("data", {}).get("tfstate", ""))
        try:
            return int(json.loads(gzip.decompress(data))["serial"])
        except (OSError, EOFError, ValueError, KeyError):
            return 0

    def _push_backup(self, job: Object, kind: str, name: str, namespace: str) -> None:
        serial = annotations_of(job)[keys.RESTORE_SERIAL]
        suffix = names.state_suffix(namespace, kind, name)
        backup = self.client.get(SECRET, names.state_backup(suffix, int(serial)), namespace)
        self.write_state(kind, name, payload=base64.b64decode(backup["data"]["tfstate"]), namespace=namespace)

    def provision(self, kind: str, name: str) -> None:
        """Run the first apply of an object to its success."""
        self.settle(kind, name)
        self.finish_job(self.running_job(name, op="apply"))
        self.settle(kind, name)

    def provisioned(self, kind: str, name: str, **spec: Any) -> Object:
        """An object that was applied and is Ready."""
        if kind != "TerraformCluster":
            self.ensure_cluster()
        self.add(kind, name, **({"cluster": name} if kind == "TerraformCluster" else {}), **spec)
        self.provision(kind, name)
        return self.get(kind, name)

    # What there is

    def state_secrets(self, kind: str, name: str, namespace: str = TEAM) -> list[Object]:
        suffix = names.state_suffix(namespace, kind, name)
        return self.client.list(SECRET, namespace, label_selector=names.state_selector(suffix)).items

    def backups(self, kind: str, name: str, namespace: str = TEAM) -> list[Object]:
        suffix = names.state_suffix(namespace, kind, name)
        return self.client.list(SECRET, namespace, label_selector=names.backup_selector(suffix)).items

    def leases(self, namespace: str = TEAM) -> list[str]:
        return [name_of(item) for item in self.client.list(LEASE, namespace).items]

    def hold_run_lease(
        self,
        kind: str,
        name: str,
        holder: str,
        *,
        owner_kind: str = "",
        cluster: str = "",
        op: str = "destroy",
    ) -> None:
        """The run lease of an object in somebody's name, acquired now."""
        suffix = names.state_suffix(TEAM, kind, name)
        self._hold_lease(names.run_lease(suffix), "run", holder, owner_kind or kind, name, cluster, op)

    def hold_write_lease(self, cluster: str, holder: str, *, op: str = "apply") -> None:
        """The write lease of a cluster in somebody's name, acquired now."""
        lease = names.cluster_lease(TEAM, cluster)
        self._hold_lease(lease, "cluster", holder, "TerraformCluster", cluster, cluster, op)

    def _hold_lease(
        self, lease: str, which: str, holder: str, owner_kind: str, owner: str, cluster: str, op: str
    ) -> None:
        of_cluster = {"cluster.x-k8s.io/cluster-name": cluster} if cluster else {}
        self.create(
            LEASE,
            {
                "metadata": {
                    "name": lease,
                    "labels": {
                        "captf.io/lease": which,
                        "captf.io/managed": "true",
                        **names.owner_labels(owner_kind, owner),
                        **of_cluster,
                    },
                    "annotations": {
                        "captf.io/lease-op": op,
                        "captf.io/lease-acquired-at": format_time(self.clock.now()),
                    },
                },
                "spec": {"holderIdentity": holder, "leaseDurationSeconds": 4500},
            },
            TEAM,
        )

    def add_job(self, name: str, **job_labels: str) -> Object:
        """A running Job that no reconciler of this world made."""
        template = {
            "metadata": {"labels": job_labels},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "source", "image": IMAGE}]},
        }
        job = {"metadata": {"name": name, "labels": job_labels}, "spec": {"template": template}}
        return self.create(JOB, job, TEAM)

    def take_slot(self, job: str) -> None:
        """What the informers tell of another object whose Job runs."""
        owner = {"apiVersion": API_VERSION, "kind": "TerraformMachine", "name": job, "uid": "uid-of-another"}
        self.env.slots.owner_seen(JobOwner(TEAM, owner["kind"], owner["name"], owner["uid"]))
        metadata = {"name": job, "namespace": TEAM, "ownerReferences": [{**owner, "controller": True}]}
        self.env.slots.job_seen({"metadata": metadata})

    def scrape(self) -> str:
        """The metrics page."""
        return generate_latest(self.metrics.registry).decode()

    def forget_requests(self) -> None:
        """Begin the server's log of requests anew."""
        self._await_log()
        self.server.requests.clear()

    def _await_log(self) -> None:
        """The server logs a request after its answer, and before it reads the connection's next."""
        self.manager_client.get(NAMESPACE, OPERATOR, metadata_only=True)

    def created(self, resource: str) -> list[str]:
        """The answers' codes of the requests that tried to create something, as ``resource: code``."""
        self._await_log()
        made = self.server.requests.select(verb="create", resource=resource)
        return [f"{entry.resource}: {entry.code}" for entry in made]

    def requests(self) -> list[LoggedRequest]:
        """What the manager has asked the API server so far; what its informers would hold is not asked."""
        self._await_log()
        return [
            entry
            for entry in self.server.requests
            if "captf-manager" in entry.user_agent
            and (entry.resource, entry.name) != ("namespaces", OPERATOR)  # that of `_await_log`
        ]

    def writes(self, since: int = 0) -> list[str]:
        """The manager's writes so far, as ``verb resource/name``."""
        self._await_log()
        return [
            f"{entry.verb} {entry.resource}/{entry.name}"
            for entry in list(self.server.requests)[since:]
            if entry.verb not in ("get", "list", "watch")
            and "captf-manager" in getattr(entry, "user_agent", "")
        ]


def definitions() -> Iterator[Path]:
    """CAPTF's definitions and stand-ins for Cluster API's."""
    yield ROOT / "hack" / "tour" / "cluster-api.yaml"
    yield from sorted((ROOT / "config" / "crd").glob("*.yaml"))


def secret(name: str, data: Mapping[str, str]) -> Object:
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    return {"metadata": {"name": name}, "data": encoded}


def seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


def _version(obj: Object) -> str:
    return str(obj["metadata"]["resourceVersion"])


def _finished(job: Object) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or []
    return any(item["type"] in ("Complete", "Failed") and item["status"] == "True" for item in conditions)


def _copy_of(obj: Object) -> Object:
    found: Object = msgspec.json.decode(msgspec.json.encode(obj))
    return found
