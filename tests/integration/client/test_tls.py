"""TLS: trusted authorities, names, client certificates and their renewal."""

from __future__ import annotations

import os
import socket
import ssl
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography import x509
from tests.integration.client.endings import timed_out
from tests.integration.scripted_server import Received, Reply, ScriptedServer

from captf_runtime.client import (
    Client,
    ClientCertificate,
    ClientConfig,
    ConfigError,
    ConnectionFailed,
    Stopped,
    TransportError,
)
from captf_runtime.client.credentials import PluginCredentials
from captf_runtime.objects import CONFIG_MAP, format_time
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


@pytest.mark.requirement("CL5")
def test_authorities_in_a_file_are_read_again_when_they_change(tmp_path: Path) -> None:
    file = tmp_path / "ca.crt"
    file.write_text(pem(trustme.CA()))
    clock = VirtualClock()
    with ScriptedServer(answer, server_context("127.0.0.1")) as server:
        config = ClientConfig(server.url, ca_data=file.read_text(), ca_file=file)
        with Client(config, clock=clock) as client:
            with pytest.raises(ConnectionFailed, match="certificate"):
                client.raw("GET", "/version")
            # A new authority is noticed with the next request after one that it would have made good.
            file.write_text(f"# Autorité\n{pem(AUTHORITY)}")
            assert client.raw("GET", "/version").status == 200
            # Half of a file: the old one goes on.
            for half in ("", pem(AUTHORITY)[:100]):
                file.write_text(half)
                clock.advance(60)
                assert client.raw("GET", "/version").status == 200
            # One that is taken away is trusted no more, within a minute.
            file.write_text(pem(trustme.CA()))
            clock.advance(60)
            with pytest.raises(ConnectionFailed, match="certificate"):
                client.raw("GET", "/version")


@pytest.mark.requirement("CL5")
def test_the_certificate_of_a_plugin_is_used_as_soon_as_it_is_renewed() -> None:
    old, new = trustme.CA(), trustme.CA()
    clock = VirtualClock()
    issued = iter([old.issue_cert("client"), new.issue_cert("client")])

    def plugin() -> dict[str, Any]:
        certificate = next(issued)
        return {
            "clientCertificateData": certificate.cert_chain_pems[0].bytes().decode(),
            "clientKeyData": certificate.private_key_pem.bytes().decode(),
            "expirationTimestamp": format_time(clock.now() + timedelta(seconds=20)),
        }

    with ScriptedServer(answer, server_context("127.0.0.1", clients=new)) as server:
        credentials = PluginCredentials(plugin, clock=clock)
        config = ClientConfig(server.url, credentials=credentials, ca_data=pem(AUTHORITY))
        with Client(config, clock=clock) as client:
            with pytest.raises(TransportError):
                client.raw("GET", "/version")
            clock.advance(18)  # the plugin is asked again two seconds before its certificate expires
            assert client.raw("GET", "/version").status == 200


def test_a_bad_client_certificate_is_named() -> None:
    certificate = ClientCertificate(certificate_data=b"x", key_data=b"y")
    with quick(
        ClientConfig("https://127.0.0.1:1", ca_data=pem(AUTHORITY), certificate=certificate)
    ) as client:
        with pytest.raises(ConnectionFailed, match="client certificate") as raised:
            client.raw("GET", "/version")
        assert isinstance(raised.value.__cause__, ConfigError)


@pytest.mark.requirement("CL3")
def test_an_answer_that_drags_on_over_tls_does_not_outlast_the_time_of_a_call() -> None:
    def dribble(_: Received, reply: Reply) -> None:
        reply.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
        while not reply.stopped.wait(0.02):
            reply.write(b"x")

    with (
        ScriptedServer(dribble, server_context("127.0.0.1")) as server,
        Client(ClientConfig(server.url, ca_data=pem(AUTHORITY))) as client,
    ):
        timed_out(lambda timeout: client.raw("PUT", "/version", timeout=timeout))


