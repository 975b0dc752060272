"""Where the API server is and how to authenticate: kubeconfig files and the in-cluster environment."""

from __future__ import annotations

import base64
import binascii
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from captf_runtime.client import upstream
from captf_runtime.client.credentials import Credentials, PluginCredentials, StaticCredentials, TokenFile
from captf_runtime.clock import SYSTEM_CLOCK, Clock
from captf_runtime.objects import format_time

SERVICE_ACCOUNT_DIRECTORY = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_MESSAGE_LIMIT = 256
_PLUGIN_TIMEOUT = 60.0
_EXEC_EXTENSION = "client.authentication.k8s.io/exec"


class ConfigError(Exception):
    """The configuration names something that does not exist or makes no sense; the message says what."""


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """A TLS client certificate: either two files, which are read again when they change, or PEM data."""

    certificate_file: Path | None = None
    key_file: Path | None = None
    certificate_data: bytes = field(default=b"", repr=False)
    key_data: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """Everything needed to open a connection.

    Args:
        server: URL of the API server, without a trailing slash.
        credentials: source of the `Authorization` header.
        ca_data: certificate authorities in PEM, None for those of the system.
        ca_file: the file that they were read from, which is read again when it changes; None: they stay.
        certificate: TLS client certificate, if any.
        verify: False switches off the check of the server's certificate.
        tls_server_name: name to check the server's certificate against, "" for the host of the URL.
        proxy_url: proxy to use, "" for what the environment says.
        namespace: the namespace of the context or of the pod, "" when unknown.
        source: where this was read, for messages.
    """

    server: str
    credentials: Credentials = field(default_factory=lambda: StaticCredentials(None), repr=False)
    ca_data: str | None = field(default=None, repr=False)
    certificate: ClientCertificate | None = field(default=None, repr=False)
    verify: bool = True
    tls_server_name: str = ""
    proxy_url: str = ""
    namespace: str = ""
    source: str = ""
    ca_file: Path | None = None

    def __post_init__(self) -> None:
        if not self.server.startswith(("http://", "https://")):
            raise ConfigError(
                f"{self.source or 'client configuration'}: the server must be an http or https URL, "
                f"not {self.server!r}"
            )


def load_config(
    *,
    kubeconfig: str | Path | None = None,
    context: str | None = None,
    clock: Clock = SYSTEM_CLOCK,
    environ: Mapping[str, str] | None = None,
    service_account: Path = SERVICE_ACCOUNT_DIRECTORY,
) -> ClientConfig:
    """Find the configuration: the file named, `$KUBECONFIG`, in-cluster, `$HOME/.kube/config`, in this order.

    Args:
        kubeconfig: path of a file; when given it must exist.
        context: context to use instead of the file's current one.
        environ: environment to read, default that of the process.
        service_account: directory with `token`, `ca.crt` and `namespace` of the pod.

    Raises:
        ConfigError: a named file is missing, no configuration was found, or a part of it is wrong.
    """
    environment = os.environ if environ is None else environ
    if kubeconfig is not None and str(kubeconfig):
        path = Path(kubeconfig).expanduser()
        if not path.is_file():
            raise ConfigError(f"kubeconfig {path} does not exist: name another file")
        return from_kubeconfig(str(path), context=context, clock=clock)
    listed = environment.get("KUBECONFIG", "")
    if listed:
        paths = [Path(part).expanduser() for part in listed.split(os.pathsep) if part]
        if not any(path.is_file() for path in paths):
            raise ConfigError(f"$KUBECONFIG names {listed}, and no such file exists: correct or unset it")
        return from_kubeconfig(os.pathsep.join(map(str, paths)), context=context, clock=clock)
    if environment.get("KUBERNETES_SERVICE_HOST") and environment.get("KUBERNETES_SERVICE_PORT"):
        return in_cluster(clock=clock, environ=environment, service_account=service_account)
    home = Path(environment.get("HOME", "")) / ".kube" / "config"
    if environment.get("HOME") and home.is_file():
        return from_kubeconfig(str(home), context=context, clock=clock)
    raise ConfigError(
        "no cluster configuration: give a kubeconfig, set $KUBECONFIG, or run in a pod with a ServiceAccount"
    )


def in_cluster(
    *,
    clock: Clock = SYSTEM_CLOCK,
    environ: Mapping[str, str] | None = None,
    service_account: Path = SERVICE_ACCOUNT_DIRECTORY,
) -> ClientConfig:
    """Read the configuration that every pod gets.

    Raises:
        ConfigError: not in a pod, or the ServiceAccount's files are missing.
    """
    environment = os.environ if environ is None else environ
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise ConfigError("not in a cluster: KUBERNETES_SERVICE_HOST and _PORT are not set")
    credentials = TokenFile(service_account / "token", clock=clock)
    if credentials.authorization() is None:
        raise ConfigError(f"in-cluster configuration: no token in {service_account / 'token'}")
    namespace_file = service_account / "namespace"
    return ClientConfig(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        credentials=credentials,
        ca_data=read_text(service_account / "ca.crt", "in-cluster configuration"),
        ca_file=service_account / "ca.crt",
        namespace=namespace_file.read_text(encoding="utf-8").strip() if namespace_file.is_file() else "",
        source="in-cluster configuration",
    )


