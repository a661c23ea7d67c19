"""Faults in the decoders and in the version switches."""

from __future__ import annotations

from typing import Final

from tests.mutants.fault import faults_in

_DECODERS: Final = (
    *faults_in(
        "topic_ids.py",
        ("consistency/test_checkpoint_files.py", "conformance/test_vectors.py"),
        (
            "file-zero-topic-id-accepted",
            'if not (written := found[:-1] + last).strip("A"):',
            "if not (written := found[:-1] + last):",
            "the zero id names no topic",
        ),
        (
            "file-topic-id-with-spare-bits",
            "last = _DIGITS[_DIGITS.index(found[-1]) & ~0xF]",
            "last = found[-1]",
            "two texts of one id compare equal",
        ),
    ),
    *faults_in(
        "checkpoint_files.py",
        ("consistency/test_checkpoint_files.py", "conformance/test_vectors.py"),
        (
            "file-more-entries-than-counted",
            "if len(found) != count:",
            "if len(found) < count:",
            "the count in line 2 must be exact",
        ),
        (
            "file-later-version-accepted",
            'if lines and _number(lines[0], INT32, place, "version", 1) != _VERSION:',
            'if lines and _number(lines[0], INT32, place, "version", 1) < _VERSION:',
            "0 is the only version there is",
        ),
        (
            "file-further-fields-ignored",
            "if len(fields) != len(names):",
            "if len(fields) < len(names):",
            "a broker refuses a line with a field too many",
        ),
        (
            "file-number-one-too-large",
            "return number if -(1 << (bits - 1)) <= number < 1 << (bits - 1) else None",
            "return number if -(1 << (bits - 1)) <= number <= 1 << (bits - 1) else None",
            "2147483648 is no int of Java",
        ),
        (
            "file-later-metadata-refused",
            "if version is None or version < _VERSION:",
            "if version is None or version != _VERSION:",
            "later versions of partition.metadata are accepted",
        ),
        (
            "file-python-lines",
            r'_LINE_END = re.compile(r"\r\n|\n|\r")',
            r'_LINE_END = re.compile(r"\r\n|\n")',
            "Java ends a line at a lone CR as well",
        ),
    ),
    *faults_in(
        "znodes.py",
        ("consistency/test_znodes.py", "conformance/test_vectors.py"),
        (
            "znode-version-from-the-content",
            "partition_epoch=zk_version,",
            'partition_epoch=node.number("version", default=0),',
            "the partition epoch is the node's zkVersion",
        ),
        (
            "znode-broker-version-zero",
            "    if version < 1:\n",
            "    if version < 0:\n",
            "brokers write version 1 or later",
        ),
        (
            "znode-unknown-recovery-state",
            "if recovery not in {state.value for state in RecoveryState}:",
            "if recovery < 0:",
            "a number that is no recovery state is refused with its place",
        ),
        (
            "znode-negative-partition",
            "if number is None or number < 0:",
            "if number is None:",
            "a partition number is 0 or more",
        ),
        (
            "znode-last-producer-id-lost",
            "return range(first, last + 1)",
            "return range(first, last)",
            "the end of the block is included",
        ),
        (
            "znode-listener-twice",
            (
                "        if listener in found:\n"
                '            raise FormatError(node.place, "endpoints", f"{listener} twice", '
                '"each listener once")\n'
            ),
            "",
            "each listener is named once",
        ),
        (
            "znode-boolean-is-a-number",
            "if type(value) is not kind:",
            "if not isinstance(value, kind):",
            "in JSON true is no number",
        ),
    ),
)

_VERSIONS: Final = faults_in(
    "versions.py",
    ("consistency/test_versions.py", "conformance/test_vectors.py"),
    (
        "ver-second-cache-from-2-0-0",
        "epoch_cache=EpochCacheGeneration.SECOND\n        if at_least(2, 0, 1)",
        "epoch_cache=EpochCacheGeneration.SECOND\n        if at_least(2, 0)",
        "the second generation begins with 2.0.1",
    ),
    (
        "ver-watermark-frozen-from-3-6",
        "watermark_frozen_under_min_isr=at_least(3, 7),",
        "watermark_frozen_under_min_isr=at_least(3, 6),",
        "the HW freezes from 3.7",
    ),
    (
        "ver-retention-stops-from-0-11-0-0",
        "retention_stops_at_watermark=at_least(0, 11, 0, 1),",
        "retention_stops_at_watermark=at_least(0, 11),",
        "0.11.0.0 still deletes above the HW",
    ),
    (
        "ver-shrink-bumps-at-3-6-iv0",
        '(speaks < _protocol("3.6-IV0")',
        '(speaks <= _protocol("3.6-IV0")',
        "at 3.6-IV0 a shrink keeps the epoch already",
    ),
    (
        "ver-truncation-on-fetch-from-2-7",
        'if software.at_least(2, 8) and (kraft or speaks >= _protocol("2.7-IV1")):',
        'if software.at_least(2, 7) and (kraft or speaks >= _protocol("2.7-IV1")):',
        "2.7 followers still ask before they fetch",
    ),
    (
        "ver-protocol-ignored-for-epochs",
        'return software.at_least(0, 11) and speaks >= _protocol("0.11.0-IV2")',
        "return software.at_least(0, 11)",
        "during a rolling upgrade the protocol decides",
    ),
    (
        "ver-at-the-end-from-2-0-1",
        "at_leader_end_never_out_of_sync=at_least(2, 1),",
        "at_leader_end_never_out_of_sync=at_least(2, 0, 1),",
        "the rule came with 2.1",
    ),
    (
        "ver-empty-cache-in-1-1-1",
        "((1, 1, 0), (1, 1, 0)),",
        "((1, 1, 0), (1, 1, 1)),",
        "1.1.1 has the correction",
    ),
    (
        "ver-last-known-elr-from-4-1-0",
        "last_known_elr_on_any_leader_loss=at_least(4, 1, 1),",
        "last_known_elr_on_any_leader_loss=at_least(4, 1),",
        "the rule changed in 4.1.1",
    ),
    (
        "ver-member-epochs-in-zookeeper-mode",
        "isr_member_epochs_checked=kraft and at_least(3, 5),",
        "isr_member_epochs_checked=at_least(3, 5),",
        "KIP-903 is for KRaft",
    ),
    (
        "ver-fenced-from-2-0",
        "controller_writes_fenced=not kraft and at_least(2, 1),",
        "controller_writes_fenced=not kraft and at_least(2, 0),",
        "fencing by /controller_epoch came with 2.1",
    ),
    (
        "ver-elr-on-in-4-0",
        'possible and (speaks >= _protocol("4.1-IV0") if asked is None else asked)',
        "possible and (True if asked is None else asked)",
        "a new cluster has ELR from 4.1",
    ),
    (
        "ver-short-old-release",
        "width = 4 if numbers[0] == 0 else 3",
        "width = 3",
        "0.x releases have four parts",
    ),
)

FAULTS: Final = (*_DECODERS, *_VERSIONS)
