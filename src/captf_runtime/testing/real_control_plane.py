"""A real control plane for tests: etcd, kube-apiserver and kube-controller-manager on loopback.

    with RealControlPlane() as cluster:
        print(cluster.kubeconfig)

The binaries come from the folder that `KUBEBUILDER_ASSETS` names. Access is by RBAC with tokens from a
file: user `admin` may do everything; further users can be given. Everything lives in one temporary
directory and ends with the context, however it is left; start it from a thread that lives as long.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import http.client
import json
import os
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

ASSETS_VARIABLE = "KUBEBUILDER_ASSETS"
_NEEDED = ("etcd", "kube-apiserver")
_CONTROLLER_MANAGER = "kube-controller-manager"
_START_TIMEOUT = 180.0
_STOP_TIMEOUT = 5.0
_POLL = 0.1
_LOG_TAIL = 4096

# Controllers that need nodes, clouds or volumes have nothing to do here.
_CONTROLLERS = (
    "*,-nodeipam,-nodelifecycle,-cloud-node-lifecycle,-route,-service,-persistentvolume-binder,-attachdetach"
)


class ControlPlaneError(RuntimeError):
    """The control plane is not available or did not start; the message ends with what the failing part
    logged.
    """


def assets_directory(environ: Mapping[str, str] = os.environ) -> Path | None:
    """The folder with the binaries, or None when the environment names none that has them."""
    named = environ.get(ASSETS_VARIABLE, "")
    if not named:
        return None
    directory = Path(named)
    return directory if all(os.access(directory / name, os.X_OK) for name in _NEEDED) else None


@dataclass(frozen=True, slots=True)
class TokenUser:
    """A user who is known by a bearer token.

    Args:
        name: the user name, also the name of its context in the kubeconfig.
        token: the bearer token.
        groups: the groups, for example `system:masters`.
    """

    name: str
    token: str
    groups: tuple[str, ...] = ()


@dataclass(slots=True)
class _Part:
    """A started binary."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def tail(self) -> str:
        text = self.log.read_bytes()[-_LOG_TAIL:].decode(errors="replace")
        return f"{self.name}:\n{text}"


