"""Certificates for connections between machines that don't trust the network between them.

    tls = load_tls("certificates/10.0.0.2")    # a node's directory, as `minga cert` makes it
    Member(..., tls=tls)

Both sides have a certificate of the same small authority, and both look at the other's: the member also whether it is
made out to the address that it connects to. The token is needed all the same.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from minga.errors import ConfigError

__all__ = ["AUTHORITY_FILE", "CERTIFICATE_FILE", "KEY_FILE", "Tls", "load_tls", "why_not"]

AUTHORITY_FILE = "authority.pem"
CERTIFICATE_FILE = "node.pem"
KEY_FILE = "node.key"


@dataclass(frozen=True)
class Tls:
    """Settings for both ends of connections."""

    server: ssl.SSLContext
    """For the side that accepts."""
    client: ssl.SSLContext
    """For the side that connects; give `server_hostname`, the address that it connects to."""


def load_tls(directory: str | Path) -> Tls:
    """A node's certificate, its key and the authority's certificate."""
    files = [Path(directory).expanduser() / name for name in (AUTHORITY_FILE, CERTIFICATE_FILE, KEY_FILE)]
    for file in files:
        if not file.is_file():
            raise ConfigError(
                f"{str(directory)!r} has no {file.name}; give the directory of one node, DIR/ADDRESS as made by "
                "`minga cert DIR --for ADDRESS`"
            )
    authority, certificate, key = files
    contexts = []
    for purpose in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT):
        context = ssl.SSLContext(purpose)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(cafile=authority)
            context.load_cert_chain(certificate, key)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"the certificates in {str(directory)!r} can't be used: {error}; make new ones with `minga cert`"
            ) from None
        contexts.append(context)
    server, client = contexts
    client.check_hostname = True
    return Tls(server, client)


def why_not(error: ssl.SSLError) -> str:
    """Why there is no TLS connection, with what to do where that is clear."""
    reason = error.reason or str(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        words = error.verify_message.strip().rstrip(".")
        return f"{reason}: the other side's certificate is not accepted here ({words}); {_remedy(words)}"
    if "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason):
        return f"{reason}: the other side does not accept the certificate of this one; {_remedy(reason)}"
    return reason


def _remedy(words: str) -> str:
    if "EXPIRED" in words.upper() or "not yet valid" in words:
        return "make a new one with `minga cert`, and look at the clocks of both machines"
    if "mismatch" in words:
        return "make one for the address that others connect to: `minga cert DIR --for ADDRESS`"
    return "both need certificates of one authority, made by `minga cert` in one directory"