def from_kubeconfig(paths: str, *, context: str | None = None, clock: Clock = SYSTEM_CLOCK) -> ClientConfig:
    """Read one or several kubeconfig files (joined like `$PATH`), merged as kubectl merges them.

    Raises:
        ConfigError: a part that is needed is missing or wrong; the message names file and field.
    """
    kube_config = upstream.load("kubernetes.config.kube_config")
    config_exception = upstream.load("kubernetes.config.config_exception").ConfigException
    try:
        merged = kube_config.KubeConfigMerger(paths).config
        if merged is None:
            raise ConfigError(f"kubeconfig {paths} is empty")
        return _Kubeconfig(merged, paths, context, clock).load()
    except config_exception as error:
        # The official messages quote whole entries, with their tokens: nothing of them may go on.
        raise ConfigError(f"kubeconfig {paths}: {_safe_part(str(error))}") from None
    except kube_config.yaml.YAMLError as error:
        # The message of the parser quotes the text around the fault.
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        raise ConfigError(f"kubeconfig {paths} is not YAML{where}") from None
    except OSError as error:
        raise ConfigError(f"kubeconfig {paths} cannot be read: {error.strerror}") from error
    except (AttributeError, KeyError, TypeError) as error:
        # The YAML is not of the shape of a kubeconfig; the official reader then trips in its own ways.
        raise ConfigError(f"kubeconfig {paths} is not a kubeconfig ({type(error).__name__})") from None


def _safe_part(message: str) -> str:
    """Say what is missing by its name, which ends before the quoted entry."""
    named = re.search(r"Expected object with name (\S+) in .*?(context|cluster|user)s list$", message)
    if named is not None:
        hint = ": kubectl config get-contexts lists them" if named.group(2) == "context" else ""
        return f"it has no {named.group(2)} {named.group(1)}{hint}"
    key = re.search(r"Expected key (\S+)", message)
    return f"it lacks the key {key.group(1)}" if key is not None else "it is not a valid kubeconfig"


