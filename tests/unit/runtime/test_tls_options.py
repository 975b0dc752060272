"""Which TLS options are accepted, and what they do to a context."""

from __future__ import annotations

import ssl

import pytest

from captf_runtime.serving import TlsOptions
from captf_runtime.serving.tls_options import CIPHER_SUITES, GROUPS, VERSIONS


def test_the_defaults_are_the_librarys() -> None:
    options = TlsOptions()
    assert options.problems() == []
    assert options.minimum_version is ssl.TLSVersion.TLSv1_2
    untouched, configured = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    options.configure(configured)
    assert configured.get_ciphers() == untouched.get_ciphers()


def test_what_is_not_known_is_named_with_its_value() -> None:
    options = TlsOptions("VersionTLS14", ("TLS_NO_SUCH_SUITE", "TLS_AES_128_GCM_SHA256"), (1,))
    assert [(option, value) for option, value, _ in options.problems()] == [
        ("min-version", "VersionTLS14"),
        ("cipher-suites", "TLS_NO_SUCH_SUITE"),
        ("curve-preferences", "1"),
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_has_a_name(version: str) -> None:
    assert TlsOptions(version).problems() == []


@pytest.mark.parametrize(
    "suite", ["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_RSA_WITH_AES_128_GCM_SHA256"]
)
def test_only_the_suites_asked_for_are_left_of_the_older_ones(suite: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    TlsOptions(cipher_suites=(suite,)).configure(context)
    older = [cipher["name"] for cipher in context.get_ciphers() if cipher["protocol"] != "TLSv1.3"]
    assert older == [CIPHER_SUITES[suite]]


@pytest.mark.parametrize("group", [23, 24, 25, 29])
def test_a_group_can_be_asked_for(group: int) -> None:
    assert group in GROUPS
    assert TlsOptions(groups=(group,)).problems() == []


@pytest.mark.skipif(hasattr(ssl.SSLContext, "set_groups"), reason="this Python can be told of several groups")
def test_several_groups_are_refused_where_python_cannot_be_told() -> None:
    ((option, value, why),) = TlsOptions(groups=(23, 24)).problems()
    assert (option, value) == ("curve-preferences", "23,24")
    assert "one group only" in why