class RealControlPlane:
    """A control plane of real binaries. A context manager; not reusable, not thread-safe.

    Guarantees: after `__enter__` the API server is ready and the namespace `default` has its ServiceAccount
    (when the controller manager runs); after `__exit__` no process is left and the directory is gone. Were
    this process killed, the parts would be stopped by the kernel where it can do that.

    Args:
        assets: the folder with the binaries; by default what `KUBEBUILDER_ASSETS` names.
        controllers: whether to start kube-controller-manager, when the folder has it.
        users: further users besides `admin`.
        arguments: further arguments for kube-apiserver.

    Attributes:
        url: `https://127.0.0.1:<port>`.
        kubeconfig: path of a kubeconfig with a context for every user, `admin` current.
        admin: the user with all rights.
        directory: where certificates, data and logs are, while it runs.
    """

    def __init__(
        self,
        *,
        assets: Path | None = None,
        controllers: bool = True,
        users: Sequence[TokenUser] = (),
        arguments: Sequence[str] = (),
    ) -> None:
        found = assets or assets_directory()
        if found is None:
            raise ControlPlaneError(
                f"no control plane: set {ASSETS_VARIABLE} to a folder with "
                + ", ".join((*_NEEDED, _CONTROLLER_MANAGER))
            )
        self._assets = found
        self._controllers = controllers and os.access(found / _CONTROLLER_MANAGER, os.X_OK)
        self.admin = TokenUser("admin", secrets.token_hex(16), ("system:masters",))
        self.users = (self.admin, *users)
        self._arguments = tuple(arguments)
        self._parts: list[_Part] = []
        self._port = 0
        self._reserved = contextlib.ExitStack()
        self.directory = Path()
        self.ca_pem = ""

    @property
    def url(self) -> str:
        """Where the API server listens."""
        return f"https://127.0.0.1:{self._port}"

    @property
    def kubeconfig(self) -> Path:
        """A kubeconfig for all users."""
        return self.directory / "kubeconfig"

    def ssl_context(self) -> ssl.SSLContext:
        """A context that trusts the API server's certificate."""
        return ssl.create_default_context(cadata=self.ca_pem)

    def __enter__(self) -> RealControlPlane:
        self.directory = Path(tempfile.mkdtemp(prefix="captf-control-plane-"))
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop everything and remove the directory; safe to call again."""
        for part in reversed(self._parts):
            part.process.terminate()
        for part in reversed(self._parts):
            try:
                part.process.wait(_STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                part.process.kill()
                part.process.wait()
        self._parts.clear()
        self._reserved.close()
        if self.directory != Path():
            shutil.rmtree(self.directory, ignore_errors=True)

    # -- start -----------------------------------------------------------------------------------------------

    def _start(self) -> None:
        ports = [self._reserved.enter_context(reserved_port()) for _ in range(3)]
        client_port, peer_port, self._port = ports
        self._write_credentials()
        etcd_url, peer_url = f"http://127.0.0.1:{client_port}", f"http://127.0.0.1:{peer_port}"
        self._run(
            "etcd",
            "--data-dir",
            str(self.directory / "etcd"),
            "--listen-client-urls",
            etcd_url,
            "--advertise-client-urls",
            etcd_url,
            "--listen-peer-urls",
            peer_url,
            "--initial-advertise-peer-urls",
            peer_url,
            "--initial-cluster",
            f"default={peer_url}",
            "--unsafe-no-fsync",
        )
        key = str(self.directory / "service-accounts.key")
        certificates = self.directory / "certificates"
        self._run(
            "kube-apiserver",
            f"--etcd-servers={etcd_url}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--cert-dir={certificates}",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--authorization-mode=RBAC",
            f"--token-auth-file={self.directory / 'tokens.csv'}",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--allow-privileged=true",
            *self._arguments,
        )
        certificate = certificates / "apiserver.crt"
        self._wait("certificate of kube-apiserver", certificate.exists)
        self.ca_pem = certificate.read_text()
        self._wait("kube-apiserver to be ready", lambda: self._get("/readyz")[0] == 200)
        self._write_kubeconfig()
        if self._controllers:
            self._run(
                _CONTROLLER_MANAGER,
                f"--kubeconfig={self.kubeconfig}",
                f"--controllers={_CONTROLLERS}",
                f"--service-account-private-key-file={key}",
                f"--root-ca-file={certificate}",
                "--leader-elect=false",
                f"--cert-dir={certificates}",
                "--secure-port=0",
                "--port=0" if self._has_insecure_port() else "--bind-address=127.0.0.1",
            )
            account = "/api/v1/namespaces/default/serviceaccounts/default"
            self._wait("the first ServiceAccount", lambda: self._get(account)[0] == 200)

    def _has_insecure_port(self) -> bool:
        """Whether the version still knows the unencrypted port, which must then be switched off."""
        version = json.loads(self._get("/version")[1])
        return int("".join(filter(str.isdigit, version["minor"])) or 0) < 24

    def _write_credentials(self) -> None:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import rsa

        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
        self._write_private("service-accounts.key", pem)
        # A fourth column that is empty would be a group without a name.
        rows = [
            f"{user.token},{user.name},{user.name}" + (f',"{",".join(user.groups)}"' if user.groups else "")
            for user in self.users
        ]
        self._write_private("tokens.csv", ("\n".join(rows) + "\n").encode())

    def _write_private(self, name: str, content: bytes) -> None:
        path = self.directory / name
        path.touch(mode=0o600)
        path.write_bytes(content)

    def _write_kubeconfig(self) -> None:
        authority = base64.b64encode(self.ca_pem.encode()).decode()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "real", "cluster": {"server": self.url, "certificate-authority-data": authority}}
            ],
            "users": [{"name": user.name, "user": {"token": user.token}} for user in self.users],
            "contexts": [
                {"name": user.name, "context": {"cluster": "real", "user": user.name}} for user in self.users
            ],
            "current-context": self.admin.name,
        }
        self._write_private("kubeconfig", json.dumps(config).encode())

    def _run(self, name: str, *arguments: str) -> None:
        log = self.directory / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [str(self._assets / name), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                preexec_fn=_die_with_parent,
            )
        self._parts.append(_Part(name, process, log))

    def _get(self, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self._port, timeout=5, context=self.ssl_context()
        )
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {self.admin.token}"})
            response = connection.getresponse()
            return response.status, response.read()
        except OSError:
            return 0, b""
        finally:
            connection.close()

    def _wait(self, what: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _START_TIMEOUT
        pause = threading.Event()
        while not condition():
            ended = [part for part in self._parts if part.process.poll() is not None]
            if ended:
                raise ControlPlaneError(f"{ended[0].name} ended while waiting for {what}\n{ended[0].tail()}")
            if time.monotonic() > deadline:
                logs = "\n".join(part.tail() for part in self._parts)
                raise ControlPlaneError(f"waited {_START_TIMEOUT:g} s for {what}\n{logs}")
            pause.wait(_POLL)


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """A port of 127.0.0.1 for a server that must be told its port before it starts.

    While the block lasts the port is bound, but not listened on: the system gives it to nobody who asks for any
    free port, and a server that names it may listen there all the same, as long as it sets `SO_REUSEADDR`. A port
    that was merely found free may be somebody else's by the time that the server starts.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])


_LIBC = ctypes.CDLL(None)
_SET_PARENT_DEATH_SIGNAL = 1


def _die_with_parent() -> None:
    """Ask the kernel to stop the child when the starting thread ends, where that can be asked for."""
    # Runs between fork and exec: nothing may be imported or allocated here that another thread could hold a
    # lock for.
    with contextlib.suppress(AttributeError):
        _LIBC.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)
