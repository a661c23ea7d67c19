"""Client properties as people have them: the format, what each means, and what is said of what
cannot be used. No error ever shows a value."""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tidestaff.connectors.broker_options import options_of
from tidestaff.connectors.client_properties import (
    KNOWN,
    client_options,
    load_properties,
    parse_properties,
)
from tidestaff.connectors.errors import (
    ConnectorError,
    OptionError,
    PropertiesFileError,
    TokenError,
)
from tidestaff.connectors.oauth_tokens import EndpointToken, FileToken, UnsecuredToken

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECRET = "hunter2"  # noqa: S105 - not one
SCRAM = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512"}


# -- the format


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param("a=1\nb = 2\nc:3\nd 4", {"a": "1", "b": "2", "c": "3", "d": "4"}, id="ways"),
        pytest.param("# no\n! neither\n\n  a=1", {"a": "1"}, id="comments-and-blanks"),
        pytest.param("a=1 \\\n   2\\\n3", {"a": "1 23"}, id="continued-lines"),
        pytest.param("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}, id="a-backslash-of-its-own"),
        pytest.param("a=\\u00e9\\t\\=", {"a": "é\t="}, id="escapes"),
        pytest.param("a\\=b=c", {"a=b": "c"}, id="an-escaped-separator"),
        pytest.param("a=b=c", {"a": "b=c"}, id="the-first-separator-counts"),
        pytest.param("a=", {"a": ""}, id="an-empty-value"),
        pytest.param("a=1\r\nb=2\r", {"a": "1", "b": "2"}, id="lines-of-other-systems"),
        pytest.param("a=1\\", {"a": "1"}, id="continued-at-the-end"),
    ],
)
def test_a_file_is_read_as_java_reads_it(text: str, found: dict[str, str]) -> None:
    assert parse_properties(text, "x") == found


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("a=1\nhunter2", "x, line 2: found no name=value", id="no-separator"),
        pytest.param("=hunter2", "x, line 1: found no name=value", id="no-name"),
        pytest.param("a=1\na=hunter2", "x, line 2: a stands there twice", id="twice"),
    ],
)
def test_what_is_no_property_is_told_with_its_line_and_without_its_value(
    text: str, says: str
) -> None:
    with pytest.raises(PropertiesFileError, match=says) as caught:
        parse_properties(text, "x")
    assert SECRET not in str(caught.value)


@settings(deadline=None)
@given(st.text(max_size=200))
def test_no_text_does_anything_but_be_read_or_refused(text: str) -> None:
    try:
        found = parse_properties(text, "x")
    except PropertiesFileError:
        return
    assert all(found)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(KNOWN), st.text(max_size=40), max_size=6))
def test_no_values_do_anything_but_give_options_or_be_refused(values: dict[str, str]) -> None:
    try:
        client_options(values)
    except ConnectorError as error:
        shown = str(error)
        assert not any(len(v) > 9 and v.isprintable() and v in shown for v in values.values())


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PropertiesFileError, match=r"no\.properties: No such file"):
        load_properties(tmp_path / "no.properties")


def test_a_file_in_the_encoding_of_java_is_read(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_bytes("client.id=caf\xe9".encode("iso-8859-1"))
    assert load_properties(path) == {"client.id": "café"}


# -- what properties mean


def test_without_properties_nothing_is_encrypted() -> None:
    assert client_options({}) == {"security_protocol": "PLAINTEXT"}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "scram-sha-512"])
def test_user_and_password_come_from_jaas(mechanism: str) -> None:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    jaas = f'{module} required username="me" password="s;e \\"c\\"=ret";'
    found = client_options(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": jaas,
        }
    )
    assert found == {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism.upper(),
        "sasl_plain_username": "me",
        "sasl_plain_password": 's;e "c"=ret',
    }


