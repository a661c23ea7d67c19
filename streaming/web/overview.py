"""The first thing people see: is data lost or at risk, where, why, what to do."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from tidestaff.streaming.alerts.errors import StoreError
from tidestaff.streaming.alerts.event import NO_CLUSTERS
from tidestaff.streaming.web.alert_search import AlertQuery, search
from tidestaff.streaming.web.verdicts import Health, grouped, proven, verdict

if TYPE_CHECKING:
    from tidestaff.streaming.web.stores import Stores

MOST_ALERTS: Final = 500
LADDER: Final = (
    *("behind", "under_replicated", "at_min_isr", "under_min_isr", "offline"),
    *("unclean", "diverged", "lost"),
)
_SOURCE: Final = "source "


def overview(stores: Stores, now_ms: int) -> dict[str, Any]:
    """Everything the first view shows."""
    places = stores.places
    with stores.alerts() as reader:
        clocks, totals, sinks = reader.clocks(), reader.totals(), reader.sinks()
    found, total = search(places.alerts, AlertQuery(open_only=True), limit=MOST_ALERTS)
    alerts = [each for each in found if each["status"] != "pending"]
    state = _state(stores)
    job = stores.job()
    known = {doc["cluster"]: doc for doc in state["clusters"]}
    names = dict.fromkeys((*places.clusters, *known, *clocks))
    clusters = [
        _cluster(
            name=name,
            alerts=[alert for alert in alerts if alert["cluster"] == name],
            doc=known.get(name),
            ladder=state["ladder"].get(name, Counter()),
            health=Health(
                now_ms - clocks[name] if name in clocks else None,
                places.silence_ms,
                job is not None,
            ),
            sources=_sources(name, totals, now_ms),
        )
        for name in names
        if name not in NO_CLUSTERS and (name in clocks or name in known or not clocks)
    ]
    return {
        "now_ms": now_ms,
        "job": {
            "running": job is not None,
            "batch": state["batch"],
            "state": state["problem"],
            "rows": totals.get("rows", 0),
            "sinks": [
                {
                    "sink": sink.name,
                    "backlog": sink.backlog,
                    "failing_since_ms": sink.failing_since_ms,
                    "delivered": sink.delivered,
                }
                for sink in sinks
            ],
        },
        "clusters": clusters,
        "causes": grouped([alert for alert in alerts if alert["status"] == "firing"]),
        "acknowledged": sum(alert["status"] == "acknowledged" for alert in alerts),
        "pending": sum(alert["status"] == "pending" for alert in found),
        "more_alerts": max(0, total - len(found)),
    }


def _state(stores: Stores) -> dict[str, Any]:
    try:
        with stores.state() as reader:
            return {
                "clusters": reader.clusters(),
                "ladder": reader.ladder(),
                "batch": reader.last_batch(),
                "problem": None,
            }
    except StoreError as error:
        return {"clusters": [], "ladder": {}, "batch": None, "problem": error.problem}


def _cluster(
    *,
    name: str,
    alerts: list[dict[str, Any]],
    doc: dict[str, Any] | None,
    ladder: Counter[str],
    health: Health,
    sources: list[dict[str, Any]],
) -> dict[str, Any]:
    rungs = {rung: ladder[rung] for rung in LADDER} | proven(alerts)
    return {
        "cluster": name,
        **verdict(alerts, health),
        "age_ms": health.age_ms,
        "partitions": ladder["partitions"],
        "ladder": {rung: rungs[rung] for rung in LADDER},
        "rules": None if doc is None else doc["rules"],
        "controller": None if doc is None else doc["controller"],
        "controller_epoch": None if doc is None else doc["controller_epoch"],
        "brokers": [] if doc is None else doc["brokers"],
        "sources": sources,
    }


def _sources(cluster: str, totals: dict[str, int], now_ms: int) -> list[dict[str, Any]]:
    found = []
    for name, at_ms in sorted(totals.items()):
        owner, _, source = name.removeprefix(_SOURCE).partition("/")
        if name.startswith(_SOURCE) and owner == cluster:
            found.append({"source": source, "last_ms": at_ms, "age_ms": max(0, now_ms - at_ms)})
    return found