@pytest.fixture
def slow_lookup(monkeypatch: pytest.MonkeyPatch) -> VirtualClock:
    """A clock on which it takes 99 seconds to find out that slow.example.test is this host."""
    ask = socket.getaddrinfo
    clock = VirtualClock()

    def slow(host: str, *args: Any, **kwargs: Any) -> Any:
        if host != "slow.example.test":
            return ask(host, *args, **kwargs)
        if kwargs.get("flags", 0) & socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "not an address")
        clock.advance(99.0)
        return ask("127.0.0.1", *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    return clock


@pytest.mark.requirement("CL3")
@pytest.mark.parametrize("secure", [True, False])
def test_a_handshake_and_a_body_get_what_the_lookup_left_of_the_time_of_a_call(
    slow_lookup: VirtualClock, secure: bool
) -> None:
    # The kernel connects, and nobody reads what comes.
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = f"slow.example.test:{listener.getsockname()[1]}"
        config = ClientConfig(
            f"https://{server}" if secure else f"http://{server}", ca_data=pem(AUTHORITY) if secure else None
        )
        with Client(config, clock=slow_lookup) as client:
            started = time.monotonic()
            with pytest.raises(TransportError):
                client.raw("PUT", "/version", body=b"x" * 40_000_000, timeout=100.0)
            assert time.monotonic() - started < 60


@pytest.mark.requirement("CL15", "G3")
def test_closing_ends_a_handshake_that_nobody_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor() as pool:
        config = ClientConfig(f"https://127.0.0.1:{listener.getsockname()[1]}", ca_data=pem(AUTHORITY))
        with Client(config) as client:
            running = pool.submit(client.raw, "GET", "/version")
            with listener.accept()[0] as connection:
                assert connection.recv(1)  # it has begun
                started = time.monotonic()
                client.close()
                with pytest.raises(Stopped):
                    running.result(25)
                assert time.monotonic() - started < 4


@pytest.mark.requirement("CL3")
def test_a_body_over_tls_gets_what_the_lookup_left_of_the_time_of_a_call(slow_lookup: VirtualClock) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    context = server_context("slow.example.test")
    over = threading.Event()

    def greet(plain: socket.socket) -> None:
        with suppress(OSError), plain, context.wrap_socket(plain, server_side=True):
            over.wait(60)

    def accept() -> None:
        with suppress(OSError):
            while True:
                pool.submit(greet, listener.accept()[0])

    def put(left: float) -> None:
        client.raw("PUT", "/version", body=b"x" * 40_000_000, timeout=99.0 + left)

    config = ClientConfig(f"https://slow.example.test:{listener.getsockname()[1]}", ca_data=pem(AUTHORITY))
    with ThreadPoolExecutor() as pool, listener, Client(config, clock=slow_lookup) as client:
        pool.submit(accept)
        try:
            timed_out(put, TransportError)
        finally:
            over.set()
            listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.requirement("CL5")
def test_401_looks_at_a_client_certificate_again_and_repeats_the_request_once(tmp_path: Path) -> None:
    old, new = trustme.CA(), trustme.CA()
    certificate = write_pair(tmp_path, old.issue_cert("client"))
    context = server_context("127.0.0.1", clients=old)
    new.configure_trust(context)

    def script(request: Received, reply: Reply) -> None:
        assert isinstance(reply._connection, ssl.SSLSocket)
        issuer = dict(entry[0] for entry in (reply._connection.getpeercert() or {})["issuer"])
        reply.send(200 if issuer["organizationalUnitName"] == trusted else 401)

    def unit(authority: trustme.CA) -> str:
        parsed = x509.load_pem_x509_certificate(authority.cert_pem.bytes())
        return str(parsed.subject.get_attributes_for_oid(x509.NameOID.ORGANIZATIONAL_UNIT_NAME)[0].value)

    trusted = unit(old)
    with ScriptedServer(script, context) as server:
        config = ClientConfig(server.url, ca_data=pem(AUTHORITY), certificate=certificate)
        with quick(config) as client:
            assert client.raw("GET", "/version").status == 200
            trusted = unit(new)
            write_pair(tmp_path, new.issue_cert("client"))
            assert client.raw("DELETE", "/version").status == 200
            assert len(server.requests) == 3
            trusted = "nobody"
            assert client.raw("DELETE", "/version").status == 401
            assert len(server.requests) == 4  # nothing has changed: nothing to repeat for
