"""What brokers do and the specifications do not say: the kernel's actions beyond the table."""

from __future__ import annotations

import pytest
from tidestaff.connectors.simulator.kernel import beyond
from tidestaff.connectors.simulator.kernel.actions import NotEnabled, epoch_start, leader_expand_isr
from tidestaff.connectors.simulator.kernel.rules import HW, KIP320, IsrExpand, RuleSet
from tidestaff.connectors.simulator.kernel.state import NOTHING_HEARD, State, initial_state

from tests.connectors.simulator.states import heard, replica, state

IN_1 = heard(1, 1, 1, 2)
AHEAD = state(IN_1, replica(1, "001", 2, IN_1), replica(2, "001", 1, IN_1))
LONGER = state(IN_1, replica(1, "0", 1, IN_1), replica(2, "000", 2, IN_1))
STALE = state(IN_1, replica(1, "0", 1, IN_1), replica(2, "000", 2, heard(1, 0, 1, 2)))
OTHERS = state(IN_1, replica(1, "0", 1, IN_1), replica(2, "00", 2, heard(2, 0, 1, 2)))


def done(before: State, name: str, rules: RuleSet = HW, **params: int) -> State:
    after = getattr(beyond, name)(before, params, rules)
    assert isinstance(after, State), after
    return after


def test_a_restart_forgets_the_epoch_and_takes_the_checkpoints_watermark() -> None:
    again = done(AHEAD, "restart", replica=2, keep=2, hw=2).replica(2)
    assert again == replica(2, "00", 2, NOTHING_HEARD), "the HW may be above the one it had"


def test_the_state_is_sent_again_with_the_isr_of_now() -> None:
    shrunk = AHEAD._replace(quorum=heard(1, 1, 1))
    assert done(shrunk, "controller_repeat").requests == (heard(1, 1, 1),)


def test_a_fetch_without_records_carries_the_watermark_also_a_lower_one() -> None:
    risen = done(AHEAD, "follower_hear_hw", follower=2, leader=1).replica(2)
    assert risen is not None
    assert risen.high_watermark == 2
    fallen = state(IN_1, replica(1, "0", 0, IN_1), replica(2, "0", 1, IN_1))
    follower = done(fallen, "follower_hear_hw", follower=2, leader=1).replica(2)
    assert follower is not None
    assert follower.high_watermark == 0


def test_beyond_the_leaders_end_the_log_is_cut_there() -> None:
    cut = done(LONGER, "follower_out_of_range", follower=2, leader=1).replica(2)
    assert cut == replica(2, "0", 1, IN_1)


@pytest.mark.parametrize(
    ("before", "rules", "name", "params", "because"),
    [
        pytest.param(AHEAD, HW, "restart", (9, 0, 0), "no such replica", id="restart-of-nobody"),
        pytest.param(AHEAD, HW, "restart", (2, 4, 0), "more than its log", id="restart-with-more"),
        pytest.param(AHEAD, HW, "restart", (2, 1, 2), "above what it keeps", id="restart-hw"),
        pytest.param(
            initial_state((1, 2)), HW, "controller_repeat", (), "nothing was sent", id="repeat"
        ),
        pytest.param(LONGER, HW, "follower_hear_hw", (2, 1), "beyond", id="hear-beyond"),
        pytest.param(OTHERS, HW, "follower_hear_hw", (2, 1), "believe", id="hear-another"),
        pytest.param(STALE, KIP320, "follower_out_of_range", (2, 1), "fence", id="cut-fenced"),
        pytest.param(AHEAD, HW, "follower_out_of_range", (2, 1), "not beyond", id="cut-within"),
        pytest.param(AHEAD, HW, "follower_out_of_range", (1, 1), "believe", id="cut-of-itself"),
        pytest.param(
            state(IN_1, replica(1, "0", 1, IN_1), replica(2, "0", 0, heard(1, 0, 1, 2))),
            KIP320,
            "follower_hear_hw",
            (2, 1),
            "fence",
            id="hear-fenced",
        ),
    ],
)
def test_it_does_not_happen(
    before: State, rules: RuleSet, name: str, params: tuple[int, ...], because: str
) -> None:
    fields = ("replica", "keep", "hw") if name == "restart" else ("follower", "leader")
    given = dict(zip(fields, params, strict=False))
    refused = getattr(beyond, name)(before, given, rules)
    assert isinstance(refused, NotEnabled)
    assert because in refused.because


def test_brokers_let_a_follower_join_at_the_start_of_the_epoch() -> None:
    rules = KIP320._replace(isr_expand=IsrExpand.LEO_REACHED_HW_AND_EPOCH_START)
    alone = heard(1, 1, 1)
    leader = replica(1, "0011", 1, alone)
    assert epoch_start(leader) == 2
    assert epoch_start(replica(1, "00", 0, alone)) == 2, "nothing written: at its end"
    at_the_start = state(alone, leader, replica(2, "00", 1, heard(1, 1, 1)))
    below = state(alone, leader, replica(2, "0", 1, heard(1, 1, 1)))
    params = {"leader": 1, "replica": 2}
    joined = leader_expand_isr(at_the_start, params, rules)
    assert isinstance(joined, State)
    assert joined.quorum.isr == (1, 2)
    assert isinstance(leader_expand_isr(at_the_start, params, KIP320), NotEnabled)
    assert isinstance(leader_expand_isr(below, params, rules), NotEnabled)
