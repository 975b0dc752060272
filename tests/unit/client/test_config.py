from __future__ import annotations

import base64
import json
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest

from captf_runtime.client import ConfigError, load_config
from captf_runtime.client.transport import user_agent

SECRET_TOKEN = "very-secret-token"


def kubeconfig(
    path: Path, *, user: dict[str, Any] | None = None, cluster: dict[str, Any] | None = None, **fields: Any
) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "https://example.test:6443/", **(cluster or {})}}],
        "users": [{"name": "u", "user": {"token": SECRET_TOKEN} if user is None else user}],
        "contexts": [
            {"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "team"}},
            {"name": "y", "context": {"cluster": "c"}},
        ],
        "current-context": "x",
        **fields,
    }
    path.write_text(json.dumps(content))  # JSON is YAML
    return path


def service_account(directory: Path) -> Path:
    directory.mkdir(parents=True)
    (directory / "token").write_text("pod-token\n")
    (directory / "ca.crt").write_text("CA")
    (directory / "namespace").write_text("pod-namespace\n")
    return directory


POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.mark.requirement("CL1")
def test_sources_are_tried_in_order(tmp_path: Path) -> None:
    named = kubeconfig(tmp_path / "named", cluster={"server": "https://named.test"})
    listed = kubeconfig(tmp_path / "listed", cluster={"server": "https://listed.test"})
    kubeconfig(tmp_path / ".kube" / "config", cluster={"server": "https://home.test"})
    account = service_account(tmp_path / "account")
    environment = {"HOME": str(tmp_path), "KUBECONFIG": str(listed), **POD}

    def server(**options: Any) -> str:
        return load_config(environ=environment, service_account=account, **options).server

    assert server(kubeconfig=named) == "https://named.test"
    assert server() == "https://listed.test"
    del environment["KUBECONFIG"]
    assert server() == "https://10.0.0.1:443"
    for name in POD:
        del environment[name]
    assert server() == "https://home.test"
    environment["HOME"] = str(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="no cluster configuration"):
        server()


