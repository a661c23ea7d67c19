"""The words of the API, as its OpenAPI document tells them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Severity = Literal["critical", "warning", "info"]
Status = Literal["pending", "firing", "acknowledged", "resolved"]
Flag = Literal["under_replicated", "at_min_isr", "under_min_isr", "offline", "violating"]
Word = Literal["lost", "diverged", "blind", "at risk", "ok"]
Offsets = Annotated[list[int], Field(min_length=2, max_length=2)]
Line = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]
Note = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=2_000)]


class Problem(BaseModel):
    """Why a request was not answered."""

    detail: str


class Answer(BaseModel):
    """Fields may be added in a later release; none is taken away within /api/v1."""

    model_config = ConfigDict(extra="allow")


class Health(Answer):
    """Whether the server lives (`/healthz`), or has something true to show (`/readyz`)."""

    status: Literal["ok", "not ready"]
    reasons: list[str] = []


class Acknowledged(Answer):
    """Who took an alert on, when and why."""

    who: str
    at_ms: int
    why: str


class AlertRow(Answer):
    """An alert as lists show it."""

    fingerprint: str
    status: Status
    code: str
    name: str
    severity: Severity
    cluster: str
    topic: str | None
    partition: int | None
    broker: int | None
    cause: str | None
    place: str | None
    offsets: Offsets | None
    started_at_ms: int
    fired_at_ms: int | None
    resolved_at_ms: int | None
    last_seen_ms: int
    expected: str
    observed: str
    because: str
    next_step: str
    acknowledged: Acknowledged | None
    members_count: int
    leader_epoch: int | None


class AlertPage(Answer):
    """Some of the alerts that were asked for, and how many there are."""

    alerts: list[AlertRow]
    total: int


class AlertDetail(Answer):
    """An alert whole: the rule behind it, the evidence, its history, who took it on."""

    fingerprint: str
    status: Status
    code: str
    severity: Severity
    claim: str
    why: str
    grace: str
    sampling: str
    expected: str
    observed: str
    because: str
    evidence: dict[str, Any] | None
    history: list[dict[str, Any]]
    acks: list[Acknowledged]
    members: list[dict[str, Any]]


class Ack(BaseModel):
    """Taking an alert on: who and why. Behind a proxy that says who it is, its word counts."""

    model_config = ConfigDict(extra="forbid")
    who: Line
    why: Note


class Login(BaseModel):
    """The token of web.token."""

    model_config = ConfigDict(extra="forbid")
    token: Annotated[str, StringConstraints(min_length=1, max_length=1_000)]


class Session(Answer):
    """Whether the page needs a log-in, and who is logged in ('' if nobody knows the name)."""

    needed: bool
    token: bool
    user: str | None


class Cause(Answer):
    """Alerts that fire for one cause: a broker, or the partition they are all about."""

    cluster: str
    cause: str
    alerts: list[AlertRow]


class Cluster(Answer):
    """One line of the overview, and what is behind it."""

    cluster: str
    verdict: Word
    because: str
    alert: str | None
    code: str | None
    next_step: str | None
    also: list[Word]
    age_ms: int | None
    partitions: int
    ladder: dict[str, int]
    rules: str | None
    controller: int | None
    brokers: list[dict[str, Any]]
    sources: list[dict[str, Any]]


class Overview(Answer):
    """Is data lost or at risk, where, why, what to do."""

    now_ms: int
    job: dict[str, Any]
    clusters: list[Cluster]
    causes: list[Cause]
    acknowledged: int
    pending: int
    more_alerts: int


class Replica(Answer):
    """One replica's log: `lineage` is [epoch, start offset] pairs, `cut` the predicted one."""

    broker: int
    log_start: int
    high_watermark: int
    log_end: int
    lineage: list[list[int]] | None
    cut: dict[str, Any] | None


class Verified(Answer):
    """How far the contents of all copies were compared and found equal: `offsets` by the pass that
    began at `began_ms` and came this far at `at_ms`; `share` is that of the committed records."""

    offsets: Offsets
    epoch: int | None
    began_ms: int
    at_ms: int
    share: float


class Partition(Answer):
    """A partition at one moment. `truncated` are [broker, from, to] of logs that became shorter."""

    cluster: str
    topic: str
    partition: int
    at_ms: int
    flags: list[Flag]
    leader: int
    leader_epoch: int
    isr: list[int]
    assignment: list[int]
    live: list[int]
    committed: Offsets
    replicas: list[Replica]
    findings: list[dict[str, Any]]
    lost: list[Offsets]
    truncated: list[list[int]]
    verified: Verified | None


class PartitionPage(Answer):
    """Some of the partitions that were asked for, and how many there are."""

    partitions: list[Partition]
    total: int


class PartitionView(Answer):
    """A partition now, its alerts, and the moments of its past, oldest first."""

    now: Partition
    moments: list[Partition]
    alerts: list[AlertRow]


class WhatIf(Answer):
    """What a stop of brokers would do: counts by the worst that happens to a partition."""

    cluster: str
    stopping: list[int]
    controlled: bool
    partitions: int
    asked: int
    counts: dict[str, int]
    safe: bool
    rows: list[dict[str, Any]]
    rows_left_out: int


class Scenario(Answer):
    """A story that can be played."""

    name: str
    title: str
    version: str


class Scenarios(Answer):
    """All of them, and the versions each can be played under."""

    scenarios: list[Scenario]
    versions: list[str]


class Play(Answer):
    """A scenario, step by step."""

    name: str
    title: str
    story: str
    version: str
    steps: list[dict[str, Any]]


class Rule(Answer):
    """A code of the catalogue."""

    code: str
    name: str
    severity: Severity
    claim: str
    next_step: str


class RuleDetail(Rule):
    """A code with its reasons and its runbook (Markdown)."""

    why: str
    inputs: str
    grace: str
    sampling: str
    versions: str
    runbook: str | None


class UnverifiedPartition(Answer):
    """A partition that has waited long for its contents to be compared."""

    topic: str
    partition: int
    committed: Offsets
    verified: Verified | None


class VerifiedShare(Answer):
    """Of how many partitions contents were compared, and which have waited longest: `oldest_ms` is
    when that one was compared which was compared longest ago. `empty` have nothing to compare."""

    partitions: int
    of: int
    empty: int
    oldest_ms: int | None
    oldest_age_ms: int | None
    worst: list[UnverifiedPartition]


class ClusterCoverage(Answer):
    """What of one cluster is seen, and what cannot be judged there."""

    cluster: str
    source: str
    age_ms: int
    partitions: int
    versions: list[str]
    replicas_looked_at: int
    replicas_read: int
    replicas_with_epochs: int
    verified: VerifiedShare
    blind_spots: list[str]


class Coverage(Answer):
    """What of each cluster is seen, and what cannot be judged."""

    clusters: list[ClusterCoverage]
    contents: str
