"""Everything that a run of CAPTF on one machine needs: an API server, a kubelet, the manager as a process.

Used by the tour and by the end-to-end tests. On leaving the stage every process has ended and every temporary
file is gone.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import yaml

from captf_controllers.api.kinds import WORKLOAD_KINDS
from captf_runtime.client import Client
from captf_runtime.client.errors import AlreadyExists, NotFound
from captf_runtime.objects import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    CUSTOM_RESOURCE_DEFINITION,
    NAMESPACE,
    ROLE,
    ROLE_BINDING,
    SERVICE_ACCOUNT,
    Kind,
    Object,
    name_of,
)
from captf_runtime.testing.apiserver import ApiServer
from captf_runtime.testing.apiserver.subresources import LogOptions
from captf_runtime.testing.controllers.jobs import JobController
from captf_runtime.testing.kubelet import Image, Kubelet
from hack import manifests as shipped
from hack.tour import manifests
from hack.tour.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
MODULES = ROOT / "examples" / "modules"
CRDS = ROOT / "config" / "crd"
MANAGER = "captf-controller-manager"
#: Longer than any stage stands.
TOKEN_SECONDS = 24 * 3600
CLUSTER_API = Path(__file__).with_name("cluster-api.yaml")

ACCESS_KINDS = {
    kind.kind: kind for kind in (SERVICE_ACCOUNT, ROLE, ROLE_BINDING, CLUSTER_ROLE, CLUSTER_ROLE_BINDING)
}

#: A folder with Cluster API's own definitions, installed instead of the stand-ins.
CLUSTER_API_CRDS = "CAPTF_CLUSTER_API_CRDS"


class RuntimeMissing(Exception):
    """Neither terraform nor tofu is there."""


class ManagerEnded(Exception):
    """The manager ended although nobody stopped it."""


def find_runtime(named: str = "") -> Path:
    """The Terraform or OpenTofu binary: the one named, else the first on the PATH.

    Raises RuntimeMissing with what was looked for and how to name one.
    """
    if named:
        found = shutil.which(named)
        if found is None:
            raise RuntimeMissing(f"{named} is not an executable file: name another with --runtime PATH")
        return Path(found).resolve()
    for name in ("terraform", "tofu"):
        found = shutil.which(name)
        if found is not None:
            return Path(found)
    raise RuntimeMissing(
        "neither terraform nor tofu is on the PATH: install one or name it with --runtime PATH"
    )


def documents(path: Path) -> Iterator[Object]:
    """The objects of a YAML file."""
    # Libyaml reads the definitions in a tenth of the time.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    yield from (document for document in yaml.load_all(path.read_text(), loader) if document)


@dataclass(frozen=True, slots=True)
class ManagerProcess:
    """A running ``captf-manager`` and where its log goes."""

    process: subprocess.Popen[bytes]
    log: Path


class Stage:
    """A place where CAPTF runs whole.

    Args:
        runtime: the Terraform or OpenTofu binary.
        kubeconfig: a real API server to use; without one an embedded server is started.
        modules: more module images, by reference; the example modules are always there.
        runtimes: for images that have a runtime of their own, the file; the others have this machine's.
        manager_flags: further flags of the manager.
    """

    def __init__(
        self,
        *,
        runtime: Path,
        kubeconfig: Path | None = None,
        modules: Mapping[str, Path] | None = None,
        runtimes: Mapping[str, Path] | None = None,
        manager_flags: Iterable[str] = (),
    ) -> None:
        self._runtime = runtime
        self._given = kubeconfig
        self._modules = {
            manifests.CLUSTER_IMAGE: MODULES / "cluster",
            manifests.MACHINE_IMAGE: MODULES / "machine",
            manifests.POOL_IMAGE: MODULES / "machinepool",
            **(modules or {}),
        }
        self._runtimes = dict(runtimes or {})
        self._flags = list(manager_flags)
        self._stack = ExitStack()
        self._manager: ManagerProcess | None = None
        self.server: ApiServer | None = None
        self.kubeconfig = Path()
        self.manager_kubeconfig = Path()
        self.folder = Path()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="captf-")))
            self._open(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _open(self, stack: ExitStack) -> None:
        if self._given is None:
            self.server = stack.enter_context(ApiServer(tls=True, rbac=True))
            self.kubeconfig = self.server.kubeconfig(self.folder / "kubeconfig")
        else:
            self.kubeconfig = self._given
        self.client = stack.enter_context(
            Client.from_config(kubeconfig=self.kubeconfig, user_agent="captf-tour")
        )
        self._install()
        self.manager_kubeconfig = self._manager_kubeconfig()
        if self.server is not None:
            stack.enter_context(JobController(self.client))
        self.kubelet = stack.enter_context(
            Kubelet(
                self.client,
                images=self._images(),
                root=self._short_folder(stack),
                environment={
                    "CAPTF_SERVICE_ACCOUNT_DIR": "/var/run/secrets/kubernetes.io/serviceaccount",
                    "CAPTF_RESULT": "/dev/termination-log",
                    "PATH": os.pathsep.join(
                        [str(self._runtime_folder()), os.environ.get("PATH", os.defpath)]
                    ),
                },
            )
        )
        if self.server is not None:
            self.server.register_log_provider(self._pod_log)
        stack.callback(self.stop_manager)

    def _pod_log(self, namespace: str, pod: str, options: LogOptions) -> Iterator[bytes] | None:
        return self.kubelet.log(
            namespace,
            pod,
            options.container,
            tail_lines=options.tail_lines,
            limit_bytes=options.limit_bytes,
            follow=options.follow,
            previous=options.previous,
        )

    def _short_folder(self, stack: ExitStack) -> Path:
        # Terraform makes sockets below it, whose paths are limited.
        return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cp-")))

    def _runtime_folder(self) -> Path:
        """A folder that holds the chosen runtime under the name that module images look for."""
        folder = self.folder / "bin"
        folder.mkdir(exist_ok=True)
        link = folder / ("tofu" if "tofu" in self._runtime.name else "terraform")
        if not link.exists():
            link.symlink_to(self._runtime)
        return folder

    def _images(self) -> dict[str, Image]:
        images = {}
        for reference, module in self._modules.items():
            image = Image(self._image_root(reference, module), _digest(reference))
            # Under its repository too: a pinned digest names no tag.
            images[reference] = images[reference.rpartition(":")[0]] = image
        runner = ["env", f"PYTHONPATH={ROOT / 'src'}", sys.executable, "-m", "captf_controllers.runner"]
        images[manifests.RUNNER_IMAGE] = Image(
            None, _digest(manifests.RUNNER_IMAGE), executables={"/runner": runner}
        )
        return images

    def _image_root(self, reference: str, module: Path) -> Path:
        """A module image's root: the module and the runtime that drives this machine's Terraform."""
        root = self.folder / "images" / reference.replace("/", "_").replace(":", "_")
        captf = root / "captf"
        captf.mkdir(parents=True)
        # What a person's own init and apply left in the folder is no part of the module.
        left = shutil.ignore_patterns(".terraform", ".terraform.lock.hcl", "terraform.tfstate*", ".git")
        shutil.copytree(module, captf / "module", ignore=left)
        shutil.copy(self._runtimes.get(reference, MODULES / "local-runtime"), captf / "runtime")
        (captf / "runtime").chmod(0o755)
        return root

    def _install(self) -> None:
        """Install the definitions, CAPTF's and Cluster API's, and the roles and accounts that ship."""
        folder = os.environ.get(CLUSTER_API_CRDS, "")
        cluster_api = sorted(Path(folder).glob("*.yaml")) if folder else [CLUSTER_API]
        for path in (*cluster_api, *sorted(CRDS.glob("*.yaml"))):
            for document in documents(path):
                if document["kind"] == CUSTOM_RESOURCE_DEFINITION.kind:
                    self._create(CUSTOM_RESOURCE_DEFINITION, document)
        self._create(NAMESPACE, manifests.namespace(manifests.OPERATOR))
        for document in shipped.installed():
            self._create(ACCESS_KINDS[document["kind"]], document)
        for kind in WORKLOAD_KINDS:
            wait_until(lambda kind=kind: self._served(kind), f"{kind.plural} are served", seconds=120)

    def _served(self, kind) -> bool:  # type: ignore[no-untyped-def]
        try:
            self.client.list(kind, "default", limit=1)
        except NotFound:
            return False
        return True

    def _create(self, kind: Kind, document: Object) -> None:
        namespace = document["metadata"].get("namespace", "")
        try:
            self.client.create(kind, document, namespace)
        except AlreadyExists:
            if kind in (NAMESPACE, SERVICE_ACCOUNT):
                return
            current = self.client.get(kind, name_of(document), namespace)
            document = {**document, "metadata": {**document["metadata"]}}
            document["metadata"]["resourceVersion"] = current["metadata"]["resourceVersion"]
            self.client.update(kind, document)

    def _manager_kubeconfig(self) -> Path:
        """A kubeconfig of the ServiceAccount that the installation runs the manager as."""
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": TOKEN_SECONDS},
        }
        answer = self.client.create_subresource(
            SERVICE_ACCOUNT, MANAGER, "token", request, manifests.OPERATOR
        )
        config = yaml.safe_load(self.kubeconfig.read_text())
        used = {item["name"]: item["context"] for item in config["contexts"]}[config["current-context"]]
        path = self.folder / "manager-kubeconfig"
        path.touch(mode=0o600)
        path.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [item for item in config["clusters"] if item["name"] == used["cluster"]],
                    "users": [{"name": MANAGER, "user": {"token": answer["status"]["token"]}}],
                    "contexts": [{"name": MANAGER, "context": {"cluster": used["cluster"], "user": MANAGER}}],
                    "current-context": MANAGER,
                }
            )
        )
        return path

    # The manager

    def start_manager(self, *flags: str, under: Iterable[str] = ()) -> ManagerProcess:
        """Start ``captf-manager`` as a process of its own; ``under`` is a command that executes it."""
        log = self.folder / f"manager-{len(list(self.folder.glob('manager-*.log')))}.log"
        command = [
            *under,
            sys.executable,
            "-m",
            "captf_controllers.cli.manager",
            f"--kubeconfig={self.manager_kubeconfig}",
            f"--runner-image={manifests.RUNNER_IMAGE}",
            "--health-addr=",
            "--diagnostics-address=",
            "--insecure-diagnostics=true",
            "--webhook-port=0",
            "--log-format=text",
            *self._flags,
            *flags,
        ]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
        environment.setdefault("POD_NAMESPACE", manifests.OPERATOR)
        environment.setdefault("SERVICE_ACCOUNT_NAME", MANAGER)
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, env=environment, start_new_session=True
            )
        self._manager = ManagerProcess(process, log)
        return self._manager

    def kill_manager(self) -> None:
        """SIGKILL, as a lost node would."""
        if self._manager is not None:
            self._manager.process.send_signal(signal.SIGKILL)
            self._manager.process.wait(timeout=60)
            self._manager = None

    def stop_manager(self) -> int | None:
        """SIGTERM, and the exit status; None when none runs."""
        manager, self._manager = self._manager, None
        if manager is None:
            return None
        if manager.process.poll() is None:
            manager.process.terminate()
        try:
            return manager.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            manager.process.kill()
            return manager.process.wait(timeout=60)

    def check_manager(self) -> None:
        """Raises ManagerEnded, with the end of its log, when the manager ended by itself."""
        if self._manager is not None and self._manager.process.poll() is not None:
            tail = "\n".join(self._manager.log.read_text(errors="replace").splitlines()[-20:])
            raise ManagerEnded(f"captf-manager ended with status {self._manager.process.returncode}:\n{tail}")

    @property
    def manager(self) -> ManagerProcess | None:
        return self._manager

    def manager_log(self) -> str:
        """What all managers of this stage wrote."""
        return "".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("manager-*.log")))


def _digest(reference: str) -> str:
    from hashlib import sha256

    return f"sha256:{sha256(reference.encode()).hexdigest()}"
