"""The kubelet: takes on pods that no node has, runs them as processes of this machine, keeps their status."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from pathlib import Path

from captf_runtime.client import Client
from captf_runtime.client.errors import AlreadyExists, ApiError, Conflict, Invalid, MethodNotAllowed, NotFound
from captf_runtime.clock import SYSTEM_CLOCK, Clock
from captf_runtime.log import get_logger
from captf_runtime.objects import (
    EVENT,
    LEASE,
    NODE,
    POD,
    Object,
    ObjectKey,
    format_micro_time,
    format_time,
    is_deleting,
    metadata,
    name_of,
    namespace_of,
    uid_of,
)
from captf_runtime.testing.controllers.mirror import Mirror

from .access import ApiServerAddress
from .images import Image, ImageResolver, resolver_for
from .logs import LogDirectory
from .pod import NodeServices, PodWorker, remove_pod

__all__ = ["Kubelet"]

_FINAL_PHASES = ("Succeeded", "Failed")
_HEARTBEAT_SECONDS = 10.0
_LEASE_NAMESPACE = "kube-node-lease"

_logger = get_logger(__name__)


class Kubelet:
    """Runs pods of an API server as local processes.

    Takes on every pod, in all namespaces, that no node has (and those already bound to its node name), binds
    it and runs it: init containers in order, then the containers, each a process with a directory of its own
    in place of a root file system. Works without privileges; where it may, it gives processes the pod's name
    as host name. Serves the embedded API server and a real one without other nodes.

    Args:
        client: how to reach the API server; needs pods with `binding` and `status`, secrets, configmaps,
            `serviceaccounts/token`, events, and nodes and leases where the server has them.
        images: what stands for an image reference: a mapping (the reference, or its part before `@` or the
            tag) or a function.
        root: parent of the pods' directories; a temporary directory by default. Keep it short: programs
            make sockets below it, whose paths are limited to about 100 bytes.
        log_dir: where logs are kept after `stop`; by default they go with the temporary directory.
        environment: given to every container below what the pod says. Container paths in it are translated.
        node_name: the node that pods are bound to.
        max_pods: pods that run at the same time; more wait unscheduled.
        clock: source of time.

    Guarantees: after `stop` none of its processes runs, and nothing is left in `root`. A pod that a former
    kubelet of this node name had started is reported Failed, never started again.
    Not done: resource limits, users and security contexts, read-only mounts, probes, hooks, networks of
    pods, updates of mounted Secrets and ConfigMaps (tokens are renewed), volumes other than Secret, ConfigMap,
    projected, downwardAPI and emptyDir.
    """

    def __init__(
        self,
        client: Client,
        *,
        images: Mapping[str, Image] | ImageResolver,
        root: Path | None = None,
        log_dir: Path | None = None,
        environment: Mapping[str, str] | None = None,
        node_name: str = "local",
        max_pods: int = 110,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._client = client
        self._clock = clock
        self._node_name = node_name
        self._max_pods = max_pods
        self._resolve = resolver_for(images)
        self._environment = dict(environment or {})
        self._wanted_root = root
        self._wanted_logs = log_dir
        self._services: NodeServices | None = None
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._touched: OrderedDict[ObjectKey, None] = OrderedDict()
        self._waiting: OrderedDict[ObjectKey, None] = OrderedDict()
        self._workers: dict[str, PodWorker] = {}
        self._uids: dict[ObjectKey, str] = {}
        self._done: set[str] = set()
        self._serial = 0
        self._binds = True
        self._node_made = False
        self._pods = Mirror(client, POD, self._pod_changed)
        self._threads = [
            threading.Thread(target=self._run, name="kubelet", daemon=True),
            threading.Thread(target=self._keep_node, name="kubelet-node", daemon=True),
        ]

    def __enter__(self) -> Kubelet:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def log_directory(self) -> Path:
        """Where the logs are: `<namespace>_<pod>_<uid>/<container>/<restart>.log`.

        Raises:
            RuntimeError: the kubelet has not been started.
        """
        if self._services is None:
            raise RuntimeError("the kubelet has not been started")
        return self._services.logs.directory

    def start(self) -> None:
        """Register the node and begin to run pods, in background. A kubelet starts only once."""
        self._services = self._prepare()
        self._register_node()
        self._pods.start()
        for thread in self._threads:
            thread.start()

    def stop(self, grace: float = 5.0) -> None:
        """End all pods and threads and remove all files.

        Args:
            grace: seconds between SIGTERM and SIGKILL.
        """
        self._stop.set()
        with self._changed:
            self._changed.notify_all()
        self._pods.stop()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()
        with self._changed:
            workers = list(self._workers.values())
        for worker in workers:
            worker.stop(grace)
        for worker in workers:
            worker.join()
        if self._services is None:
            return
        self._unregister_node()
        if self._wanted_logs is None:
            shutil.rmtree(self._services.logs.directory, ignore_errors=True)
        if self._wanted_root is None:
            shutil.rmtree(self._services.directory, ignore_errors=True)

    def _prepare(self) -> NodeServices:
        root = self._wanted_root or Path(tempfile.mkdtemp(prefix="pods-"))
        root.mkdir(parents=True, exist_ok=True)
        config = self._client.config
        return NodeServices(
            client=self._client,
            clock=self._clock,
            resolve=self._resolve,
            directory=root,
            logs=LogDirectory(self._wanted_logs or root / "logs"),
            environment=self._environment,
            address=ApiServerAddress(config.server, config.ca_data, config.verify, config.tls_server_name),
            report=self._report,
        )

    def log(
        self,
        namespace: str,
        name: str,
        container: str | None = None,
        *,
        tail_lines: int | None = None,
        limit_bytes: int | None = None,
        follow: bool = False,
        previous: bool = False,
    ) -> Iterator[bytes] | None:
        """Return the log of a pod's container in pieces, None when this kubelet has none.

        This is the log provider for the embedded API server. The log of a deleted pod can still be read.

        Args:
            container: the container; the one that logged last when None.
            tail_lines: the last lines only.
            limit_bytes: at most so many bytes.
            follow: go on while the container runs.
            previous: the run before the last restart.
        """
        if self._services is None:
            return None
        logs = self._services.logs
        path = logs.latest(namespace, name, container, previous=previous)
        if path is None:
            return None
        uid = path.parent.parent.name.rpartition("_")[2]
        running = path.parent.name

        def growing() -> bool:
            with self._changed:
                worker = self._workers.get(uid)
            return follow and not previous and worker is not None and worker.is_running(running)

        return logs.read(
            path, tail_lines=tail_lines, limit_bytes=limit_bytes, growing=growing, stop=self._stop
        )

    # Pods -------------------------------------------------------------------------------------------

    def _pod_changed(self, key: ObjectKey) -> None:
        with self._changed:
            self._touched[key] = None
            self._changed.notify_all()

    def _run(self) -> None:
        while (key := self._next()) is not None:
            try:
                self._attend(key)
            except ApiError as error:
                _logger.debug("the pod will be looked at again", pod=str(key), err=error)
                if self._clock.sleep(0.5, self._stop):
                    return
                self._pod_changed(key)

    def _next(self) -> ObjectKey | None:
        with self._changed:
            while not self._stop.is_set():
                if self._touched:
                    return self._touched.popitem(last=False)[0]
                if self._waiting and len(self._workers) < self._max_pods:
                    return self._waiting.popitem(last=False)[0]
                self._clock.wait_condition(self._changed, None)
        return None

    def _attend(self, key: ObjectKey) -> None:
        pod = self._pods.get(key)
        former = self._uids.get(key)
        if former is not None and (pod is None or uid_of(pod) != former):
            del self._uids[key]
            self._done.discard(former)
            with self._changed:
                worker = self._workers.get(former)
            if worker is not None:
                worker.vanish()
        if pod is None:
            return
        node = (pod.get("spec") or {}).get("nodeName") or ""
        if node not in ("", self._node_name):
            return
        self._attend_pod(key, pod, bound=bool(node))

    def _attend_pod(self, key: ObjectKey, pod: Object, *, bound: bool) -> None:
        uid = uid_of(pod)
        status = pod.get("status") or {}
        finished = status.get("phase") in _FINAL_PHASES
        with self._changed:
            worker = self._workers.get(uid)
        if worker is not None:
            if is_deleting(pod):
                grace = metadata(pod).get("deletionGracePeriodSeconds")
                worker.delete(30.0 if grace is None else float(grace))
            return
        if is_deleting(pod):
            if bound or uid in self._done:
                self._remove(pod)
            return
        if finished or uid in self._done:
            return
        if status.get("startTime") and uid not in self._done and self._uids.get(key) != uid:
            self._report_lost(pod)
            return
        self._admit(key, pod, bound=bound)

    def _admit(self, key: ObjectKey, pod: Object, *, bound: bool) -> None:
        with self._changed:
            if len(self._workers) >= self._max_pods and not bound:
                self._waiting[key] = None
                return
        if self._services is None or (not bound and not self._bind(pod)):
            return
        self._serial += 1
        worker = PodWorker(pod, self._services, self._serial, self._worker_done)
        with self._changed:
            self._workers[worker.uid] = worker
        self._uids[key] = worker.uid
        worker.start()

    def _bind(self, pod: Object) -> bool:
        """Bind the pod to this node; False when another was faster or the pod is gone."""
        if not self._binds:
            return True
        binding: Object = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name_of(pod), "namespace": namespace_of(pod), "uid": uid_of(pod)},
            "target": {"apiVersion": "v1", "kind": "Node", "name": self._node_name},
        }
        try:
            self._client.create_subresource(POD, name_of(pod), "binding", binding, namespace_of(pod))
        except Conflict:
            found = self._live(pod)
            if found is not None and not is_deleting(found):
                node = (found.get("spec") or {}).get("nodeName") or ""
                if not node:
                    raise  # for another reason: it is tried again
                return bool(node == self._node_name)
            return False
        except (NotFound, MethodNotAllowed):
            if self._live(pod) is None:
                return False
            self._binds = False
        return True

    def _live(self, pod: Object) -> Object | None:
        """Read the pod anew; None when it is gone, even if another has its name."""
        try:
            found = self._client.get(POD, name_of(pod), namespace_of(pod))
        except NotFound:
            return None
        return found if uid_of(found) == uid_of(pod) else None

    def _worker_done(self, worker: PodWorker) -> None:
        with self._changed:
            del self._workers[worker.uid]
            self._done.add(worker.uid)
            # A deletion may have come while the worker ended; looked at once more it is carried out.
            self._touched[ObjectKey(worker.namespace, worker.name)] = None
            self._changed.notify_all()

    def _remove(self, pod: Object) -> None:
        try:
            remove_pod(self._client, pod)
        except (NotFound, Conflict):
            pass

    def _report_lost(self, pod: Object) -> None:
        """Report a pod Failed that a former kubelet started: its processes ended with that one."""
        now = format_time(self._clock.now())
        lost = {
            "terminated": {
                "exitCode": 137,
                "reason": "ContainerStatusUnknown",
                "message": "The container could not be located when the pod was terminated",
                "startedAt": None,
                "finishedAt": None,
            }
        }
        status: Object = dict(pod.get("status") or {})
        for field in ("initContainerStatuses", "containerStatuses"):
            if status.get(field):
                status[field] = [
                    container
                    if "terminated" in (container.get("state") or {})
                    else {**container, "state": lost, "ready": False, "started": False}
                    for container in status[field]
                ]
        status.update(phase="Failed", reason="NodeLost", message=f"The kubelet was restarted at {now}")
        patch: Object = {"metadata": {"uid": uid_of(pod)}, "status": status}
        try:
            self._client.patch(POD, name_of(pod), patch, namespace_of(pod), subresource="status")
        except (NotFound, Conflict):
            pass

    def _report(self, pod: Object, reason: str, message: str) -> None:
        now = format_time(self._clock.now())
        event: Object = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{name_of(pod)[:200]}.", "namespace": namespace_of(pod)},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": namespace_of(pod),
                "name": name_of(pod),
                "uid": uid_of(pod),
            },
            "type": "Warning",
            "reason": reason,
            "message": message[:1024],
            "source": {"component": "kubelet", "host": self._node_name},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            self._client.create(EVENT, event, namespace_of(pod))
        except ApiError as error:
            _logger.debug("an event of the pod was not written", pod=name_of(pod), err=error)

    # Node -------------------------------------------------------------------------------------------

    def _register_node(self) -> None:
        node: Object = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self._node_name, "labels": {"kubernetes.io/hostname": self._node_name}},
            "spec": {},
        }
        try:
            self._client.create(NODE, node)
            self._node_made = True
        except (NotFound, Invalid, MethodNotAllowed):
            return  # a server without nodes
        except AlreadyExists:
            pass
        self._report_ready()

    def _unregister_node(self) -> None:
        if not self._node_made:
            return
        try:
            self._client.delete(NODE, self._node_name, propagation_policy="Background")
        except ApiError as error:
            _logger.debug("the node was not removed", node=self._node_name, err=error)

    def _report_ready(self) -> None:
        now = format_time(self._clock.now())
        condition = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "kubelet is posting ready status",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        capacity = {"pods": str(self._max_pods), "cpu": "16", "memory": "64Gi"}
        status = {"conditions": [condition], "capacity": capacity, "allocatable": capacity}
        self._client.patch(NODE, self._node_name, {"status": status}, subresource="status")

    def _keep_node(self) -> None:
        """Renew the node's lease, so that a node lifecycle controller does not take it for dead."""
        while self._node_made and not self._stop.is_set():
            try:
                self._renew_lease()
            except ApiError as error:
                _logger.debug("the lease of the node was not renewed", node=self._node_name, err=error)
            self._clock.sleep(_HEARTBEAT_SECONDS, self._stop)

    def _renew_lease(self) -> None:
        spec: Object = {
            "holderIdentity": self._node_name,
            "leaseDurationSeconds": 40,
            "renewTime": format_micro_time(self._clock.now()),
        }
        try:
            self._client.patch(LEASE, self._node_name, {"spec": spec}, _LEASE_NAMESPACE)
        except NotFound:
            lease: Object = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": self._node_name, "namespace": _LEASE_NAMESPACE},
                "spec": spec,
            }
            self._client.create(LEASE, lease, _LEASE_NAMESPACE)
