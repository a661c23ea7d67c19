"""What of each cluster is seen, and what cannot be judged there."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from tidestaff.connectors.bodies import rules_of
from tidestaff.streaming.alerts.errors import StoreError
from tidestaff.streaming.operator.viewing import VERIFIED_MS
from tidestaff.streaming.web.alert_search import AlertQuery, search

if TYPE_CHECKING:
    from tidestaff.streaming.view.reading import StateReader
    from tidestaff.streaming.web.stores import Stores

CONTENTS: Final = (
    "Offsets, watermarks and leader epochs of every replica are compared in every round. The bytes "
    "of batches (LOG001, LOG002, LOG003) are compared a part in each round where the collector may "
    "read them (verify_bytes_per_round in the options of its source): a partition counts as "
    "compared as far as the present pass has found all its copies equal."
)
_NO_EPOCHS: Final = (
    "This version keeps no leader epochs: EPO001 to EPO006 are not judged, and divergence is "
    "inferred from who was away and what was kept (TRN006)."
)
_SAMPLE: Final = 200
_WORST: Final = 10


def coverage(stores: Stores, now_ms: int) -> dict[str, Any]:
    """By cluster."""
    found = []
    try:
        with stores.state() as reader:
            ladder = reader.ladder()
            for doc in reader.clusters():
                cluster = doc["cluster"]
                shapes = reader.shapes(cluster)
                rules = [rules_of(json.loads(text)) for text in _rules(shapes)]
                some = [
                    shown
                    for number, _, _ in shapes[:20]
                    for shown in reader.of_shape(cluster, number, _SAMPLE // 20)
                ]
                replicas = [each for shown in some for each in shown["replicas"]]
                known = sum(each["lineage"] is not None for each in replicas)
                wanted = sum(len(shown["assignment"]) for shown in some)
                found.append(
                    {
                        "cluster": cluster,
                        "source": doc["source"],
                        "age_ms": max(0, now_ms - doc["at_ms"]),
                        "partitions": ladder[cluster]["partitions"] if cluster in ladder else 0,
                        "versions": sorted({str(each) for each in rules}),
                        "replicas_looked_at": wanted,
                        "replicas_read": len(replicas),
                        "replicas_with_epochs": known,
                        "verified": _verified(reader, cluster, ladder.get(cluster), now_ms),
                        "blind_spots": _blind_spots(stores, cluster, rules),
                    }
                )
    except StoreError as error:
        return {"clusters": [], "contents": CONTENTS, "problem": error.problem}
    return {"clusters": found, "contents": CONTENTS}


def _verified(
    reader: StateReader, cluster: str, ladder: Counter[str] | None, now_ms: int
) -> dict[str, Any]:
    """How many partitions have been compared, and which have waited longest."""
    known: Counter[str] = ladder if ladder is not None else Counter()
    oldest_ms = known[VERIFIED_MS] if known["verified"] else None
    worst = reader.verified_longest_ago(cluster, _WORST) if known["verified"] else []
    return {
        "partitions": known["verified"],
        "of": known["partitions"],
        "empty": known["empty"],
        "oldest_ms": oldest_ms,
        "oldest_age_ms": None if oldest_ms is None else max(0, now_ms - oldest_ms),
        "worst": [
            {name: shown[name] for name in ("topic", "partition", "committed", "verified")}
            for shown in worst
        ],
    }


def _rules(shapes: list[tuple[int, dict[str, Any], int]]) -> set[str]:
    return {json.dumps(shape["rules"], sort_keys=True) for _, shape, _ in shapes}


def _blind_spots(stores: Stores, cluster: str, rules: list[Any]) -> list[str]:
    said = [_NO_EPOCHS] if any(not each.leader_epoch_checkpoint for each in rules) else []
    query = AlertQuery(cluster=cluster, code="SRC", open_only=True)
    alerts, _ = search(stores.places.alerts, query, limit=20)
    return said + [f"{alert['code']} {alert['name']}: {alert['because']}" for alert in alerts]