@pytest.mark.requirement("CL1")
def test_a_named_but_missing_file_is_an_error(tmp_path: Path) -> None:
    kubeconfig(tmp_path / ".kube" / "config")
    with pytest.raises(ConfigError, match="does not exist"):
        load_config(kubeconfig=tmp_path / "missing", environ={"HOME": str(tmp_path)})
    with pytest.raises(ConfigError, match=r"\$KUBECONFIG"):
        load_config(environ={"HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "missing")})


@pytest.mark.requirement("CL1")
def test_in_cluster_configuration(tmp_path: Path) -> None:
    account = service_account(tmp_path / "account")
    config = load_config(environ=POD, service_account=account)
    assert config.credentials.authorization() == "Bearer pod-token"
    assert (config.ca_data, config.namespace) == ("CA", "pod-namespace")
    assert config.ca_file == account / "ca.crt"
    six = load_config(environ={**POD, "KUBERNETES_SERVICE_HOST": "fd00::1"}, service_account=account)
    assert six.server == "https://[fd00::1]:443"
    (account / "token").unlink()
    with pytest.raises(ConfigError, match="no token"):
        load_config(environ=POD, service_account=account)


@pytest.mark.requirement("CL1")
def test_a_kubeconfig_gives_server_credentials_and_namespace(tmp_path: Path) -> None:
    path = kubeconfig(
        tmp_path / "config", cluster={"tls-server-name": "api", "proxy-url": "http://proxy:3128"}
    )
    config = load_config(kubeconfig=path, environ={})
    assert config.server == "https://example.test:6443"
    assert config.credentials.authorization() == f"Bearer {SECRET_TOKEN}"
    assert (config.namespace, config.tls_server_name, config.proxy_url) == (
        "team",
        "api",
        "http://proxy:3128",
    )
    assert config.verify
    other = load_config(kubeconfig=path, context="y", environ={})
    assert other.credentials.authorization() is None
    assert other.namespace == ""
    assert SECRET_TOKEN not in repr(config)


@pytest.mark.requirement("CL1")
def test_several_files_are_merged_and_paths_are_relative_to_theirs(tmp_path: Path) -> None:
    kubeconfig(tmp_path / "a" / "config", users=[])
    kubeconfig(tmp_path / "b" / "config", user={"tokenFile": "token"}, clusters=[], contexts=[])
    (tmp_path / "b" / "token").write_text("from-file")
    listed = f"{tmp_path}/a/config:{tmp_path}/missing:{tmp_path}/b/config"
    config = load_config(environ={"KUBECONFIG": listed})
    assert config.server == "https://example.test:6443"
    assert config.credentials.authorization() == "Bearer from-file"


@pytest.mark.requirement("CL1", "CL5")
def test_authorities_in_a_file_are_found_beside_the_kubeconfig_and_remembered(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", cluster={"certificate-authority": "ca.crt"})
    with pytest.raises(ConfigError, match="cannot read"):
        load_config(kubeconfig=path, environ={})
    (tmp_path / "ca.crt").write_text("")
    with pytest.raises(ConfigError, match="is empty"):
        load_config(kubeconfig=path, environ={})
    (tmp_path / "ca.crt").write_bytes("# Autorité\nCA".encode("latin-1"))
    config = load_config(kubeconfig=path, environ={})
    assert config.ca_data is not None
    assert config.ca_data.endswith("CA")
    assert config.ca_file == tmp_path / "ca.crt"


@pytest.mark.requirement("CL1")
def test_certificates_as_data_and_as_files(tmp_path: Path) -> None:
    encoded = base64.b64encode(b"PEM").decode()
    path = kubeconfig(
        tmp_path / "config",
        cluster={"certificate-authority-data": encoded},
        user={"client-certificate-data": encoded, "client-key-data": encoded},
    )
    config = load_config(kubeconfig=path, environ={})
    assert (config.ca_data, config.ca_file) == ("PEM", None)
    assert config.certificate is not None
    assert (config.certificate.certificate_data, config.certificate.key_data) == (b"PEM", b"PEM")
    assert "PEM" not in repr(config)
    (tmp_path / "crt").write_text("C")
    path = kubeconfig(tmp_path / "config", user={"client-certificate": "crt", "client-key": "key"})
    with pytest.raises(ConfigError, match="key does not exist"):
        load_config(kubeconfig=path, environ={})
    (tmp_path / "key").write_text("K")
    certificate = load_config(kubeconfig=path, environ={}).certificate
    assert certificate is not None
    assert certificate.certificate_file == tmp_path / "crt"


def exec_user(tmp_path: Path, code: str) -> dict[str, Any]:
    plugin = tmp_path / "plugin.py"
    plugin.write_text(code)
    return {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": sys.executable,
            "args": [str(plugin)],
            "env": [{"name": "GREETING", "value": "from-env"}],
        }
    }


@pytest.mark.requirement("CL1", "CL5")
def test_an_exec_plugin_provides_the_token(tmp_path: Path) -> None:
    code = (
        "import json, os\n"
        "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1', 'kind': 'ExecCredential',"
        " 'status': {'token': os.environ['GREETING']}}))\n"
    )
    path = kubeconfig(tmp_path / "config", user=exec_user(tmp_path, code))
    config = load_config(kubeconfig=path, environ={})
    assert config.credentials.authorization() == "Bearer from-env"


def printing(answer: str) -> str:
    return f"print({answer!r})"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import sys; print('reason', file=sys.stderr); raise SystemExit(3)", "exit code 3: reason"),
        (printing("no json"), "printed no ExecCredential"),
        (printing('{"apiVersion": "client.authentication.k8s.io/v1"}'), "printed no ExecCredential"),
        (printing('{"apiVersion": "client.authentication.k8s.io/v1beta1", "status": {}}'), "answered in"),
    ],
)
def test_a_failing_exec_plugin_is_named(tmp_path: Path, code: str, message: str) -> None:
    path = kubeconfig(tmp_path / "config", user=exec_user(tmp_path, code))
    credentials = load_config(kubeconfig=path, environ={}).credentials
    with pytest.raises(ConfigError, match=rf"exec plugin .*{message}"):
        credentials.authorization()


def test_an_exec_plugin_that_is_not_there_is_named(tmp_path: Path) -> None:
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/no/such/plugin"}}
    path = kubeconfig(tmp_path / "config", user=user)
    with pytest.raises(ConfigError, match="/no/such/plugin cannot be started"):
        load_config(kubeconfig=path, environ={}).credentials.authorization()