def _run_plugin(
    command: list[str], environment: dict[str, str], directory: str | None, info: dict[str, Any]
) -> dict[str, Any]:
    """Run an exec credential plugin and return the `status` of what it prints."""
    name = command[0]
    try:
        done = subprocess.run(
            command,
            env={**environment, "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()},
            cwd=directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PLUGIN_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(f"exec plugin {name} did not end within {_PLUGIN_TIMEOUT:.0f} s") from None
    except OSError as error:
        raise ConfigError(f"exec plugin {name} cannot be started: {error.strerror}") from error
    if done.returncode != 0:
        told = done.stderr.decode("utf-8", "replace").strip()[-_MESSAGE_LIMIT:]
        raise ConfigError(f"exec plugin {name} failed with exit code {done.returncode}: {told}")
    try:
        credential = msgspec.json.decode(done.stdout, type=_ExecCredential)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise ConfigError(f"exec plugin {name} printed no ExecCredential with a status") from None
    if credential.apiVersion != info["apiVersion"]:
        raise ConfigError(
            f"exec plugin {name} answered in {credential.apiVersion}, not in {info['apiVersion']}"
        )
    return credential.status


class _ExecCredential(msgspec.Struct):
    apiVersion: str
    status: dict[str, Any]


class _Kubeconfig:
    """One context of a merged kubeconfig. Nodes are those of the official reader: they know their file."""

    def __init__(self, merged: Any, paths: str, context: str | None, clock: Clock) -> None:
        self._paths = paths
        self._clock = clock
        name = context or merged.safe_get("current-context")
        if not name:
            raise ConfigError(f"kubeconfig {paths} has no current-context: name a context")
        selected = merged["contexts"].get_with_name(name)["context"]
        self._namespace = selected.safe_get("namespace") or ""
        self._cluster = merged["clusters"].get_with_name(selected["cluster"])["cluster"]
        user_name = selected.safe_get("user")
        users = merged.safe_get("users")
        self._user: Any = None
        if user_name and users:
            self._user = merged["users"].get_with_name(user_name)["user"]
        self._merged = merged
        self._context = name

    def load(self) -> ClientConfig:
        cluster = self._cluster
        ca_data, ca_file = self._authorities()
        return ClientConfig(
            server=str(cluster["server"]).rstrip("/"),
            credentials=self._credentials(),
            ca_data=ca_data,
            ca_file=ca_file,
            certificate=self._certificate(),
            verify=cluster.safe_get("insecure-skip-tls-verify") is not True,
            tls_server_name=cluster.safe_get("tls-server-name") or "",
            proxy_url=cluster.safe_get("proxy-url") or "",
            namespace=self._namespace,
            source=f"kubeconfig {self._paths}",
        )

    def _authorities(self) -> tuple[str | None, Path | None]:
        data = self._cluster.safe_get("certificate-authority-data")
        if data:
            return self._decoded(data, "certificate-authority-data").decode("utf-8", "replace"), None
        file = self._cluster.safe_get("certificate-authority")
        if file:
            path = self._beside(self._cluster, file)
            return read_text(path, f"kubeconfig {self._paths}"), path
        return None, None

    def _certificate(self) -> ClientCertificate | None:
        user = self._user
        if user is None:
            return None
        data, key = user.safe_get("client-certificate-data"), user.safe_get("client-key-data")
        if data and key:
            return ClientCertificate(
                certificate_data=self._decoded(data, "client-certificate-data"),
                key_data=self._decoded(key, "client-key-data"),
            )
        file, key_file = user.safe_get("client-certificate"), user.safe_get("client-key")
        if file and key_file:
            certificate = ClientCertificate(self._beside(user, file), self._beside(user, key_file))
            for path in (certificate.certificate_file, certificate.key_file):
                if path is not None and not path.is_file():
                    raise ConfigError(f"kubeconfig {self._paths}: the file {path} does not exist")
            return certificate
        if data or key or file or key_file:
            raise ConfigError(
                f"kubeconfig {self._paths}: a client certificate needs both certificate and key, "
                "both as data or both as files"
            )
        return None

    def _credentials(self) -> Credentials:
        user = self._user
        if user is None:
            return StaticCredentials(None)
        token = user.safe_get("token")
        if token:
            return StaticCredentials.bearer(str(token))
        token_file = user.safe_get("tokenFile")
        if token_file:
            path = self._beside(user, token_file)
            if not path.is_file():
                raise ConfigError(f"kubeconfig {self._paths}: the token file {path} does not exist")
            return TokenFile(path, clock=self._clock)
        if user.safe_get("exec"):
            return PluginCredentials(self._exec_plugin(), clock=self._clock)
        if user.safe_get("auth-provider"):
            return PluginCredentials(self._auth_provider(), clock=self._clock)
        username, password = user.safe_get("username"), user.safe_get("password")
        if username and password:
            return StaticCredentials.basic(str(username), str(password))
        return StaticCredentials(None)

    def _exec_plugin(self) -> Any:
        provider = upstream.load("kubernetes.config.exec_provider").ExecProvider
        # Reads command, arguments and environment. Its own way to run the command waits without limit.
        plugin = provider(self._user["exec"], self._directory(self._user), self._cluster)
        spec: dict[str, Any] = {"interactive": False}
        if plugin.cluster is not None:
            cluster = dict(plugin.cluster.value)
            for extension in cluster.get("extensions") or ():
                if extension.get("name") == _EXEC_EXTENSION:
                    cluster["config"] = extension.get("extension")
            spec["cluster"] = cluster
        return partial(
            _run_plugin,
            [str(argument) for argument in plugin.args],
            {str(name): str(value) for name, value in plugin.env.items()},
            plugin.cwd,
            {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec},
        )

    def _auth_provider(self) -> Any:
        """Use the official loader for the old in-tree providers, which know how to refresh themselves."""
        kube_config = upstream.load("kubernetes.config.kube_config")
        loader = kube_config.KubeConfigLoader(
            self._merged, active_context=self._context, config_base_path=None
        )
        configuration_class = upstream.load("kubernetes.client.configuration").Configuration

        def fetch() -> dict[str, Any]:
            configuration = configuration_class()
            loader.load_and_set(configuration)
            header = str(configuration.api_key.get("BearerToken", ""))
            status: dict[str, Any] = {"token": header.removeprefix("Bearer ")}
            expiry = getattr(loader, "expiry", None)
            if expiry is not None:
                status["expirationTimestamp"] = format_time(expiry)
            return status

        return fetch

    def _directory(self, node: Any) -> str:
        return os.path.dirname(os.path.abspath(node.path)) if node.path else ""

    def _beside(self, node: Any, file: str) -> Path:
        """Paths in a kubeconfig are relative to the file that holds them."""
        return Path(self._directory(node), os.path.expanduser(str(file)))

    def _decoded(self, data: str, name: str) -> bytes:
        try:
            return base64.b64decode(data, validate=False)
        except (binascii.Error, ValueError) as error:
            raise ConfigError(f"kubeconfig {self._paths}: {name} is not base64") from error


def read_text(path: Path, source: str) -> str:
    """Return the text of a PEM file, whatever the encoding of the comments in it.

    Raises:
        ConfigError: it cannot be read or is empty.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ConfigError(f"{source}: cannot read {path}: {error}") from error
    if not text.strip():
        raise ConfigError(f"{source}: {path} is empty")
    return text
