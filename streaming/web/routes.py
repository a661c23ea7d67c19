"""The API, /api/v1: reading, and taking an alert on."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path as FilePath
from typing import Annotated, Any, Final

from fastapi import APIRouter, HTTPException, Path, Query, Request, Response
from fastapi.responses import FileResponse, PlainTextResponse, StreamingResponse
from tidestaff.consistency.catalogue import BY_CODE, CATALOGUE
from tidestaff.streaming.alerts.errors import NoSuchAlertError, StoreError
from tidestaff.streaming.view.reading import PartitionFilter
from tidestaff.streaming.web import models, plays
from tidestaff.streaming.web.alert_search import AlertQuery, as_csv, search
from tidestaff.streaming.web.coverage import coverage
from tidestaff.streaming.web.events import Listeners
from tidestaff.streaming.web.overview import overview
from tidestaff.streaming.web.runbooks import rule_detail, rule_row
from tidestaff.streaming.web.security import COOKIE, REFUSAL_PAUSE_S, SESSION_S, Access
from tidestaff.streaming.web.stores import Stores
from tidestaff.streaming.web.what_if import what_if

STATIC: Final = FilePath(__file__).resolve().parent / "static"
MOST_EXPORTED: Final = 10_000
_REFUSED: Final[dict[int | str, dict[str, Any]]] = {
    401: {"model": models.Problem, "description": "Not logged in."},
    503: {"model": models.Problem, "description": "The store cannot be read."},
}
_UNKNOWN: Final[dict[int | str, dict[str, Any]]] = {
    404: {"model": models.Problem, "description": "There is no such thing."}
}
_NUMBER: Final = 2**31 - 1
_TIME: Final = 2**53

Name = Annotated[str, Query(max_length=300)]
Number = Annotated[int, Query(ge=0, le=_NUMBER)]
Time = Annotated[int, Query(ge=0, le=_TIME)]
ClusterName = Annotated[str, Path(max_length=300)]
TopicName = Annotated[str, Path(max_length=300)]
PartitionNumber = Annotated[int, Path(ge=0, le=_NUMBER)]
Fingerprint = Annotated[str, Path(pattern=r"^[0-9a-f]{1,16}$")]
Code = Annotated[str, Path(pattern=r"^[A-Z]{3}[0-9]{3}$")]
ScenarioName = Annotated[str, Path(max_length=100)]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def page_routes(stores: Stores) -> APIRouter:
    """The page itself, and whether the server is well."""
    router = APIRouter()

    @router.get("/", include_in_schema=False)
    def page() -> FileResponse:
        return FileResponse(STATIC / "index.html")

    @router.get("/healthz", tags=["health"], summary="Whether the server lives")
    def healthz() -> models.Health:
        return models.Health(status="ok")

    @router.get(
        "/readyz",
        tags=["health"],
        summary="Whether there is something true to show",
        responses={503: {"model": models.Health, "description": "Not yet, or not any more."}},
    )
    def readyz(response: Response) -> models.Health:
        reasons = []
        try:
            with stores.alerts() as reader:
                clocks = reader.clocks()
            if not clocks:
                reasons.append("no batch has been done yet")
        except StoreError as error:
            reasons.append(error.problem)
        if stores.job() is None:
            reasons.append("the monitoring job does not run")
        if reasons:
            response.status_code = 503
        return models.Health(status="not ready" if reasons else "ok", reasons=reasons)

    return router


def session_routes(access: Access) -> APIRouter:
    """Logging in with the token; the browser keeps a cookie that scripts cannot read."""
    router = APIRouter(prefix="/api/v1", tags=["session"])

    @router.get("/session", summary="Whether a log-in is needed, and who is logged in")
    def session(request: Request) -> models.Session:
        user = request.scope["state"]["user"]
        return models.Session(needed=access.asks, token=access.token is not None, user=user)

    @router.post(
        "/log-in",
        summary="Log in",
        status_code=204,
        responses={
            400: {"model": models.Problem, "description": "The body is no text."},
            401: {"model": models.Problem, "description": "Another token is needed."},
            403: {"model": models.Problem, "description": "Only the page itself may do this."},
        },
    )
    async def log_in(login: models.Login, request: Request) -> Response:
        if not access.is_token(login.token):
            await asyncio.sleep(REFUSAL_PAUSE_S)
            raise HTTPException(401, "that is not the token (web.token of the configuration)")
        response = Response(status_code=204)
        response.set_cookie(
            COOKIE,
            access.session(time.time()),
            max_age=SESSION_S,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return response

    @router.post("/log-out", summary="Log out", status_code=204)
    def log_out() -> Response:
        response = Response(status_code=204)
        response.delete_cookie(COOKIE)
        return response

    return router


def state_routes(stores: Stores, listeners: Listeners) -> APIRouter:
    """Clusters and partitions."""
    router = APIRouter(prefix="/api/v1", tags=["state"], responses=_REFUSED)

    @router.get("/overview", summary="Is data lost or at risk, where, why, what to do")
    def show_overview() -> models.Overview:
        return models.Overview.model_validate(overview(stores, now_ms()))

    @router.get("/partitions", summary="Search partitions")
    def partitions(
        cluster: Name | None = None,
        topic: Name | None = None,
        q: Name | None = None,
        broker: Number | None = None,
        flag: models.Flag | None = None,
        verified: bool | None = None,
        limit: Annotated[int, Query(ge=1, le=500)] = 50,
        offset: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
    ) -> models.PartitionPage:
        wanted = PartitionFilter(cluster, topic, q, broker, flag, verified)
        with stores.state() as reader:
            found, total = reader.partitions(wanted, limit=limit, offset=offset)
        return models.PartitionPage.model_validate({"partitions": found, "total": total})

    @router.get(
        "/partitions/{cluster}/{topic}/{partition}",
        summary="One partition now, its past and its alerts",
        responses=_UNKNOWN,
    )
    def partition(
        cluster: ClusterName, topic: TopicName, partition: PartitionNumber
    ) -> models.PartitionView:
        with stores.state() as reader:
            now = reader.partition(cluster, topic, partition)
            if now is None:
                raise HTTPException(404, f"{topic}-{partition} is not known in {cluster}")
            moments = reader.moments(cluster, topic, partition)
        query = AlertQuery(cluster=cluster, topic=topic, partition=partition)
        alerts, _ = search(stores.places.alerts, query, limit=50)
        return models.PartitionView.model_validate(
            {"now": now, "moments": moments, "alerts": alerts}
        )

    @router.get("/what-if", summary="What a stop of brokers would do", responses=_UNKNOWN)
    def show_what_if(
        cluster: Name,
        stop: Annotated[list[Number], Query(min_length=1, max_length=100)],
        controlled: bool = False,
    ) -> models.WhatIf:
        with stores.state() as reader:
            if cluster not in {doc["cluster"] for doc in reader.clusters()}:
                raise HTTPException(404, f"cluster {cluster} is not known")
            found = what_if(reader, cluster, frozenset(stop), controlled=controlled)
        return models.WhatIf.model_validate(found)

    @router.get("/coverage", summary="What is seen, and what cannot be judged")
    def show_coverage() -> models.Coverage:
        return models.Coverage.model_validate(coverage(stores, now_ms()))

    @router.get(
        "/events",
        summary="Server-sent events: `change` when there is something new",
        response_class=StreamingResponse,
        responses={
            200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}},
            429: {"model": models.Problem, "description": "Too many pages are open."},
        },
    )
    async def events(request: Request) -> Response:
        if listeners.full:
            raise HTTPException(429, "too many pages are open: close some")
        stream = listeners.stream(request.is_disconnected)
        return StreamingResponse(stream, media_type="text/event-stream")

    return router


def alert_routes(stores: Stores) -> APIRouter:
    """Alerts, and taking them on."""
    router = APIRouter(prefix="/api/v1", tags=["alerts"], responses=_REFUSED)

    def asked(
        cluster: Name | None = None,
        topic: Name | None = None,
        broker: Number | None = None,
        code: Annotated[str | None, Query(pattern=r"^[A-Za-z]{1,3}[0-9]{0,3}$")] = None,
        severity: models.Severity | None = None,
        status: models.Status | None = None,
        open_only: bool = False,
        since_ms: Time | None = None,
        until_ms: Time | None = None,
        q: Name | None = None,
    ) -> AlertQuery:
        return AlertQuery(
            cluster=cluster,
            topic=topic,
            broker=broker,
            code=code,
            severity=severity,
            status=status,
            open_only=open_only,
            since_ms=since_ms,
            until_ms=until_ms,
            text=q,
        )

    _add_search(router, stores, asked)

    @router.get(
        "/alerts/{fingerprint}", summary="One alert with all that is behind it", responses=_UNKNOWN
    )
    def alert(fingerprint: Fingerprint) -> models.AlertDetail:
        return models.AlertDetail.model_validate(_whole(stores, fingerprint))

    @router.post(
        "/alerts/{fingerprint}/acknowledge",
        summary="Take an alert on",
        responses={
            **_UNKNOWN,
            400: {"model": models.Problem, "description": "The body is no text."},
            403: {"model": models.Problem, "description": "Only the page itself may do this."},
            409: {"model": models.Problem, "description": "It is taken on, or over, already."},
        },
    )
    def acknowledge(
        fingerprint: Fingerprint, ack: models.Ack, request: Request
    ) -> models.AlertDetail:
        who = request.scope["state"]["user"] or ack.who
        with stores.alerts() as reader:
            try:
                reader.alert(fingerprint)
            except NoSuchAlertError as error:
                raise HTTPException(404, error.problem) from None
            try:
                reader.acknowledge(fingerprint, who=who, why=ack.why, now_ms=now_ms())
            except NoSuchAlertError as error:
                raise HTTPException(409, error.problem) from None
        return models.AlertDetail.model_validate(_whole(stores, fingerprint))

    return router


def _add_search(router: APIRouter, stores: Stores, asked: Any) -> None:
    from fastapi import Depends  # noqa: PLC0415 - beside its only use

    Asked = Annotated[AlertQuery, Depends(asked)]  # noqa: N806 - a type

    def alerts(
        query: Asked,
        limit: Annotated[int, Query(ge=1, le=500)] = 50,
        offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
    ) -> models.AlertPage:
        found, total = search(stores.places.alerts, query, limit=limit, offset=offset)
        return models.AlertPage.model_validate({"alerts": found, "total": total})

    def export(
        query: Asked,
        form: Annotated[str, Query(alias="format", pattern="^(csv|json)$")] = "csv",
    ) -> Response:
        found, _ = search(stores.places.alerts, query, limit=MOST_EXPORTED)
        name = f'attachment; filename="tidestaff-alerts.{form}"'
        headers = {"content-disposition": name}
        if form == "csv":
            return PlainTextResponse(as_csv(found), headers=headers, media_type="text/csv")
        return Response(json.dumps(found), headers=headers, media_type="application/json")

    for function in (alerts, export):
        function.__annotations__["query"] = Asked
    router.add_api_route(
        "/alerts", alerts, summary="Search alerts", response_model=models.AlertPage
    )
    router.add_api_route(
        "/export/alerts",
        export,
        summary="The same as a file",
        response_class=PlainTextResponse,
        responses={
            200: {
                "content": {
                    "text/csv": {"schema": {"type": "string"}},
                    "application/json": {"schema": {"type": "array", "items": {"type": "object"}}},
                }
            }
        },
    )


def _whole(stores: Stores, fingerprint: str) -> dict[str, Any]:
    with stores.alerts() as reader:
        try:
            found = reader.whole(fingerprint)
        except NoSuchAlertError as error:
            raise HTTPException(404, error.problem) from None
    rule = BY_CODE[found["code"]]
    return {
        **found,
        "why": rule.why,
        "grace": str(rule.grace),
        "sampling": rule.sampling.value,
    }


def learning_routes() -> APIRouter:
    """The catalogue, the runbooks and the scenarios: nothing of any cluster."""
    router = APIRouter(prefix="/api/v1", tags=["learning"], responses={401: _REFUSED[401]})

    @router.get("/rules", summary="The catalogue")
    def rules() -> list[models.Rule]:
        return [models.Rule.model_validate(rule_row(rule)) for rule in CATALOGUE]

    @router.get("/rules/{code}", summary="A code and its runbook", responses=_UNKNOWN)
    def rule(code: Code) -> models.RuleDetail:
        if code not in BY_CODE:
            raise HTTPException(404, f"there is no code {code}")
        return models.RuleDetail.model_validate(rule_detail(code))

    @router.get("/scenarios", summary="Stories that can be played")
    def scenarios() -> models.Scenarios:
        return models.Scenarios.model_validate(
            {"scenarios": plays.scenarios(), "versions": plays.versions()}
        )

    @router.get("/scenarios/{name}", summary="A story, step by step", responses=_UNKNOWN)
    def scenario(
        name: ScenarioName, version: Annotated[str | None, Query(max_length=20)] = None
    ) -> models.Play:
        if not plays.known(name, version):
            raise HTTPException(404, "there is no such scenario, or no such version")
        return models.Play.model_validate(plays.play(name, version))

    return router
