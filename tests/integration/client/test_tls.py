"""TLS: trusted authorities, names, client certificates and their renewal."""

from __future__ import annotations

import os
import ssl
import tempfile
from pathlib import Path

import pytest
import trustme
from tests.integration.scripted_server import Received, Reply, ScriptedServer

from captf_runtime.client import Client, ClientCertificate, ClientConfig, ConfigError, ConnectionFailed
from captf_runtime.objects import CONFIG_MAP
from captf_runtime.testing.clock import VirtualClock

AUTHORITY = trustme.CA()


def server_context(*names: str, clients: trustme.CA | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    AUTHORITY.issue_cert(*names).configure_cert(context)
    if clients is not None:
        clients.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def pem(authority: trustme.CA) -> str:
    return authority.cert_pem.bytes().decode()


def answer(request: Received, reply: Reply) -> None:
    reply.send(200, {"metadata": {"name": "a", "namespace": "t"}})


def quick(config: ClientConfig) -> Client:
    return Client(config, clock=VirtualClock())


def test_the_authority_of_the_configuration_is_trusted_and_no_other() -> None:
    with ScriptedServer(answer, server_context("127.0.0.1")) as server:
        with quick(ClientConfig(server.url, ca_data=pem(AUTHORITY))) as client:
            assert client.get(CONFIG_MAP, "a", "t")["kind"] == "ConfigMap"
        with (
            quick(ClientConfig(server.url, ca_data=pem(trustme.CA()))) as client,
            pytest.raises(ConnectionFailed, match="certificate"),
        ):
            client.raw("GET", "/version")
        with (
            quick(ClientConfig(server.url, verify=False)) as client,
            pytest.warns(Warning, match="Unverified"),
        ):
            assert client.raw("GET", "/version").status == 200
        with (
            quick(ClientConfig(server.url, ca_data="nonsense")) as client,
            pytest.raises(ConnectionFailed, match="authority"),
        ):
            client.raw("GET", "/version")


def test_the_name_to_check_may_be_set() -> None:
    with ScriptedServer(answer, server_context("api.example.test")) as server:
        with (
            quick(ClientConfig(server.url, ca_data=pem(AUTHORITY))) as client,
            pytest.raises(ConnectionFailed),
        ):
            client.raw("GET", "/version")
        named = ClientConfig(server.url, ca_data=pem(AUTHORITY), tls_server_name="api.example.test")
        with quick(named) as client:
            assert client.raw("GET", "/version").status == 200


@pytest.mark.requirement("CL5")
def test_a_certificate_given_as_data_leaves_no_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    clients = trustme.CA()
    issued = clients.issue_cert("client")
    certificate = ClientCertificate(
        certificate_data=issued.cert_chain_pems[0].bytes(), key_data=issued.private_key_pem.bytes()
    )
    with ScriptedServer(answer, server_context("127.0.0.1", clients=clients)) as server:
        with quick(ClientConfig(server.url, ca_data=pem(AUTHORITY), certificate=certificate)) as client:
            assert client.raw("GET", "/version").status == 200
            assert list(tmp_path.iterdir()) == []
        monkeypatch.delattr(os, "memfd_create")
        with quick(ClientConfig(server.url, ca_data=pem(AUTHORITY), certificate=certificate)) as client:
            assert client.raw("GET", "/version").status == 200
            assert list(tmp_path.iterdir()) == []


def write_pair(directory: Path, issued: trustme.LeafCert) -> ClientCertificate:
    issued.cert_chain_pems[0].write_to_path(directory / "crt")
    issued.private_key_pem.write_to_path(directory / "key")
    return ClientCertificate(directory / "crt", directory / "key")


@pytest.mark.requirement("CL5")
def test_client_certificates_are_read_again_when_they_change(tmp_path: Path) -> None:
    old, new = trustme.CA(), trustme.CA()
    certificate = write_pair(tmp_path, old.issue_cert("client"))
    clock = VirtualClock()
    context = server_context("127.0.0.1", clients=new)
    with ScriptedServer(answer, context) as server:
        config = ClientConfig(server.url, ca_data=pem(AUTHORITY), certificate=certificate)
        with Client(config, clock=clock) as client:
            with pytest.raises(Exception, match=r"broke|connect"):
                client.raw("GET", "/version")
            write_pair(tmp_path, new.issue_cert("client"))
            clock.advance(60)
            assert client.raw("GET", "/version").status == 200
            # Half of a pair: the old one goes on.
            (tmp_path / "key").write_text("half")
            clock.advance(60)
            assert client.raw("GET", "/version").status == 200


def test_a_bad_client_certificate_is_named() -> None:
    certificate = ClientCertificate(certificate_data=b"x", key_data=b"y")
    with quick(
        ClientConfig("https://127.0.0.1:1", ca_data=pem(AUTHORITY), certificate=certificate)
    ) as client:
        with pytest.raises(ConnectionFailed, match="client certificate") as raised:
            client.raw("GET", "/version")
        assert isinstance(raised.value.__cause__, ConfigError)