def test_numbers_are_numbers_and_what_means_nothing_to_a_reader_is_left_out() -> None:
    found = client_options(
        {"request.timeout.ms": "9000", "group.id": "g", "acks": "all", "retries": "5"}
    )
    assert found == {"security_protocol": "PLAINTEXT", "request_timeout_ms": 9_000}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        pytest.param(
            {"sasl.mecanism": SECRET},
            r"sasl\.mecanism is not a known client property: did you mean sasl\.mechanism\?",
            id="nearly-known",
        ),
        pytest.param({"zzz.top": SECRET}, "zzz.top is not a known", id="unknown"),
        pytest.param({"security.protocol": "TLS"}, "PLAINTEXT, SSL, SASL_PL", id="no-protocol"),
        pytest.param(SCRAM, "has no username and password", id="no-credentials"),
        pytest.param(
            {**SCRAM, "sasl.jaas.config": f'x required password="{SECRET}";'},
            "has no username and password",
            id="half-the-credentials",
        ),
        pytest.param(
            {**SCRAM, "sasl.mechanism": "DIGEST-MD5"}, "is not supported: take PLAIN", id="md5"
        ),
        pytest.param({"request.timeout.ms": "soon"}, "no whole number", id="no-number"),
        pytest.param(
            {"sasl.jaas.config": f'x required username="a" password="{SECRET}";'},
            "sasl.jaas.config has no effect with security.protocol PLAINTEXT",
            id="credentials-without-a-protocol",
        ),
        pytest.param(
            {"security.protocol": "SSL", "ssl.truststore.location": "/no/such.pem"},
            "cannot be read .No such file",
            id="no-truststore",
        ),
        pytest.param(
            {"security.protocol": "SSL", "ssl.enabled.protocols": "SSLv3"},
            "take TLSv1.2, TLSv1.3 or both",
            id="an-old-protocol",
        ),
        pytest.param(
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"},
            "token.endpoint.url is missing",
            id="no-tokens",
        ),
        pytest.param(
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.token.endpoint.url": "https://tokens/",
                "sasl.jaas.config": f'x required clientSecret="{SECRET}";',
            },
            "has no clientId and clientSecret",
            id="no-client",
        ),
    ],
)
def test_what_cannot_be_used_is_named_with_a_remedy(given: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says) as caught:
        client_options(given)
    assert SECRET not in str(caught.value)
    assert caught.value.remedy


def test_a_file_gives_the_options_and_what_is_said_beside_it_counts_more(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\nrequest.timeout.ms=7000\n"
        f'sasl.jaas.config=x required \\\n  username="me" \\\n  password="{SECRET}";\n',
        encoding="utf-8",
    )
    options = {"bootstrap_servers": "a:1", "command_config": str(path)}
    found = options_of({**options, "sasl.mechanism": "SCRAM-SHA-512"}, {})
    assert found.properties["sasl_mechanism"] == "SCRAM-SHA-512"
    assert found.properties["sasl_plain_password"] == SECRET
    assert found.timeout_ms == 7_000
    assert SECRET not in repr(found)
    with pytest.raises(OptionError, match=r"sasl\.mech of .*client\.properties is not a known"):
        options_of({**options, "sasl.mech": "x"}, {})