def test_an_exec_plugin_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("captf_runtime.client.config._PLUGIN_TIMEOUT", 0.2)
    path = kubeconfig(tmp_path / "config", user=exec_user(tmp_path, "import time; time.sleep(60)"))
    with pytest.raises(ConfigError, match="did not end"):
        load_config(kubeconfig=path, environ={}).credentials.authorization()


def test_an_exec_plugin_may_ask_for_the_cluster(tmp_path: Path) -> None:
    code = (
        "import json, os\n"
        "spec = json.loads(os.environ['KUBERNETES_EXEC_INFO'])['spec']\n"
        "token = spec['cluster']['server'] + ' ' + spec['cluster']['config']['audience']\n"
        "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1', 'status': {'token': token}}))\n"
    )
    user = exec_user(tmp_path, code)
    user["exec"]["provideClusterInfo"] = True
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "me"}}
    path = kubeconfig(tmp_path / "config", user=user, cluster={"extensions": [extension]})
    header = load_config(kubeconfig=path, environ={}).credentials.authorization()
    assert header == "Bearer https://example.test:6443/ me"


@pytest.mark.parametrize(
    "fields",
    [
        {"clusters": [{"name": "c", "cluster": {}}]},
        {"clusters": []},
        {"contexts": [{"name": "x", "context": {"cluster": "c", "user": "nobody"}}]},
        {"current-context": "z"},
        {"current-context": ""},
        {"users": [{"name": "u"}]},
        {"users": "nonsense"},
        {"clusters": [{"name": "c", "cluster": {"server": "example.test"}}]},
        {"users": [{"name": "u", "user": {"client-certificate-data": SECRET_TOKEN}}]},
    ],
)
def test_a_wrong_kubeconfig_is_an_error_without_secrets(tmp_path: Path, fields: dict[str, Any]) -> None:
    path = kubeconfig(tmp_path / "config", **fields)
    with pytest.raises(ConfigError) as raised:
        load_config(kubeconfig=path, environ={})
    assert str(path) in str(raised.value)
    told = "".join(traceback.format_exception(raised.value))
    assert SECRET_TOKEN not in told


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"current-context": "z"}, "it has no context z: kubectl config get-contexts lists them"),
        ({"clusters": []}, "it has no cluster c"),
        (
            {"contexts": [{"name": "x", "context": {"cluster": "c", "user": "nobody"}}]},
            "it has no user nobody",
        ),
        ({"clusters": [{"name": "c"}]}, "it lacks the key cluster"),
    ],
)
def test_what_a_kubeconfig_lacks_is_named(tmp_path: Path, fields: dict[str, Any], says: str) -> None:
    path = kubeconfig(tmp_path / "folder with spaces" / "config", **fields)
    with pytest.raises(ConfigError) as raised:
        load_config(kubeconfig=path, environ={})
    assert str(raised.value) == f"kubeconfig {path}: {says}"


@pytest.mark.parametrize("text", ["", "[]", "x", "kubeconfig: {"])
def test_a_file_that_is_no_kubeconfig_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(ConfigError, match="kubeconfig"):
        load_config(kubeconfig=path, environ={})


@pytest.mark.requirement("CL4")
def test_user_agent() -> None:
    program, _, system = user_agent("captf", "1.2").partition(" ")
    assert program == "captf/1.2"
    assert system.startswith("(")
    assert "/" in system


@pytest.mark.requirement("CL1")
def test_the_generated_models_are_never_imported(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config")
    code = (
        "import sys\n"
        "from captf_runtime.client import Client\n"
        f"client = Client.from_config(kubeconfig={str(path)!r})\n"
        "client._pool.manager()\n"
        "assert not [name for name in sys.modules if name.startswith('kubernetes')], 'left behind'\n"
        "from captf_runtime.client import upstream\n"
        "loaded = [name for name in upstream._loaded if name.startswith('kubernetes.client.')]\n"
        "assert not [name for name in loaded if 'models' in name or 'api' in name], loaded\n"
    )
    source = Path(__file__).parents[3] / "src"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(source)}, timeout=60)
