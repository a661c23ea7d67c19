"""Every metric by name: its kind, its labels and what it says. docs/metrics.md is written from this
table (`make docs`), and a test compares it with a scrape."""

from __future__ import annotations

from typing import Final, NamedTuple

PREFIX: Final = "tidestaff_"
COUNTER, GAUGE, HISTOGRAM, INFO = "counter", "gauge", "histogram", "info"


class Definition(NamedTuple):
    """A metric without its prefix; a counter's samples end in `_total`, an info's in `_info`."""

    name: str
    kind: str
    words: str
    labels: tuple[str, ...] = ()

    @property
    def sample(self) -> str:
        """As it is written in a query."""
        ending = {COUNTER: "_total", INFO: "_info"}.get(self.kind, "")
        return f"{PREFIX}{self.name}{ending}"


_CODE: Final = ("code", "severity")
_ALL: Final = (
    Definition("alerts", GAUGE, "Alerts that are not over.", ("cluster", *_CODE, "status")),
    Definition(
        "partition_violation",
        GAUGE,
        "1 for a partition that breaks a rule; at most 200 are named, the worst first.",
        ("cluster", "topic", "partition", *_CODE),
    ),
    Definition(
        "partition_violations_left_out",
        GAUGE,
        "Violating partitions that are not named, because there are too many.",
    ),
    Definition(
        "partitions_in_state",
        GAUGE,
        "Partitions by trouble: behind, under_replicated, at_min_isr, under_min_isr, offline, "
        "unclean, diverged, lost.",
        ("cluster", "state"),
    ),
    Definition("partitions_known", GAUGE, "Partitions of a cluster that are shown.", ("cluster",)),
    Definition(
        "verified_partitions",
        GAUGE,
        "Partitions whose copies were compared batch by batch and are equal as far as that came.",
        ("cluster",),
    ),
    Definition(
        "verification_age_seconds",
        GAUGE,
        "Time since the partition was compared that was compared longest ago; absent while none "
        "was.",
        ("cluster",),
    ),
    Definition(
        "partition_verified_offset",
        GAUGE,
        "The copies of a partition are equal up to this offset, of topics that "
        "metrics.coverage_topics names; absent while it was not compared.",
        ("cluster", "topic", "partition"),
    ),
    Definition(
        "partition_verification_age_seconds",
        GAUGE,
        "Time since the copies of a partition were last compared, of the same topics.",
        ("cluster", "topic", "partition"),
    ),
    Definition(
        "lost_offsets",
        GAUGE,
        "Committed offsets that are lost, of alerts nobody has taken on yet.",
        ("cluster",),
    ),
    Definition("replicas_diverged", GAUGE, "Replicas that hold other records than they should."),
    Definition(
        "pipeline_lag_seconds", GAUGE, "Now minus the newest event time judged.", ("cluster",)
    ),
    Definition(
        "source_staleness_seconds",
        GAUGE,
        "Time since a source was last heard.",
        ("cluster", "source"),
    ),
    Definition(
        "source_last_timestamp_seconds",
        GAUGE,
        "When a source was last heard.",
        ("cluster", "source"),
    ),
    Definition("partitions", GAUGE, "Partitions the monitor knows."),
    Definition("replicas_behind", GAUGE, "Replicas whose log ends below their leader's."),
    Definition(
        "verdicts_unknown", GAUGE, "Rules that could not be judged on the last observations."
    ),
    Definition("rows_held", GAUGE, "Observations that wait for one that comes before them."),
    Definition("state_bytes", GAUGE, "Size of the saved state of all buckets."),
    Definition("sink_up", GAUGE, "1 while a sink takes what it is sent.", ("sink",)),
    Definition("sink_backlog", GAUGE, "Transitions that wait for a sink.", ("sink",)),
    Definition("sink_delivered", COUNTER, "Transitions a sink has taken.", ("sink",)),
    Definition("sink_failures", COUNTER, "Deliveries that a sink did not take.", ("sink",)),
    Definition(
        "sink_dropped", COUNTER, "Transitions dropped because the spool was full.", ("sink",)
    ),
    Definition(
        "findings", COUNTER, "Findings of the rules, by what happened to them.", (*_CODE, "event")
    ),
    Definition(
        "transitions", COUNTER, "Steps of alerts, by the status they led to.", (*_CODE, "status")
    ),
    Definition("batches", COUNTER, "Micro-batches done."),
    Definition("rows", COUNTER, "Observations taken."),
    Definition(
        "rows_quiet", COUNTER, "Observations the screen passed over: nothing but offsets moved."
    ),
    Definition("rows_judged", COUNTER, "Observations that every rule was asked about."),
    Definition("rows_late", COUNTER, "Observations that came too late and were left out."),
    Definition("rows_quarantined", COUNTER, "Records that could not be read and were put aside."),
    Definition("state_rebuilt", COUNTER, "Buckets whose saved state was not read and began anew."),
    Definition(
        "batch_duration_seconds",
        HISTOGRAM,
        "How long a micro-batch took, from its rows to the store.",
    ),
    Definition("last_batch_timestamp_seconds", GAUGE, "When the last micro-batch was done."),
    Definition("build", INFO, "The release that runs.", ("version",)),
)
METRICS: Final = {each.name: each for each in _ALL}


def metrics_page() -> str:
    """docs/metrics.md."""
    lines = [
        "# Metrics",
        "",
        "Written by `make docs` from `streaming/metrics_table.py`. `tidestaff run` serves them at",
        "`http://127.0.0.1:9464/metrics` (section `metrics` of the configuration).",
        "",
        "- Base units: seconds and bytes; `_total` counts up, `_timestamp_seconds` is a time.",
        "- Offsets and epochs are never labels. A partition is named only while it breaks a rule,",
        "  or where `metrics.coverage_topics` asks for it.",
        "- `severity` is critical, warning or info; `code` as in [alerts.md](alerts.md); `status`",
        "  is pending, firing or acknowledged.",
        "",
        "| metric | type | labels | meaning |",
        "|---|---|---|---|",
    ]
    for each in _ALL:
        labels = ", ".join(f"`{label}`" for label in each.labels)
        lines.append(f"| `{each.sample}` | {each.kind} | {labels} | {each.words} |")
    lines += [
        "",
        "Rules for Prometheus are in `conf/prometheus/`, dashboards in `conf/grafana/`, an example",
        "for Alertmanager in `conf/alertmanager/` ([alerting.md](alerting.md)).",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    print(metrics_page(), end="")
