"""REG: who is registered, and whether a process stands behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidestaff.consistency.verdict import Unknown, Violated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidestaff.consistency.checks.cluster_sight import ClusterSight
    from tidestaff.consistency.checks.sight import Finding
    from tidestaff.consistency.model import BrokerId


def registered_brokers_answer(sight: ClusterSight) -> Iterator[Finding]:
    """REG001: a broker that stays registered answers; a node left by a dead process goes with its
    session, and until then blocks the restart.

    The broker counts as live for every election until then, although nobody serves its replicas.
    """
    answering = sight.observation.answering
    if answering is None:
        # By broker, so that what was seen of each before counts on: the silent are asked less often
        # than they are told of.
        for registration in sight.observation.registrations:
            yield Unknown("REG001", "which brokers answer requests", registration.broker)
        return
    for registration in sight.observation.registrations:
        if registration.fenced or registration.broker in answering:
            continue
        yield Violated(
            "REG001",
            expected=f"broker {registration.broker} answers or is deregistered",
            observed="registered, but no answer",
            because="the session timeout has passed: the process is gone, stopped or unreachable",
            broker=registration.broker,
        )


def unregistered_brokers_do_not_lead(sight: ClusterSight) -> Iterator[Finding]:
    """REG002: a broker whose registration is gone stops leading; one that goes on is a zombie.

    It notices when it reaches ZooKeeper or the controller again; until then clients that know no
    better write to it, in an old leader epoch. Silence is no sign that it has noticed: whoever is
    cut off may be slow to answer, too, and is then asked less often.
    """
    registered = {r.broker for r in sight.observation.registrations if not r.fenced}
    heard = {*sight.observation.leading, *(sight.observation.answering or ())}
    for broker in _suspected(sight, "REG002") - registered - heard:
        yield Unknown("REG002", "whether it still leads: it did not answer", broker)
    for broker in sight.observation.leading:
        if broker not in registered:
            yield Violated(
                "REG002",
                expected=f"broker {broker} leads nothing",
                observed=f"broker {broker} is not registered and still leads",
                because="the cluster has replaced it: what it accepts now will be cut",
                broker=broker,
            )


def _suspected(sight: ClusterSight, code: str) -> set[BrokerId]:
    return {s.broker for s in sight.memory.suspicions if s.code == code} if sight.memory else set()


def broker_epoch_never_falls(sight: ClusterSight) -> Iterator[Finding]:
    """REG003: the broker epoch (czxid, or registration offset) of one broker id only rises.

    It tells the processes of one broker id apart; one that falls makes a stale process look like
    the current one.
    """
    if sight.memory is None:
        return
    before = {r.broker: r.broker_epoch for r in sight.memory.registrations}
    for registration in sight.observation.registrations:
        known = before.get(registration.broker, -1)
        if 0 <= registration.broker_epoch < known:
            yield Violated(
                "REG003",
                expected=f"broker epoch {known} or more",
                observed=f"broker epoch {registration.broker_epoch}",
                because="registrations are numbered by the log they stand in: an older number "
                "means the metadata store went back in time",
                broker=registration.broker,
            )
