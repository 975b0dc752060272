"""The life of one pod on this machine, in a thread of its own.

Order of events: volumes, init containers one after the other, containers together, end. Whatever ends a pod
early (its deletion, an exceeded deadline, the stop of the kubelet) is noted by `PodWorker`'s methods and
raised as `_Ending` where the thread waits; then the containers get SIGTERM, the grace period, and SIGKILL.
When the thread ends no process and no file of the pod is left; its logs stay.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from captf_runtime.client import Client
from captf_runtime.client.errors import ApiError, Conflict, NotFound, error_from_answer
from captf_runtime.clock import Clock
from captf_runtime.log import get_logger
from captf_runtime.objects import CONFIG_MAP, POD, SECRET, Kind, Object, name_of, namespace_of, uid_of

from .access import SERVICE_ACCOUNT_PATH, TOKEN_SECONDS, ApiServerAddress, kubeconfig, request_token
from .environment import container_environment, expand
from .filesystem import ContainerPaths, build_root, local_path, mounts_of, place_volumes
from .images import ImageResolver, is_valid_reference, repository_of
from .logs import LogDirectory
from .process import ContainerProcess, StartError
from .status import ContainerRecord, pod_status, running, terminated, waiting
from .volumes import NotReady, VolumeFile, volume_files, write_files

__all__ = ["NodeServices", "PodWorker", "remove_pod"]

TERMINATION_LOG = "/dev/termination-log"
_MESSAGE_BYTES = 4096
_LOG_MESSAGE_BYTES = 2048
_LOG_MESSAGE_LINES = 80
_DEFAULT_GRACE = 30.0
_FORCED_GRACE = 2.0
_FIRST_RETRY, _LONGEST_RETRY = 0.25, 2.0
_FIRST_PULL_RETRY, _LONGEST_PULL_RETRY = 1.0, 30.0
_FIRST_RESTART, _LONGEST_RESTART = 10.0, 300.0
_INHERITED = ("PATH", "LANG", "LC_ALL")
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_logger = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class NodeServices:
    """What pods share: how to reach the API server, images, directories."""

    client: Client
    clock: Clock
    resolve: ImageResolver
    directory: Path
    logs: LogDirectory
    environment: Mapping[str, str]
    address: ApiServerAddress
    report: Callable[[Object, str, str], None]
    """Writes a Warning event on a pod: pod, reason, message."""


@dataclass(slots=True)
class _Ending(Exception):
    """The pod has to end now."""

    kind: str


@dataclass(slots=True)
class _Container:
    spec: Object
    record: ContainerRecord
    init: bool
    process: ContainerProcess | None = None
    started: datetime | None = None
    due: float = 0.0
    attempts: int = 0
    finished: bool = False
    paths: ContainerPaths | None = None

    @property
    def name(self) -> str:
        return self.record.name


@dataclass(slots=True)
class _Renewal:
    due: float
    renew: Callable[[], None]


@dataclass(slots=True)
class _Requests:
    """What others asked of the worker; guarded by its condition."""

    deleted: bool = False
    vanished: bool = False
    stopped: bool = False
    grace: float = field(default=float("inf"))

    @property
    def ending(self) -> str:
        if self.vanished:
            return "vanished"
        if self.deleted:
            return "deleted"
        return "stopped" if self.stopped else ""


def remove_pod(client: Client, pod: Object) -> None:
    """Delete a pod's object for good, as a node does when the containers have ended.

    Raises:
        NotFound, Conflict: there is no such pod, or the one of this name is another.
        ApiError: any other answer.
    """
    options: Object = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": uid_of(pod)},
    }
    path = POD.path(namespace_of(pod), name_of(pod))
    answer = client.raw(
        "DELETE",
        path,
        body=json.dumps(options).encode(),
        headers={"Content-Type": "application/json"},
    )
    if answer.status >= 400:
        raise error_from_answer(answer.status, answer.data, method="DELETE", path=path)


class PodWorker:
    """Runs one pod to its end.

    Args:
        pod: the object as it was taken on.
        services: of the node.
        serial: unique among the workers; names the directory (short, since paths of sockets are limited).
        on_done: called at the very end from the worker's thread.
    """

    def __init__(
        self, pod: Object, services: NodeServices, serial: int, on_done: Callable[[PodWorker], None]
    ) -> None:
        self.uid = uid_of(pod)
        self.namespace = namespace_of(pod)
        self.name = name_of(pod)
        self._pod = pod
        self._services = services
        self._clock = services.clock
        self._directory = services.directory / str(serial)
        self._on_done = on_done
        self._changed = threading.Condition()
        self._touched = False
        self._requests = _Requests()
        self._renewals: list[_Renewal] = []
        self._reported: set[tuple[str, str]] = set()
        self._started = self._clock.now()
        self._status: Object = dict(pod.get("status") or {})
        self._published: Object = {}
        self._lost = False
        spec = pod.get("spec") or {}
        self._policy = spec.get("restartPolicy", "Always")
        deadline = spec.get("activeDeadlineSeconds")
        self._deadline = None if deadline is None else self._clock.monotonic() + float(deadline)
        reason = "PodInitializing" if spec.get("initContainers") else "ContainerCreating"
        self._init = [self._container(found, reason, init=True) for found in spec.get("initContainers") or ()]
        self._main = [self._container(found, reason, init=False) for found in spec.get("containers") or ()]
        self._places: dict[str, Path] = {}
        self._thread = threading.Thread(target=self._run, name=f"pod-{self.name}", daemon=True)

    @staticmethod
    def _container(spec: Object, reason: str, *, init: bool) -> _Container:
        record = ContainerRecord(spec.get("name", ""), spec.get("image", ""), waiting(reason))
        return _Container(spec, record, init)

    # From other threads -----------------------------------------------------------------------------

    def start(self) -> None:
        """Take the pod on."""
        self._thread.start()

    def delete(self, grace: float) -> None:
        """The pod is being deleted: end it within `grace` seconds, then remove the object."""
        with self._changed:
            self._requests.deleted = True
            self._requests.grace = min(self._requests.grace, grace)
            self._touch()

    def vanish(self) -> None:
        """The object is gone: end what runs, soon."""
        with self._changed:
            self._requests.vanished = True
            self._requests.grace = min(self._requests.grace, _FORCED_GRACE)
            self._touch()

    def stop(self, grace: float) -> None:
        """The kubelet stops: end what runs within `grace` seconds; the object stays as it is."""
        with self._changed:
            self._requests.stopped = True
            self._requests.grace = min(self._requests.grace, grace)
            self._touch()

    def join(self) -> None:
        """Wait for the worker's end, which `stop`, `delete` or `vanish` bring about."""
        self._thread.join()

    def is_running(self, container: str) -> bool:
        """Say whether the container's process runs, for readers of its log."""
        return any(
            found.name == container and found.record.is_running for found in (*self._init, *self._main)
        )

    def _touch(self) -> None:
        self._touched = True
        self._changed.notify_all()

    def _process_ended(self) -> None:
        with self._changed:
            self._touch()

    # The thread -------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            try:
                self._live()
            except _Ending as ending:
                self._end(ending.kind)
        except Exception as error:
            _logger.exception("the pod failed inside the kubelet", pod=f"{self.namespace}/{self.name}")
            self._kill_all()
            self._publish(phase="Failed", reason="KubeletError", message=type(error).__name__)
        finally:
            self._kill_all()
            shutil.rmtree(self._directory, ignore_errors=True)
            self._on_done(self)

    def _live(self) -> None:
        self._publish()
        self._until_ready(self._prepare, "FailedMount")
        for container in self._init:
            self._run_group([container])
            if container.record.exit_code != 0:
                self._publish()
                return
        if self._init:
            for container in self._main:
                container.record.state = waiting("PodInitializing")
        self._run_group(self._main)
        self._publish()

    def _until_ready(self, step: Callable[[], None], reason: str) -> None:
        pause = _FIRST_RETRY
        while True:
            try:
                step()
                return
            except NotReady as error:
                message = str(error)
                for container in (*self._init, *self._main):
                    container.record.state = waiting(container.record.state["waiting"]["reason"], message)
                self._report(reason, message)
                self._publish()
            except ApiError as error:
                _logger.debug("the pod waits for the API server", pod=self.name, err=error)
            self._pause(pause)
            pause = min(pause * 2, _LONGEST_RETRY)

    # Waiting ----------------------------------------------------------------------------------------

    def _check(self) -> None:
        """Raise when the pod has to end."""
        ending = self._requests.ending
        if ending:
            raise _Ending(ending)
        if self._deadline is not None and self._clock.monotonic() >= self._deadline:
            raise _Ending("deadline")

    def _pause(self, seconds: float | None) -> None:
        """Wait for a change, at most `seconds`; renew what is due meanwhile.

        Raises:
            _Ending: the pod has to end.
        """
        end = None if seconds is None else self._clock.monotonic() + seconds
        while True:
            self._renew()
            with self._changed:
                self._check()
                if self._touched:
                    self._touched = False
                    return
                now = self._clock.monotonic()
                if end is not None and now >= end:
                    return
                moments = [end, self._deadline, *(renewal.due for renewal in self._renewals)]
                soonest = min((moment for moment in moments if moment is not None), default=None)
                self._clock.wait_condition(
                    self._changed, None if soonest is None else max(0.0, soonest - now)
                )

    def _renew(self) -> None:
        for renewal in self._renewals:
            now = self._clock.monotonic()
            if now < renewal.due:
                continue
            try:
                renewal.renew()
                renewal.due = now + TOKEN_SECONDS * 0.8
            except (ApiError, NotReady, OSError) as error:
                _logger.warning("a token was not renewed", pod=self.name, err=error)
                renewal.due = now + 10.0

    # Volumes and roots ------------------------------------------------------------------------------

    def _prepare(self) -> None:
        self._renewals.clear()
        shutil.rmtree(self._directory, ignore_errors=True)
        self._directory.mkdir(parents=True, mode=0o700)
        spec = self._pod.get("spec") or {}
        volumes: list[Object] = spec.get("volumes") or []
        containers = [container.spec for container in (*self._main, *self._init)]
        roots = {container["name"]: self._root(container["name"]) for container in containers}
        names = [volume["name"] for volume in volumes]
        self._places = place_volumes(names, containers, roots, self._directory / ".volumes")
        unknown = sorted(set(self._places) - set(names))
        if unknown:
            raise NotReady(f'volume "{unknown[0]}" is mounted but not defined')
        for volume in volumes:
            self._fill_volume(volume, self._places[volume["name"]])
        self._prepare_service_account(containers)

    def _root(self, container: str) -> Path:
        return self._directory / container

    def _fill_volume(self, volume: Object, place: Path) -> None:
        try:
            files = volume_files(volume, self._pod, self, self._token)
        except NotReady as error:
            raise NotReady(f'MountVolume.SetUp failed for volume "{volume["name"]}" : {error}') from error
        place.mkdir(parents=True, exist_ok=True)
        if files is None:
            place.chmod(0o777)
            return
        write_files(place, files)
        sources = (volume.get("projected") or {}).get("sources") or ()
        if any("serviceAccountToken" in source for source in sources):
            self._renew_later(lambda: self._rewrite_volume(volume, place))

    def _rewrite_volume(self, volume: Object, place: Path) -> None:
        files = volume_files(volume, self._pod, self, self._token)
        if files is not None:
            write_files(place, files)

    def _renew_later(self, renew: Callable[[], None]) -> None:
        self._renewals.append(_Renewal(self._clock.monotonic() + TOKEN_SECONDS * 0.8, renew))

    def _token(self, audience: str, seconds: int) -> str:
        return request_token(self._services.client, self._pod, audience, seconds)

    def _prepare_service_account(self, containers: list[Object]) -> None:
        """Give every container the files of its ServiceAccount and a kubeconfig that names them."""
        own = self._directory / ".service-account"
        if self._needs_service_account(containers):
            try:
                self._write_service_account(own)
                self._renew_later(lambda: self._write_service_account(own))
            except NotReady:
                if (self._pod.get("spec") or {}).get("serviceAccountName", "default") != "default":
                    raise
                # Without the controller that makes it no namespace has a default ServiceAccount.
        for container in containers:
            directory = local_path(self._root(container["name"]), SERVICE_ACCOUNT_PATH)
            mounted = any(mount.path == SERVICE_ACCOUNT_PATH for mount in mounts_of(container))
            if not mounted and own.is_dir():
                directory.parent.mkdir(parents=True, exist_ok=True)
                directory.symlink_to(own)
            if mounted or own.is_dir():
                text = kubeconfig(self._services.address, self.namespace, directory / "token")
                self._kubeconfig(container["name"]).write_text(text, encoding="utf-8")

    def _needs_service_account(self, containers: list[Object]) -> bool:
        if (self._pod.get("spec") or {}).get("automountServiceAccountToken") is False:
            return False
        return not any(
            mount.path == SERVICE_ACCOUNT_PATH for found in containers for mount in mounts_of(found)
        )

    def _write_service_account(self, directory: Path) -> None:
        files = {
            "token": VolumeFile(self._token("", TOKEN_SECONDS).encode(), 0o600),
            "namespace": VolumeFile(self.namespace.encode()),
        }
        if self._services.address.ca_data is not None:
            files["ca.crt"] = VolumeFile(self._services.address.ca_data.encode())
        write_files(directory, files)

    def _kubeconfig(self, container: str) -> Path:
        return self._directory / f".kubeconfig-{container}"

    def secret(self, name: str) -> Object | None:
        """Fetch a Secret of the pod's namespace."""
        return self._fetch(SECRET, name)

    def config_map(self, name: str) -> Object | None:
        """Fetch a ConfigMap of the pod's namespace."""
        return self._fetch(CONFIG_MAP, name)

    def _fetch(self, kind: Kind, name: str) -> Object | None:
        try:
            return self._services.client.get(kind, name, self.namespace)
        except NotFound:
            return None

    # Containers -------------------------------------------------------------------------------------

    def _run_group(self, group: list[_Container]) -> None:
        """Run containers until each has come to its end."""
        while True:
            for container in group:
                if not container.finished:
                    self._advance(container)
            self._publish()
            if all(container.finished for container in group):
                return
            now = self._clock.monotonic()
            waits = [
                max(0.0, found.due - now) for found in group if not found.finished and found.process is None
            ]
            self._pause(min(waits, default=None))

    def _advance(self, container: _Container) -> None:
        if container.process is not None:
            if container.process.exit_code is not None:
                self._conclude(container)
                self._decide_restart(container)
        elif self._clock.monotonic() >= container.due:
            self._try_start(container)

    def _decide_restart(self, container: _Container) -> None:
        record = container.record
        succeeded = record.exit_code == 0
        again = self._policy == "Always" and not container.init
        if not (again or (self._policy != "Never" and not succeeded)):
            container.finished = True
            return
        delay = min(_FIRST_RESTART * 2.0 ** min(record.restart_count, 10), _LONGEST_RESTART)
        record.last_state = record.state
        message = f"back-off {delay:.0f}s restarting failed container={record.name} pod={self.name}"
        record.state = waiting("CrashLoopBackOff", message)
        record.restart_count += 1
        container.due = self._clock.monotonic() + delay

    def _try_start(self, container: _Container) -> None:
        record = container.record
        image = self._services.resolve(record.image) if is_valid_reference(record.image) else None
        if image is None:
            self._image_missing(container)
            return
        record.image_id = f"{repository_of(record.image)}@{image.digest}"
        try:
            values = container_environment(container.spec, self._pod, self)
        except NotReady as error:
            self._hold(container, "CreateContainerConfigError", str(error))
            return
        except ApiError as error:
            _logger.debug("a container waits for the API server", pod=self.name, err=error)
            container.due = self._clock.monotonic() + _LONGEST_RETRY
            return
        root = self._root(container.name)
        mounts = mounts_of(container.spec)
        build_root(root, image, mounts, self._places)
        message_path = container.spec.get("terminationMessagePath") or TERMINATION_LOG
        message_file = local_path(root, message_path)
        message_file.parent.mkdir(parents=True, exist_ok=True)
        message_file.write_bytes(b"")
        special = {message_path, SERVICE_ACCOUNT_PATH, *(mount.path for mount in mounts)}
        paths = container.paths = ContainerPaths(root, frozenset(special))
        environment = self._environment(container, paths, values)
        command = list(container.spec.get("command") or image.command)
        arguments = [*command, *(container.spec.get("args") or ())]
        translated = [paths.translate(expand(argument, values)) for argument in arguments]
        working = container.spec.get("workingDir")
        directory = Path(paths.translate(working)) if working else root
        directory.mkdir(parents=True, exist_ok=True)
        log_file = self._services.logs.file(
            self.namespace, self.name, self.uid, container.name, record.restart_count
        )
        mark = uuid.uuid4().hex
        record.container_id = f"process://{mark}"
        container.started = self._clock.now()
        container.attempts = 0
        try:
            container.process = ContainerProcess(
                translated,
                environment,
                directory=directory,
                log_file=log_file,
                mark=mark,
                host_name=self.name[:63],
                on_exit=self._process_ended,
            )
            record.state = running(container.started)
        except StartError as error:
            record.state = terminated(
                128,
                started=container.started,
                finished=self._clock.now(),
                container_id=record.container_id,
                message=f"failed to start container: {error}",
                reason="StartError",
            )
            self._decide_restart(container)

    def _image_missing(self, container: _Container) -> None:
        reference = container.record.image
        if not is_valid_reference(reference):
            message = f'Failed to apply default image tag "{reference}": invalid reference format'
            self._hold(container, "InvalidImageName", message)
            return
        if container.spec.get("imagePullPolicy") == "Never":
            message = f'Container image "{reference}" is not present with pull policy of Never'
            self._hold(container, "ErrImageNeverPull", message)
            return
        if container.attempts == 0:
            self._hold(container, "ErrImagePull", f'failed to pull image "{reference}": not found')
        else:
            self._hold(container, "ImagePullBackOff", f'Back-off pulling image "{reference}"')

    def _hold(self, container: _Container, reason: str, message: str) -> None:
        container.record.state = waiting(reason, message)
        retry = _FIRST_PULL_RETRY * 2.0 ** min(container.attempts, 10)
        container.due = self._clock.monotonic() + min(retry, _LONGEST_PULL_RETRY)
        container.attempts += 1
        self._report("Failed", f"Error: {reason}: {message}")

    def _environment(
        self, container: _Container, paths: ContainerPaths, values: Mapping[str, str]
    ) -> dict[str, str]:
        environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        environment.setdefault("PATH", _DEFAULT_PATH)
        temporary = paths.root / "tmp"
        temporary.mkdir(exist_ok=True)
        environment.update(
            HOME=str(paths.root),
            TMPDIR=str(temporary),
            HOSTNAME=self.name,
            **self._services.address.environment(),
        )
        config = self._kubeconfig(container.name)
        if config.is_file():
            environment["KUBECONFIG"] = str(config)
        for source in (self._services.environment, values):
            environment.update({name: paths.translate(value) for name, value in source.items()})
        return environment

    def _conclude(self, container: _Container) -> None:
        """Record the end of a container's process, and end what it left behind."""
        process, record = container.process, container.record
        if process is None or container.started is None:
            return
        process.kill()
        code = process.exit_code
        record.state = terminated(
            137 if code is None else code,
            started=container.started,
            finished=self._clock.now(),
            container_id=record.container_id,
            message=self._termination_message(container, failed=code != 0),
        )
        container.process = None

    def _termination_message(self, container: _Container, *, failed: bool) -> str:
        path = container.spec.get("terminationMessagePath") or TERMINATION_LOG
        try:
            with open(local_path(self._root(container.name), path), "rb") as stream:
                content = stream.read(_MESSAGE_BYTES)
        except OSError:
            content = b""
        policy = container.spec.get("terminationMessagePolicy")
        if not content and failed and policy == "FallbackToLogsOnError":
            content = self._log_tail(container)
        return content.decode("utf-8", "replace")

    def _log_tail(self, container: _Container) -> bytes:
        file = self._services.logs.file(
            self.namespace, self.name, self.uid, container.name, container.record.restart_count
        )
        tail = b"".join(self._services.logs.read(file, tail_lines=_LOG_MESSAGE_LINES))
        return tail[-_LOG_MESSAGE_BYTES:]

    # End --------------------------------------------------------------------------------------------

    def _end(self, kind: str) -> None:
        self._terminate(kind)
        if kind == "deadline":
            message = "Pod was active on the node longer than the specified deadline"
            self._publish(phase="Failed", reason="DeadlineExceeded", message=message)
        elif self._requests.vanished or kind == "stopped":
            return
        else:
            self._publish(phase="" if self._has_ended() else "Failed")
            # As on a node: nothing of the pod is left when its object goes.
            shutil.rmtree(self._directory, ignore_errors=True)
            self._insist(lambda: remove_pod(self._services.client, self._pod))

    def _has_ended(self) -> bool:
        return all(container.record.exit_code is not None for container in self._main)

    def _terminate(self, kind: str) -> None:
        """SIGTERM to the containers, SIGKILL to what is left after the grace period."""
        since = self._clock.monotonic()
        live = [found for found in (*self._init, *self._main) if found.process is not None]
        for container in live:
            if container.process is not None:
                container.process.terminate()
        with self._changed:
            while any(found.process is not None and found.process.exit_code is None for found in live):
                grace = self._requests.grace
                if kind == "deadline" and grace == float("inf"):
                    grace = self._spec_grace()
                left = since + grace - self._clock.monotonic()
                if left <= 0:
                    break
                self._clock.wait_condition(self._changed, left)
        for container in live:
            if container.process is not None:
                container.process.kill()
                self._conclude(container)
                container.finished = True

    def _spec_grace(self) -> float:
        grace = (self._pod.get("spec") or {}).get("terminationGracePeriodSeconds")
        return _DEFAULT_GRACE if grace is None else float(grace)

    def _kill_all(self) -> None:
        for container in (*self._init, *self._main):
            if container.process is not None:
                container.process.kill()

    # Reports ----------------------------------------------------------------------------------------

    def _publish(self, *, phase: str = "", reason: str = "", message: str = "") -> None:
        status = pod_status(
            self._status,
            [container.record for container in self._init],
            [container.record for container in self._main],
            restart_policy=self._policy,
            started=self._started,
            now=self._clock.now(),
            phase=phase,
            reason=reason,
            message=message,
        )
        if status == self._published:
            return
        patch: Object = {"metadata": {"uid": self.uid}, "status": status}
        self._insist(
            lambda: self._services.client.patch(POD, self.name, patch, self.namespace, subresource="status")
        )
        self._status = self._published = status

    def _insist(self, request: Callable[[], object]) -> None:
        """Make a request until the API server has taken it; not once the pod's object is gone."""
        pause = _FIRST_RETRY
        while not self._requests.vanished:
            try:
                request()
                return
            except NotFound:
                return
            except Conflict:
                if not self._is_current():
                    return
            except ApiError as error:
                _logger.debug("a write of the kubelet failed", pod=self.name, err=error)
            if self._requests.stopped:
                return
            with self._changed:
                self._clock.wait_condition(self._changed, pause)
            pause = min(pause * 2, _LONGEST_RETRY)

    def _is_current(self) -> bool:
        """Say whether the object of this name is still this pod; when it cannot be known, it is."""
        try:
            return uid_of(self._services.client.get(POD, self.name, self.namespace)) == self.uid
        except NotFound:
            return False
        except ApiError:
            return True

    def _report(self, reason: str, message: str) -> None:
        if (reason, message) not in self._reported:
            self._reported.add((reason, message))
            self._services.report(self._pod, reason, message)
