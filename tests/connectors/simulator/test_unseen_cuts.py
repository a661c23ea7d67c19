"""TRN006 infers from samples what a replica must have kept: what happened between two of them must
not make it say what is false."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tidestaff.connectors.simulator.cluster import SimulatedCluster
from tidestaff.connectors.simulator.sampler import Sampler
from tidestaff.connectors.simulator.settings import Settings
from tidestaff.connectors.simulator.story import Story
from tidestaff.consistency.model import OffsetRange, PartitionObservation
from tidestaff.consistency.monitor import step
from tidestaff.consistency.versions import rules_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidestaff.consistency.memory import PartitionMemory

A, B, C = 1, 2, 3
CUTS = Settings(auto_leader_rebalance_enable=False, unclean_leader_election_enable=True)


class Watched:
    """KIP-101 on 0.10.2: A leads without a record that C, which is away, holds and counts as
    committed. Every election was seen."""

    def __init__(self) -> None:
        cluster = SimulatedCluster("0.10.2.2", [9, A, B, C], {"t": [[C, B, A]]}, CUTS)
        self.story = Story(cluster, "t")
        self.sampler = Sampler(cluster, rules_for("0.10.2.2"))
        self.memory: PartitionMemory | None = None
        self.said: dict[int, OffsetRange | None] = {}
        self.story.hold(A, B)
        self.story.write("M0")
        for _ in range(3):
            self.story.fetch(A, B)
        self.story.write("M1")
        self.story.fetch(A, B)
        self.story.request(A)
        self.story.request(B)
        for _ in range(7):
            self.wait(1_000)
        for broker in (C, B):
            self.story.kill(broker)
            self.look()
        assert (self.story.metadata.state.leader, self.story.ends(A)) == (A, (1, 1))
        assert self.story.ends(C) == (2, 2)

    def wait(self, duration_ms: int) -> None:
        self.story.cluster.advance(duration_ms)
        self.look()

    def look(self) -> None:
        for observation in self.sampler.round():
            if isinstance(observation, PartitionObservation):
                self.memory, verdicts = step(self.memory, observation)
                for violated in verdicts.violated:
                    if violated.code == "TRN006":
                        self.said[violated.broker or 0] = violated.offsets

    def write_on(self) -> None:
        """A writes another record while C is away; C comes back and joins the ISR."""
        self.look()
        assert self.story.write("M2")
        self.wait(1_000)
        self.story.release(C)
        self.story.start(C)
        self.wait(2_000)
        self.wait(2_000)
        assert self.story.metadata.state.isr == (A, C)


def back_and_stopped(watched: Watched) -> None:
    story = watched.story
    story.start(C)
    story.cluster.advance(500)
    story.cluster.on("clean_stop", C)
    story.cluster.advance(500)


def back_and_crashed_before_it_fetched_again(watched: Watched) -> None:
    story = watched.story
    story.hold(C)
    story.start(C)
    story.fetch(C)
    story.cluster.on("crash", C)
    story.cluster.advance(story.cluster.settings.session_ms + 500)


def test_a_record_that_was_kept_is_named() -> None:
    watched = Watched()
    watched.write_on()
    assert [watched.story.log(b) for b in (A, C)] == ["M0@0 M2@2", "M0@0 M1@0"]
    assert watched.said == {C: OffsetRange(1, 2)}


@pytest.mark.parametrize("visit", [back_and_stopped, back_and_crashed_before_it_fetched_again])
def test_a_replica_that_was_cut_between_two_samples_is_not_said_to_have_kept_its_tail(
    visit: Callable[[Watched], None],
) -> None:
    watched = Watched()
    visit(watched)
    assert watched.story.ends(C) == (1, 1)
    assert not watched.story.cluster.brokers[C].up
    watched.write_on()
    assert watched.story.log(A) == watched.story.log(C)
    assert watched.said == {}
