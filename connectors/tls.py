"""TLS as client properties describe it: stores in PEM, as files or in the property itself."""

from __future__ import annotations

import contextlib
import ssl
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidestaff.connectors.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

TLS_PROPERTIES: Final = (
    *("ssl.truststore.location", "ssl.truststore.type", "ssl.truststore.password"),
    *("ssl.truststore.certificates", "ssl.keystore.location", "ssl.keystore.type"),
    *("ssl.keystore.password", "ssl.keystore.key", "ssl.keystore.certificate.chain"),
    *("ssl.key.password", "ssl.endpoint.identification.algorithm", "ssl.protocol"),
    *("ssl.enabled.protocols", "ssl.ca.location", "ssl.certificate.location", "ssl.key.location"),
)

_BEGIN: Final = b"-----BEGIN "
_JKS: Final = b"\xfe\xed\xfe\xed"
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def tls_context(values: Mapping[str, str], named: Callable[[str], str]) -> ssl.SSLContext:
    """`named` says where a property stands, for errors; values and file contents never appear.

    Whoever names a truststore trusts nobody else; without one the system's certificates count.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for name in ("ssl.truststore.type", "ssl.keystore.type"):
        _check_type(name, values, named)
    _trust(context, values, named)
    _identify(context, values, named)
    # Kafka's way to say that the host name need not be in the certificate is an empty value.
    context.check_hostname = bool(values.get("ssl.endpoint.identification.algorithm", "https"))
    _limit_versions(context, values, named)
    return context


def _trust(context: ssl.SSLContext, values: Mapping[str, str], named: Callable[[str], str]) -> None:
    name = _given(values, "ssl.truststore.certificates", "ssl.truststore.location")
    name = name or _given(values, "ssl.ca.location")
    if name is None:
        context.load_default_certs()
        return
    pem = _pem(name, values[name], named)
    try:
        context.load_verify_locations(cadata=pem.decode("ascii", "replace"))
    except (ssl.SSLError, ValueError):
        raise OptionError(
            named(name), "holds no certificate that can be read", "give certificates in PEM"
        ) from None


def _identify(
    context: ssl.SSLContext, values: Mapping[str, str], named: Callable[[str], str]
) -> None:
    chain = _given(values, "ssl.keystore.certificate.chain", "ssl.keystore.location")
    chain = chain or _given(values, "ssl.certificate.location")
    key = _given(values, "ssl.keystore.key", "ssl.key.location")
    if chain is None:
        if key is not None:
            raise OptionError(
                named(key),
                "is a key without its certificate",
                "give ssl.keystore.certificate.chain, or ssl.keystore.location with both",
            )
        return
    password = values.get("ssl.key.password") or values.get("ssl.keystore.password")

    def ask() -> str:
        # Without this the library would ask on the terminal.
        if password is None:
            raise OptionError(named(key or chain), "is encrypted", "give ssl.key.password")
        return password

    parts = [_pem(name, values[name], named) for name in (key, chain) if name is not None]
    with _private_file(b"\n".join(parts)) as path:
        try:
            context.load_cert_chain(path, password=ask)
        except (ssl.SSLError, ValueError):
            raise OptionError(
                named(key or chain),
                "and its certificate cannot be used together",
                "give a private key and the chain of its certificate in PEM, and the key's "
                "password as ssl.key.password",
            ) from None


def _limit_versions(
    context: ssl.SSLContext, values: Mapping[str, str], named: Callable[[str], str]
) -> None:
    name = _given(values, "ssl.enabled.protocols", "ssl.protocol")
    if name is None or values[name] == "TLS":
        return
    asked = [each.strip() for each in values[name].split(",")]
    if not all(each in _VERSIONS for each in asked):
        raise OptionError(named(name), "is not supported", "take TLSv1.2, TLSv1.3 or both")
    context.minimum_version = min(_VERSIONS[each] for each in asked)
    if name == "ssl.enabled.protocols":
        context.maximum_version = max(_VERSIONS[each] for each in asked)


def _check_type(name: str, values: Mapping[str, str], named: Callable[[str], str]) -> None:
    kind = values.get(name, "PEM").upper()
    if kind != "PEM":
        place = values.get(name.replace(".type", ".location"), "STORE")
        # A location may be the key itself, which is shown to nobody.
        shown = "STORE" if _BEGIN.decode() in place else place
        raise OptionError(named(name), "is not PEM", _conversion(shown, kind))


def _pem(name: str, value: str, named: Callable[[str], str]) -> bytes:
    """The value itself where it is PEM already, otherwise the content of the file it names."""
    if value.lstrip().startswith(_BEGIN.decode()):
        # A property is one line; Kafka allows its parts to be told apart by blanks.
        return _lines_again(value).encode()
    try:
        content = Path(value).expanduser().read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no path"
        raise OptionError(
            named(name), f"cannot be read ({reason})", "name a PEM file that can be read here"
        ) from None
    if _BEGIN in content:
        return content
    kind = "JKS" if content.startswith(_JKS) else "PKCS12"
    raise OptionError(named(name), "is not a PEM file", _conversion(value, kind))


def _lines_again(value: str) -> str:
    """Headers and footers on lines of their own, whatever blanks stood for line breaks."""
    text = " ".join(value.split())
    found = []
    for part in text.replace("-----BEGIN ", "\n-----BEGIN ").strip().split("\n"):
        head, _, rest = part.partition("----- ")
        body, _, foot = rest.partition(" -----END ")
        found += [f"{head}-----", *body.split(" "), f"-----END {foot.strip()}"]
    return "\n".join(found) + "\n"


def _conversion(place: str, kind: str) -> str:
    convert = f"openssl pkcs12 -in {place} -nodes -out store.pem"
    if kind == "JKS":
        convert = (
            f"keytool -importkeystore -srckeystore {place} -destkeystore store.p12 "
            "-deststoretype PKCS12; openssl pkcs12 -in store.p12 -nodes -out store.pem"
        )
    return f"make it PEM and name that, type PEM: {convert}"


def _given(values: Mapping[str, str], *names: str) -> str | None:
    return next((name for name in names if values.get(name)), None)


@contextlib.contextmanager
def _private_file(content: bytes) -> Iterator[str]:
    """The library takes keys from files only: one that nobody else may read, gone at once."""
    with tempfile.NamedTemporaryFile(prefix="tidestaff-", suffix=".pem") as out:
        out.write(content)
        out.flush()
        yield out.name
