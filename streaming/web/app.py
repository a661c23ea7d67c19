"""The application: routes behind the guard."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Final

from fastapi import FastAPI
from fastapi.responses import JSONResponse
from fastapi.staticfiles import StaticFiles
from tidestaff.streaming.alerts.errors import StoreError
from tidestaff.streaming.web.events import Listeners
from tidestaff.streaming.web.routes import (
    STATIC,
    alert_routes,
    learning_routes,
    page_routes,
    session_routes,
    state_routes,
)
from tidestaff.streaming.web.security import Access, Guard
from tidestaff.streaming.web.stores import Stores

if TYPE_CHECKING:
    from fastapi import Request
    from tidestaff.streaming.web.stores import Places

DESCRIPTION: Final = """\
What the monitor knows of Kafka clusters: verdicts, partitions with every replica's log, alerts with
their evidence. Everything is read-only but for taking an alert on. Times are milliseconds since
1970; offsets are half-open ranges [start, end).
"""


class Application:
    """The ASGI application, and what has to be told when it ends."""

    def __init__(self, places: Places, access: Access) -> None:
        self.stores = Stores(places)
        self.listeners = Listeners(self.stores)
        self.api = _api(self.stores, self.listeners, access)
        self.asgi = Guard(self.api, access)


def _api(stores: Stores, listeners: Listeners, access: Access) -> FastAPI:
    api = FastAPI(
        title="Tidestaff",
        summary="Replica-consistency monitor for Apache Kafka",
        description=DESCRIPTION,
        version=_version(),
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
    )

    @api.exception_handler(StoreError)
    def unreadable(_: Request, error: StoreError) -> JSONResponse:
        return JSONResponse({"detail": f"{error.problem}; {error.remedy}"}, 503)

    api.include_router(page_routes(stores))
    api.include_router(session_routes(access))
    api.include_router(state_routes(stores, listeners))
    api.include_router(alert_routes(stores))
    api.include_router(learning_routes())
    api.mount("/static", StaticFiles(directory=STATIC), name="static")
    return api


def _version() -> str:
    try:
        return version("tidestaff")
    except PackageNotFoundError:
        return "0"