# -- TLS


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and its certificate, in the formats people have."""
    folder = tmp_path_factory.mktemp("stores")
    name = ["-days", "2", "-subj", "/CN=localhost", "-newkey", "rsa:2048"]
    commands = [
        ["openssl", "req", "-x509", "-nodes", *name, "-keyout", "key.pem", "-out", "cert.pem"],
        [
            "openssl",
            "rsa",
            "-aes128",
            "-passout",
            f"pass:{SECRET}",
            "-in",
            "key.pem",
            "-out",
            "locked.pem",
        ],
        [
            "openssl",
            "pkcs12",
            "-export",
            "-inkey",
            "key.pem",
            "-in",
            "cert.pem",
            "-passout",
            f"pass:{SECRET}",
            "-out",
            "store.p12",
        ],
    ]
    for command in commands:
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    both = (folder / "key.pem").read_text() + (folder / "cert.pem").read_text()
    (folder / "both.pem").write_text(both)
    locked = (folder / "locked.pem").read_text() + (folder / "cert.pem").read_text()
    (folder / "locked-both.pem").write_text(locked)
    (folder / "store.jks").write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    return folder


def context_of(given: dict[str, str]) -> ssl.SSLContext:
    found = client_options({"security.protocol": "SSL", **given})["ssl_context"]
    assert isinstance(found, ssl.SSLContext)
    return found


def test_only_the_named_truststore_is_trusted(stores: Path) -> None:
    context = context_of({"ssl.truststore.location": str(stores / "cert.pem")})
    assert len(context.get_ca_certs()) == 1
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED


def test_an_empty_identification_algorithm_leaves_the_host_name_out_and_no_more() -> None:
    context = context_of({"ssl.endpoint.identification.algorithm": ""})
    assert not context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED


def test_protocols_are_limited() -> None:
    context = context_of({"ssl.enabled.protocols": "TLSv1.3"})
    assert context.minimum_version is context.maximum_version is ssl.TLSVersion.TLSv1_3


@pytest.mark.parametrize("blank", ["\n", " "], ids=["lines", "one-line"])
def test_certificates_and_keys_may_stand_in_the_property_itself(stores: Path, blank: str) -> None:
    certificate, key = ((stores / n).read_text().strip() for n in ("cert.pem", "key.pem"))
    context = context_of(
        {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": certificate.replace("\n", blank),
            "ssl.keystore.certificate.chain": certificate.replace("\n", blank),
            "ssl.keystore.key": key.replace("\n", blank),
        }
    )
    assert len(context.get_ca_certs()) == 1


def test_a_locked_key_needs_its_password_and_nobody_is_asked_on_the_terminal(stores: Path) -> None:
    given = {"ssl.keystore.location": str(stores / "locked-both.pem")}
    context_of({**given, "ssl.key.password": SECRET})
    with pytest.raises(OptionError, match=r"ssl\.keystore\.location is encrypted"):
        context_of(given)
    with pytest.raises(OptionError, match="cannot be used together") as caught:
        context_of({**given, "ssl.key.password": "wrong-password"})
    assert "wrong-password" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        pytest.param({"ssl.truststore.location": "store.p12"}, "openssl pkcs12", id="pkcs12"),
        pytest.param({"ssl.keystore.location": "store.jks"}, "keytool -importkeystore", id="jks"),
        pytest.param({"ssl.truststore.location": "key.pem"}, "no certificate", id="no-cert"),
        pytest.param({"ssl.keystore.location": "cert.pem"}, "private key", id="no-key"),
        pytest.param({"ssl.key.location": "key.pem"}, "key without its cert", id="key-alone"),
        pytest.param(
            {"ssl.truststore.type": "PKCS12", "ssl.truststore.location": "store.p12"},
            "is not PEM: .*openssl pkcs12",
            id="said-to-be-pkcs12",
        ),
    ],
)
def test_a_store_that_cannot_be_used_says_how_to_make_one_that_can(
    stores: Path, given: dict[str, str], says: str
) -> None:
    places = {n: v if n.endswith("type") else str(stores / v) for n, v in given.items()}
    with pytest.raises(OptionError, match=says):
        context_of(places)


@pytest.mark.parametrize("before", ["", " ", "key: "])
def test_a_key_that_stands_where_its_place_should_is_not_shown(before: str) -> None:
    key = f"{before}-----BEGIN PRIVATE KEY----- {SECRET} -----END PRIVATE KEY-----"
    with pytest.raises(OptionError, match="is not PEM") as caught:
        context_of({"ssl.keystore.type": "JKS", "ssl.keystore.location": key})
    assert SECRET not in str(caught.value)


# -- tokens


def parts(token: str) -> list[Any]:
    return [json.loads(base64.urlsafe_b64decode(p + "==")) for p in token.split(".") if p]


def test_an_unsecured_token_is_a_fresh_one_each_time() -> None:
    now = [1_000.0]
    source = UnsecuredToken("me", lambda: now[0])
    assert parts(source.token()) == [{"alg": "none"}, {"sub": "me", "iat": 1_000, "exp": 4_600}]
    now[0] = 2_000
    assert parts(source.token())[1]["exp"] == 5_600


def test_a_token_in_a_file_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one\n")
    source = FileToken(path)
    assert source.token() == "one"
    path.write_text("two\n")
    assert source.token() == "two"
    path.unlink()
    with pytest.raises(TokenError, match=r"no token from .*token .FileNotFoundError"):
        source.token()


HEAD = b"HTTP/1.0 200 OK\r\n"
ODD_ANSWERS = {
    "/moved": b"HTTP/1.0 302 Found\r\nLocation: /elsewhere\r\n\r\n",
    "/cut": HEAD + b"Content-Length: 500\r\n\r\n{}",
    "/no-http": b"\x15\x03\x01\x00\x02\x02\x46",
    "/endless": HEAD + b'\r\n{"access_token": "t", "more": "' + b"x" * 1_000_000 + b'"}',
    "/deep": HEAD + b"\r\n" + b"[" * 100_000,
    "/no-number": HEAD + b'\r\n{"access_token": "t", "expires_in": NaN}',
}


class Endpoint(BaseHTTPRequestHandler):
    """Hands out numbered tokens to whoever has the credentials."""

    asked: list[str] = []  # noqa: RUF012 - one endpoint at a time
    got: list[str] = []  # noqa: RUF012

    def do_GET(self) -> None:
        """Where a redirect would lead: with the credentials, if they were taken along."""
        self.got.append(str(self.headers["Authorization"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"access_token": "of another"}')

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if self.path in ODD_ANSWERS:
            self.wfile.write(ODD_ANSWERS[self.path])
            return
        wanted = "Basic " + base64.b64encode(f"me:{SECRET}".encode()).decode()
        right = self.headers["Authorization"] == wanted
        self.asked.append(body)
        self.send_response(200 if right else 401)
        self.end_headers()
        answer = {"access_token": f"token-{len(self.asked)}", "expires_in": 100}
        self.wfile.write(json.dumps(answer).encode() if right else b"no")

    def log_message(self, *_: object) -> None:
        """Nothing on the terminal."""


@pytest.fixture
def endpoint() -> Iterator[str]:
    Endpoint.asked.clear()
    Endpoint.got.clear()
    server = HTTPServer(("127.0.0.1", 0), Endpoint)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/token"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_token_of_an_endpoint_is_used_for_most_of_its_life(endpoint: str) -> None:
    now = [0.0]
    source = EndpointToken(endpoint, "me", SECRET, "read", lambda: now[0])
    assert [source.token(), source.token()] == ["token-1", "token-1"]
    assert Endpoint.asked == ["grant_type=client_credentials&scope=read"]
    now[0] = 79.0
    assert source.token() == "token-1"
    now[0] = 80.0
    assert source.token() == "token-2"


def test_an_endpoint_that_refuses_is_told_without_the_secret(endpoint: str) -> None:
    with pytest.raises(TokenError, match=r"127\.0\.0\.1 .HTTP 401") as caught:
        EndpointToken(endpoint, "you", SECRET).token()
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("path", ODD_ANSWERS)
def test_an_odd_answer_is_no_token_and_the_credentials_go_nowhere_else(
    endpoint: str, path: str
) -> None:
    url = endpoint.replace("/token", path)
    with pytest.raises(TokenError, match=r"no token from 127\.0\.0\.1") as caught:
        EndpointToken(url, "me", SECRET).token()
    assert SECRET not in str(caught.value)
    assert Endpoint.got == []


def test_a_token_that_lives_for_ever_is_asked_for_again_after_a_year(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = HEAD + b'\r\n{"access_token": "t", "expires_in": 1' + b"0" * 400 + b"}"
    monkeypatch.setitem(ODD_ANSWERS, "/for-ever", answer)
    assert EndpointToken(endpoint.replace("/token", "/for-ever"), "me", SECRET).token() == "t"
