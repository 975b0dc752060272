"""Which versions, cipher suites and key exchange groups a server speaks, by their registered names.

The names of the cipher suites and the numbers of the groups are those of the IANA registries of TLS; OpenSSL
has names of its own for both.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

__all__ = ["CIPHER_SUITES", "GROUPS", "VERSIONS", "TlsOptions"]

VERSIONS: Final[Mapping[str, ssl.TLSVersion]] = {
    "VersionTLS10": ssl.TLSVersion.TLSv1,
    "VersionTLS11": ssl.TLSVersion.TLSv1_1,
    "VersionTLS12": ssl.TLSVersion.TLSv1_2,
    "VersionTLS13": ssl.TLSVersion.TLSv1_3,
}

#: Suites of TLS 1.2 and before, with OpenSSL's names.
CIPHER_SUITES: Final[Mapping[str, str]] = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
}
#: Suites of TLS 1.3: known, and always on.
TLS13_SUITES: Final = frozenset(
    {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
)

#: Groups for key exchange, with OpenSSL's names.
GROUPS: Final[Mapping[int, str]] = {
    23: "prime256v1",
    24: "secp384r1",
    25: "secp521r1",
    29: "X25519",
    30: "X448",
    4588: "X25519MLKEM768",
}


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """What a server speaks.

    Args:
        min_version: a key of `VERSIONS`.
        cipher_suites: registered names; empty: the library's default. No effect on TLS 1.3.
        groups: numbers of groups, keys of `GROUPS`; empty: the library's default. More than one needs a
            Python whose `ssl` can be told so (3.15).
    """

    min_version: str = "VersionTLS12"
    cipher_suites: Sequence[str] = ()
    groups: Sequence[int] = ()

    @property
    def minimum_version(self) -> ssl.TLSVersion:
        """Oldest version to speak."""
        return VERSIONS[self.min_version]

    def configure(self, context: ssl.SSLContext) -> None:
        """Apply suites and groups to a context.

        Raises:
            ssl.SSLError, ValueError: this library has none of the suites, or not the group.
        """
        old = [CIPHER_SUITES[name] for name in self.cipher_suites if name not in TLS13_SUITES]
        if old:
            context.set_ciphers(":".join(old))
        if not self.groups:
            return
        names = [GROUPS[number] for number in self.groups]
        set_groups = getattr(context, "set_groups", None)
        if set_groups is not None:
            cast("Callable[[str], None]", set_groups)(":".join(names))
        elif len(names) == 1:
            context.set_ecdh_curve(names[0])
        else:
            raise ValueError("this version of Python can restrict key exchange to one group only")

    def problems(self) -> list[tuple[str, str, str]]:
        """What cannot be had: (which option, the value, why); empty when all can."""
        found = []
        if self.min_version not in VERSIONS:
            found.append(("min-version", self.min_version, f"must be one of {', '.join(VERSIONS)}"))
        known = set(CIPHER_SUITES) | TLS13_SUITES
        for name in self.cipher_suites:
            if name not in known:
                found.append(("cipher-suites", name, "is not a known cipher suite"))
            elif name in CIPHER_SUITES and not self._works(cipher_suites=(name,)):
                found.append(("cipher-suites", name, "is not built into this TLS library"))
        for number in self.groups:
            if number not in GROUPS:
                known_groups = ", ".join(map(str, GROUPS))
                found.append(("curve-preferences", str(number), f"must be one of {known_groups}"))
            elif not self._works(groups=(number,)):
                found.append(("curve-preferences", str(number), "is not built into this TLS library"))
        if not found and len(self.groups) > 1 and not self._works(groups=self.groups):
            listed = ",".join(map(str, self.groups))
            found.append(
                ("curve-preferences", listed, "this version of Python can be restricted to one group only")
            )
        return found

    @staticmethod
    def _works(*, cipher_suites: Sequence[str] = (), groups: Sequence[int] = ()) -> bool:
        try:
            TlsOptions(cipher_suites=cipher_suites, groups=groups).configure(
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            )
        except (ssl.SSLError, ValueError):
            return False
        return True
