"""The API: what it answers, what it refuses, and that the page cannot be tricked."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

import pytest
from fastapi.testclient import TestClient
from tidestaff.streaming.settings import WebSettings
from tidestaff.streaming.web.app import Application
from tidestaff.streaming.web.security import MAX_BODY, Access
from tidestaff.streaming.web.stores import Places

from tests.streaming.web.watched import HTML, LOSS, Watched

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HERE = "http://127.0.0.1:8470"
TOKEN = "a token of sixteen letters"  # noqa: S105


def client_of(places: Places, *, client: str = "127.0.0.1", **web: Any) -> TestClient:
    settings = WebSettings.model_validate(web)
    application = Application(places, Access.of(settings))
    return TestClient(application.asgi, HERE, client=(client, 5000))


@pytest.fixture(scope="module")
def client(watched: Watched) -> Iterator[TestClient]:
    with client_of(watched.places) as found:
        yield found


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Watched]:
    found = Watched(tmp_path / "w").play(LOSS, "old").finish()
    yield found
    found.close()


def answer(client: TestClient, path: str, **query: Any) -> Any:
    found = client.get(f"/api/v1/{path}", params=query)
    assert found.status_code == 200, found.text
    return found.json()


def loss(client: TestClient) -> Any:
    return answer(client, "alerts", code="TRN001", cluster="old")["alerts"][0]


def test_the_overview_says_lost_where_and_what_to_do(client: TestClient) -> None:
    clusters = {each["cluster"]: each for each in answer(client, "overview")["clusters"]}
    old = clusters["old"]
    assert old["verdict"] == "lost"
    assert "t-0, offsets [1,2)" in old["because"]
    assert old["code"] == "TRN001"
    assert old["next_step"].startswith("Leave brokers that are down DOWN")
    assert old["ladder"]["lost"] == 1


def test_a_cluster_whose_job_does_not_run_is_blind(client: TestClient) -> None:
    clusters = {each["cluster"]: each for each in answer(client, "overview")["clusters"]}
    assert clusters["new"]["verdict"] == "blind"
    assert "does not run" in clusters["new"]["because"]


def test_alerts_that_fire_are_grouped_by_cause(client: TestClient) -> None:
    causes = answer(client, "overview")["causes"]
    assert ("old", "t-0") in {(each["cluster"], each["cause"]) for each in causes}
    assert causes[0]["alerts"][0]["code"] == "TRN001"


def test_a_partition_has_its_past_and_its_alerts(client: TestClient) -> None:
    found = answer(client, "partitions/old/t/0")
    assert found["now"]["lost"] == [[1, 2]]
    assert len(found["moments"]) > 3
    assert "TRN001" in {alert["code"] for alert in found["alerts"]}


def test_a_topic_named_like_html_is_found_by_its_name(client: TestClient) -> None:
    found = answer(client, "partitions", cluster="odd")["partitions"][0]
    assert found["topic"] == HTML
    one = client.get("/api/v1/partitions/odd/%3Cimg%20src=x%20onerror=alert(1)%3E/0")
    assert one.json()["now"]["topic"] == HTML
    assert one.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("query", "least", "most"),
    [
        pytest.param({"code": "TRN001"}, 2, 2, id="by-code"),
        pytest.param({"code": "trn"}, 2, 99, id="by-family"),
        pytest.param({"code": "TRN001", "cluster": "old"}, 1, 1, id="by-cluster"),
        pytest.param({"severity": "critical", "topic": HTML}, 1, 9, id="by-topic"),
        pytest.param({"q": "committed-offsets"}, 2, 2, id="by-the-name-of-a-rule"),
        pytest.param({"q": "img src"}, 1, 99, id="by-part-of-a-topic"),
        pytest.param({"broker": 99}, 0, 0, id="by-broker"),
        pytest.param({"status": "resolved", "code": "TRN001"}, 0, 0, id="by-status"),
        pytest.param({"until_ms": 0}, 0, 0, id="by-time"),
        pytest.param({"cluster": "' OR 1=1 --"}, 0, 0, id="a-quote-is-a-letter"),
    ],
)
def test_alerts_are_found(client: TestClient, query: Any, least: int, most: int) -> None:
    found = answer(client, "alerts", **query)
    assert least <= found["total"] <= most
    assert len(found["alerts"]) == found["total"]


def test_an_alert_is_told_whole(client: TestClient) -> None:
    found = answer(client, f"alerts/{loss(client)['fingerprint']}")
    assert found["expected"] == "leader LEO >= 2"
    assert found["evidence"]["before"]["committed"] == [0, 2]
    assert {each["status"] for each in found["history"]} >= {"firing"}
    assert found["why"]


def test_taking_an_alert_on_is_kept(own: Watched) -> None:
    with client_of(own.places) as client:
        path = f"/api/v1/alerts/{loss(client)['fingerprint']}/acknowledge"
        taken = client.post(path, json={"who": " Ada ", "why": "calling the owners"})
        assert taken.status_code == 200
        assert taken.json()["acks"][0]["who"] == "Ada"
        assert taken.json()["status"] in {"acknowledged", "resolved"}
        assert client.post(path, json={"who": "Bob", "why": "me too"}).status_code == 409


def test_a_proxy_says_who_takes_an_alert_on(own: Watched) -> None:
    with client_of(own.places, user_header="X-User") as client:
        client.headers["x-user"] = "grace"
        path = f"/api/v1/alerts/{loss(client)['fingerprint']}/acknowledge"
        taken = client.post(path, json={"who": "somebody else", "why": "restoring"})
        assert taken.json()["acks"][0]["who"] == "grace"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({"origin": "https://evil.example"}, 403, id="another-origin"),
        pytest.param({"sec-fetch-site": "cross-site"}, 403, id="another-site"),
        pytest.param({"sec-fetch-site": "same-site"}, 403, id="a-neighbour"),
        pytest.param({"content-type": "text/plain"}, 422, id="a-form-cannot-send-json"),
        pytest.param({"host": "rebound.example"}, 421, id="a-name-of-somebody-else"),
        pytest.param({"content-length": str(MAX_BODY + 1)}, 413, id="too-long"),
    ],
)
def test_other_pages_cannot_take_an_alert_on(
    watched: Watched, headers: dict[str, str], status: int
) -> None:
    with client_of(watched.places) as client:
        path = f"/api/v1/alerts/{loss(client)['fingerprint']}/acknowledge"
        sent = {"content-type": "application/json", **headers}
        found = client.post(path, content=b'{"who":"m","why":"csrf"}', headers=sent)
        assert found.status_code == status
        assert loss(client)["acknowledged"] is None


def test_what_if_names_what_a_stop_does(client: TestClient) -> None:
    all_of_them = answer(client, "what-if", cluster="new", stop=[1, 2, 3])
    assert all_of_them["counts"]["offline"] >= 1
    assert not all_of_them["safe"]
    one = answer(client, "what-if", cluster="new", stop=[99])
    assert one["safe"]
    assert one["counts"]["unchanged"] == one["partitions"]


def test_a_scenario_is_played_under_two_versions(client: TestClient) -> None:
    def raised(version: str) -> set[str]:
        play = answer(client, f"scenarios/{LOSS}", version=version)
        return {alert["code"] for step in play["steps"] for alert in step["alerts"]}

    assert "TRN001" in raised("0.10.2.2")
    assert "TRN001" not in raised("3.9.1")


@pytest.mark.parametrize(
    "path",
    [
        "alerts/ffffffffffffffff",
        "partitions/old/nothing/0",
        "what-if?cluster=nobody&stop=1",
        "scenarios/..%2F..%2Fetc%2Fpasswd",
        "scenarios/s23-loss-3.9?version=9.9",
        "rules/XXX999",
    ],
)
def test_what_is_not_there_is_said(client: TestClient, path: str) -> None:
    found = client.get(f"/api/v1/{path}")
    assert found.status_code == 404
    assert found.json()["detail"]


def test_every_code_has_its_runbook(client: TestClient) -> None:
    for rule in answer(client, "rules"):
        assert answer(client, f"rules/{rule['code']}")["runbook"].startswith(f"# {rule['code']}")


def test_coverage_says_what_is_not_seen(client: TestClient) -> None:
    clusters = {each["cluster"]: each for each in answer(client, "coverage")["clusters"]}
    assert "no leader epochs" in clusters["old"]["blind_spots"][0]
    assert clusters["new"]["replicas_with_epochs"] > 0


def test_an_export_is_a_table_without_formulas(own: Watched) -> None:
    own.play(LOSS, "odd", "=cmd|'/c calc'!A1").finish()
    with client_of(own.places) as client:
        found = client.get("/api/v1/export/alerts")
        assert found.headers["content-type"].startswith("text/csv")
        rows = list(csv.reader(io.StringIO(found.text)))
        assert rows[0][0] == "fingerprint"
        assert not [cell for row in rows for cell in row if cell.startswith(("=", "+", "@"))]
        plain = client.get("/api/v1/export/alerts", params={"format": "json"}).json()
        assert len(plain) == len(rows) - 1


def test_browsers_are_told_to_trust_nobody(client: TestClient) -> None:
    found = client.get("/")
    policy = found.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert found.headers["x-content-type-options"] == "nosniff"
    assert found.headers["cache-control"] == "no-store"
    assert "http://" not in found.text
    assert "https://" not in found.text


def test_the_page_asks_no_other_server_for_anything(client: TestClient) -> None:
    from tidestaff.streaming.web.routes import STATIC  # noqa: PLC0415 - a path

    for path in STATIC.iterdir():
        text = path.read_text(encoding="utf-8")
        found = [word for word in text.split() if "http://" in word or "https://" in word]
        assert [word for word in found if "www.w3.org" not in word] == [], path.name
        assert client.get(f"/static/{path.name}").status_code == 200
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        for path in STATIC.glob("*.js"):
            assert word not in path.read_text(encoding="utf-8"), path.name


class TestWithAToken:
    """Nobody without it sees anything but the empty page."""

    @pytest.fixture
    def client(self, watched: Watched) -> Iterator[TestClient]:
        with client_of(watched.places, host="192.0.2.1", token=TOKEN) as found:
            yield found

    def test_strangers_are_refused(self, client: TestClient) -> None:
        found = client.get("/api/v1/overview")
        assert found.status_code == 401
        assert client.get("/healthz").status_code == 200
        assert client.get("/").status_code == 200
        wrong = client.get("/api/v1/overview", headers={"authorization": "Bearer x"})
        assert wrong.status_code == 401

    def test_programs_send_it(self, client: TestClient) -> None:
        headers = {"authorization": f"Bearer {TOKEN}"}
        assert client.get("/api/v1/overview", headers=headers).status_code == 200

    def test_people_log_in_and_out(self, client: TestClient) -> None:
        assert client.post("/api/v1/log-in", json={"token": "wrong"}).status_code == 401
        logged_in = client.post("/api/v1/log-in", json={"token": TOKEN})
        cookie = logged_in.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "samesite=strict" in cookie.lower()
        assert TOKEN not in cookie
        assert client.get("/api/v1/overview").status_code == 200
        client.post("/api/v1/log-out")
        assert client.get("/api/v1/overview").status_code == 401

    def test_a_session_ends_and_cannot_be_made_up(self) -> None:
        access = Access(token=TOKEN)
        session = access.session(1_000)
        assert access.is_session(session, 1_001)
        assert not access.is_session(session, 1_000 + 13 * 3600)
        assert not access.is_session("9" * 10 + ".0", 1_000)
        assert not Access(token="another token of mine").is_session(session, 1_001)  # noqa: S106


def test_a_header_of_a_stranger_is_not_believed(watched: Watched) -> None:
    settings = {"host": "192.0.2.1", "user_header": "X-User", "trusted_proxies": ["10.0.0.0/8"]}
    with client_of(watched.places, client="10.1.2.3", **settings) as proxy:
        assert proxy.get("/api/v1/overview", headers={"x-user": "ada"}).status_code == 200
        assert proxy.get("/api/v1/overview").status_code == 401
    with client_of(watched.places, client="192.0.2.9", **settings) as stranger:
        assert stranger.get("/api/v1/overview", headers={"x-user": "ada"}).status_code == 401


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.com"])  # noqa: S104
def test_the_world_is_not_listened_to_without_a_log_in(host: str) -> None:
    with pytest.raises(ValueError, match="can be reached from other machines"):
        WebSettings(host=host)
    assert WebSettings(host=host, user_header="X-User").host == host


def test_readiness_says_why_not(client: TestClient, tmp_path: Path) -> None:
    found = client.get("/readyz")
    assert found.status_code == 503
    assert found.json()["reasons"] == ["the monitoring job does not run"]
    nothing = Places(tmp_path, tmp_path / "alerts.sqlite", tmp_path / "state.sqlite")
    with client_of(nothing) as empty:
        assert empty.get("/readyz").status_code == 503
        assert empty.get("/healthz").json()["status"] == "ok"
        unreadable = empty.get("/api/v1/overview")
        assert unreadable.status_code == 503
        assert "there is no such file" in unreadable.json()["detail"]


def test_the_api_is_documented(client: TestClient) -> None:
    paths = client.get("/api/openapi.json").json()["paths"]
    assert {"/api/v1/overview", "/api/v1/alerts", "/healthz"} <= set(paths)
    for operations in paths.values():
        for operation in operations.values():
            assert operation["summary"]
