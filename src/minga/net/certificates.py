"""A small certificate authority in a directory, and certificates of nodes (`minga cert`).

    make_certificates(Path("certificates"), ["10.0.0.1", "10.0.0.2"], days=365)
    # certificates/authority.key                                  stays where it is made
    # certificates/10.0.0.2/{authority.pem,node.pem,node.key}     goes to that node

Needs the library `cryptography` (the extra `minga[tls]`); using certificates does not.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from minga.base.lazy import lazy_module
from minga.errors import ConfigError, UnsupportedError
from minga.net.tls import AUTHORITY_FILE, CERTIFICATE_FILE, KEY_FILE

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
else:
    x509 = lazy_module("cryptography.x509")
    hashes = lazy_module("cryptography.hazmat.primitives.hashes")
    serialization = lazy_module("cryptography.hazmat.primitives.serialization")
    ec = lazy_module("cryptography.hazmat.primitives.asymmetric.ec")

__all__ = ["make_certificates"]

_AUTHORITY_KEY_FILE = "authority.key"
_NAME = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(\.(?!-)[A-Za-z0-9-]{1,63}){0,3}")
_AUTHORITY_DAYS = 3650
# Clocks of machines differ; a certificate should not be too new for one of them.
_SKEW = datetime.timedelta(days=1)


def make_certificates(directory: Path, addresses: Iterable[str], *, days: int = 365) -> list[Path]:
    """A directory for each address (an IP address or a host's name); the authority is made with the first ones."""
    wanted = list(dict.fromkeys(addresses))
    for address in wanted:
        _check(address)
        if (directory / address).exists():
            raise ConfigError(f"{directory / address} is there already; remove it to have a new certificate made")
    if not 1 <= days <= _AUTHORITY_DAYS:
        raise ConfigError(f"days: {days} is not between 1 and {_AUTHORITY_DAYS}")
    _load_library()
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        authority = _authority(directory)
        return [_node(directory, address, authority, days) for address in wanted]
    except OSError as error:
        raise ConfigError(f"can't write to {directory}: {error.strerror}; choose another directory") from None


def _check(address: str) -> None:
    try:
        number = ipaddress.ip_address(address)
    except ValueError:
        number = None
    if number is not None and number.is_unspecified:
        raise ConfigError(f"{address} stands for all addresses of a machine; give the one that others connect to")
    if number is None and not _NAME.fullmatch(address):
        raise ConfigError(f"{address!r} is neither an IP address nor the name of a host")


def _load_library() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise UnsupportedError(
            "making certificates needs the library cryptography: pip install 'minga[tls]'. "
            "It is not needed on the nodes that use them"
        ) from None


def _authority(directory: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """The one that is there, or a new one."""
    certificate_file, key_file = directory / AUTHORITY_FILE, directory / _AUTHORITY_KEY_FILE
    if certificate_file.exists() != key_file.exists():
        raise ConfigError(
            f"{directory} has one of {AUTHORITY_FILE} and {_AUTHORITY_KEY_FILE} only; choose another directory"
        )
    if certificate_file.exists():
        try:
            key = serialization.load_pem_private_key(key_file.read_bytes(), password=None)
            certificate = x509.load_pem_x509_certificate(certificate_file.read_bytes())
        except ValueError as error:
            raise ConfigError(
                f"the authority in {directory} can't be read: {error}; choose another directory"
            ) from None
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return certificate, key
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Minga's authority of " + directory.name[:30])])
    certificate = _builder(name, name, key, key, _AUTHORITY_DAYS, signs=True).sign(key, hashes.SHA256())
    _write(key_file, _pem_of_key(key), 0o600)
    _write(certificate_file, certificate.public_bytes(serialization.Encoding.PEM), 0o644)
    return certificate, key


def _node(
    directory: Path, address: str, authority: tuple[x509.Certificate, ec.EllipticCurvePrivateKey], days: int
) -> Path:
    certificate, authority_key = authority
    key = ec.generate_private_key(ec.SECP256R1())
    try:
        alternative: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        alternative = x509.DNSName(address)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, address[:64])])
    builder = _builder(name, certificate.subject, key, authority_key, days, signs=False)
    builder = builder.add_extension(x509.SubjectAlternativeName([alternative]), critical=False)
    both = [x509.oid.ExtendedKeyUsageOID.SERVER_AUTH, x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = builder.add_extension(x509.ExtendedKeyUsage(both), critical=False)
    signed = builder.sign(authority_key, hashes.SHA256())
    target = directory / address
    target.mkdir(mode=0o700)
    _write(target / KEY_FILE, _pem_of_key(key), 0o600)
    _write(target / CERTIFICATE_FILE, signed.public_bytes(serialization.Encoding.PEM), 0o644)
    _write(target / AUTHORITY_FILE, certificate.public_bytes(serialization.Encoding.PEM), 0o644)
    return target


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer_key: ec.EllipticCurvePrivateKey,
    days: int,
    *,
    signs: bool,
) -> x509.CertificateBuilder:
    """A certificate but for its signature; `signs`: whether it may sign others."""
    now = datetime.datetime.now(datetime.UTC)  # certificates speak of dates; nothing else here does
    usage = x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    issuer_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(issuer_id, critical=False)
        .add_extension(x509.BasicConstraints(ca=signs, path_length=0 if signs else None), critical=True)
        .add_extension(usage, critical=True)
    )


def _pem_of_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, content: bytes, mode: int) -> None:
    """A new file with its rights from the start: a key is never readable for others, not even for a moment."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
