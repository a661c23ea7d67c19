"""Random observations for property tests: every field of the model takes unusual values."""

from __future__ import annotations

from hypothesis import strategies as st
from tidestaff.consistency.model import (
    Assignment,
    BatchDigest,
    Bracket,
    ClusterObservation,
    ControllerClaim,
    EpochEntry,
    HealthObservation,
    LineageSource,
    OffsetRange,
    PartitionObservation,
    PartitionSettings,
    PartitionState,
    ProblemKind,
    RecoveryState,
    Registration,
    ReplicaReading,
    SettingSource,
)
from tidestaff.consistency.versions import Mode, rules_for

ints = st.integers(-(2**31), 2**31 - 1)
longs = st.integers(-(2**62), 2**62)
offsets = st.none() | longs
brokers = st.lists(ints, max_size=7).map(tuple)
texts = st.text(max_size=20)
RULES = st.sampled_from(
    [
        rules_for("0.10.2.2"),
        rules_for("2.8.2", protocol="2.6"),
        rules_for("3.9.1"),
        rules_for("3.9.1", Mode.KRAFT, migrating=True),
        rules_for("4.0.0", Mode.KRAFT, elr=True),
        rules_for("4.1.1", Mode.KRAFT),
        rules_for("4.1.1", Mode.KRAFT, elr=False),
    ]
)
lineages = st.none() | st.lists(st.builds(EpochEntry, ints, longs), max_size=4).map(tuple)
registrations = st.lists(
    st.builds(Registration, ints, longs, st.booleans(), st.booleans(), st.none() | texts),
    max_size=4,
).map(tuple)
readings = st.builds(
    ReplicaReading,
    broker=ints,
    log_start_offset=offsets,
    high_watermark=offsets,
    log_end_offset=offsets,
    broker_epoch=offsets,
    leader_epoch=st.none() | ints,
    leads=st.none() | st.booleans(),
    lineage=lineages,
    lineage_source=st.sampled_from(LineageSource),
    local_log_start_offset=offsets,
    topic_id=st.none() | texts,
    log_dir_online=st.booleans(),
    read_at_ms=offsets,
)
states = st.builds(
    PartitionState,
    leader=ints,
    leader_epoch=ints,
    isr=brokers,
    partition_epoch=ints,
    controller_epoch=st.none() | ints,
    recovery=st.sampled_from(RecoveryState),
    elr=brokers,
    last_known_elr=brokers,
)
settings_of_partitions = st.builds(
    PartitionSettings,
    st.booleans(),
    ints,
    *[longs] * 4,
    st.booleans(),
    longs,
    ints,
    st.booleans(),
    st.booleans(),
    *[st.sampled_from(SettingSource)] * 3,
)
digests = st.builds(
    BatchDigest,
    broker=ints,
    offsets=st.builds(OffsetRange, longs, longs),
    crc=st.none() | longs,
    leader_epoch=st.none() | ints,
    invalid_at=offsets,
    gap_at=offsets,
)
partitions = st.builds(
    PartitionObservation,
    cluster=texts,
    topic=texts.filter(bool),
    partition=st.integers(0, 2**31 - 1),
    observed_at_ms=longs,
    rules=RULES,
    state=states,
    assignment=st.builds(Assignment, brokers, brokers, brokers),
    live=registrations,
    settings=settings_of_partitions,
    replicas=st.lists(readings, max_size=7).map(tuple),
    leader_again=st.none() | readings,
    bracket=st.sampled_from(Bracket),
    topic_id=st.none() | texts,
    state_czxid=offsets,
    controller=st.none() | ints,
    cluster_controller_epoch=st.none() | ints,
    preferred_imbalance=st.none() | st.floats(0, 1),
    digests=st.lists(digests, max_size=2).map(tuple),
    deleting=st.booleans(),
    authoritative=st.booleans(),
    continuous=st.booleans(),
    source=texts,
    round=longs,
)
clusters = st.builds(
    ClusterObservation,
    cluster=texts,
    observed_at_ms=longs,
    rules=RULES,
    controller=st.none() | ints,
    controller_epoch=st.none() | ints,
    controller_epoch_before=st.none() | ints,
    registrations=registrations,
    answering=st.none() | brokers,
    leading=brokers,
    claims=st.lists(st.builds(ControllerClaim, ints, ints), max_size=3).map(tuple),
    session_timeout_ms=longs,
    source=texts,
    round=longs,
)
healths = st.builds(
    HealthObservation,
    cluster=texts,
    observed_at_ms=longs,
    source=texts,
    problem=st.sampled_from(ProblemKind),
    place=texts,
    reason=texts,
    remedy=texts,
    broker=st.none() | ints,
    topic=st.none() | texts,
    partition=st.none() | ints,
    since_ms=offsets,
    skew_ms=longs,
    round=longs,
)
observations = partitions | clusters | healths
