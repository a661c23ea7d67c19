"""The first thing to do about each code, in one sentence; the runbook has the rest."""

from __future__ import annotations

from typing import Final

NEXT_STEP: Final[dict[str, str]] = {
    "CTL001": (
        "Check that the ZooKeeper ensemble (or the KRaft quorum) has a majority that answers in "
        "time, and start the members that are missing."
    ),
    "CTL002": (
        "Save what both claimants logged, make sure they use the same ensemble or quorum, then "
        "cleanly stop the one that the store does not name."
    ),
    "CTL003": (
        "Stop every change to the cluster, leave the brokers running, and find out whether the "
        "metadata store was restored or wiped."
    ),
    "CTL004": (
        "Find the former controller and stop it cleanly if it still acts as one, then have a "
        "new controller elected."
    ),
    "CTL005": (
        "Ask every ZooKeeper server for the same values; restart one that lags, and look for a "
        "restored backup if they all agree."
    ),
    "ELE001": (
        "Check that the new leader is in the ISR and its log reaches the old high watermark; "
        "then read the controller log around the election."
    ),
    "ELE002": (
        "Copy the partition directory aside on every broker that holds one before anything "
        "else, then have a new controller elected."
    ),
    "ELE003": (
        "Copy the partition directories aside, starting with the leader's, then reassign so "
        "that the leader is among the replicas."
    ),
    "ELE004": (
        "Check that there is a working controller; if its event queue is stuck, have a new one "
        "elected."
    ),
    "ELE005": (
        "Check the controller first; if it works, ask for a preferred election of this partition."
    ),
    "ELE006": (
        "Stop the producers of the topic at once, and copy the partition directory aside on "
        "every broker."
    ),
    "ELE007": (
        "Find out whether the metadata store went back; stop the producers and copy the "
        "partition directories aside."
    ),
    "ELE008": (
        "Find out who wrote the state outside the controller, then have a new controller "
        "elected so that it reads the versions again."
    ),
    "ELE009": (
        "Keep brokers of the old ISR that are down DOWN, and copy the directory of any that is "
        "up this minute: it cuts with its first fetch."
    ),
    "ELE010": "Wait for a running reassignment, then run a preferred election at a calm time.",
    "ELE011": (
        "Cut clients off from the old leader at once, and copy its partition directory aside "
        "before it follows again."
    ),
    "ELE012": (
        "Start the broker that is listed in the ISR (or ELR): that alone repairs it without loss."
    ),
    "EPO001": (
        "Do not restart the broker; copy the file aside, then cause a new leader epoch so that "
        "the broker writes the file again."
    ),
    "EPO002": (
        "Copy the partition directories aside, and if the odd replica leads, move the lead to "
        "one with a proper lineage first."
    ),
    "EPO003": (
        "See whether many partitions are hit (the metadata store went back: stop all changes) "
        "or one directory (a restored or copied one: move it aside)."
    ),
    "EPO004": (
        "Leave the leader where it is, restart nothing, and copy the partition directory aside "
        "on every broker."
    ),
    "EPO005": (
        "Copy the partition directories aside, then compare the batches between the two start "
        "offsets."
    ),
    "EPO006": (
        "Check the leader's disk (full, read-only, permissions), and restart no follower of "
        "this partition meanwhile."
    ),
    "FCT001": (
        "Keep the named broker up: take it out of restarts and maintenance until a second "
        "replica is in the ISR."
    ),
    "FCT002": (
        "Keep the leader up, and switch unclean election off for the topic if it is not wanted."
    ),
    "HWM001": (
        "If it stays, see which bound is broken, copy the partition directories aside and "
        "rebuild the replica (move the lead first if it leads)."
    ),
    "HWM002": (
        "Look at once whether leader and followers still hold the offsets; if only a follower "
        "does, stop that broker before it cuts."
    ),
    "HWM003": "See which ISR member holds it back: under-replicated, slow, dead, or not fetching.",
    "HWM004": (
        "Keep the leader up: stop every restart, deployment and rebalance that touches it until "
        "the member has caught up."
    ),
    "HWM005": (
        "Look in the follower's log for a partition marked as failed and fix what it names; "
        "else restart that follower."
    ),
    "ISR001": (
        "Ask again in a minute, since a reassignment may be ending; if it stays, reassign so "
        "that the stranger is in the list."
    ),
    "ISR002": "Check the controller, and start the dead broker if you can.",
    "ISR003": (
        "Check that there is a controller, then find out why the follower is slow: disk, "
        "network, a throttle left over."
    ),
    "ISR004": (
        "Look whether the follower has stopped fetching (failed partitions), and fix the error "
        "that its log names."
    ),
    "ISR005": (
        "One follower for many partitions: look at that broker's disk, network and garbage "
        "collection; many followers of one leader: at the leader's."
    ),
    "ISR006": (
        "Put off every restart until the missing replica is back; start its broker if it is down."
    ),
    "ISR007": "Start the missing brokers, those first that left the ISR last.",
    "ISR008": (
        "Start the missing broker; if it runs, compare its log end offset with the leader's "
        "twice and wait while the gap shrinks."
    ),
    "ISR009": (
        "Copy the metadata log aside, and bring the ISR back to min.insync.replicas so that the "
        "controller empties the ELR."
    ),
    "ISR010": (
        "Keep the leader up, and elect nobody for this partition until the member has passed "
        "the start of the epoch."
    ),
    "LOG001": (
        "Copy the partition directory aside on every broker, then rebuild the odd copy: the "
        "valid one, else the majority, else the leader is right."
    ),
    "LOG002": (
        "Copy the partition directories aside; rebuild a damaged follower, or lead from an "
        "intact ISR member and rebuild the old leader."
    ),
    "LOG003": (
        "Compare the other replicas at the same offsets, and copy the partition directory aside "
        "on every broker."
    ),
    "LOG004": (
        "Find and stop the tool that rewrote the topic's metadata, and keep the controller "
        "where it is."
    ),
    "LOG005": (
        "Read the first disk error in the broker's log, and look first after partitions that "
        "have no other ISR member."
    ),
    "LOG006": (
        "Do not restart this broker until the lines are back; look for a full disk or a failed "
        "write of the checkpoint."
    ),
    "LOG007": (
        "Make sure that nobody wants it (a lost partition, a metadata store that went back), "
        "then move it out at the next planned stop."
    ),
    "REG001": (
        "Look at the host: a stopped process, a hung disk, exhausted threads; take a thread "
        "dump before you restart it."
    ),
    "REG002": (
        "Keep clients away from it, copy its partition directories aside, then restore its "
        "connection or stop it."
    ),
    "REG003": (
        "Stop all changes to the cluster, keep every data directory of the metadata store, and "
        "find out whether it was restored."
    ),
    "SRC001": (
        "See whether the cluster itself is down; if not, read the source's last lines and "
        "restart it, which is harmless."
    ),
    "SRC002": (
        "Read the reason: give the missing Describe or Read permission, or correct the address "
        "or path."
    ),
    "SRC003": (
        "Repair time synchronisation on that host, and let the clock be slewed rather than stepped."
    ),
    "SRC004": (
        "Compare the releases: upgrade the job before its sources; if the records are "
        "malformed, see what else writes to the topic."
    ),
    "SRC005": (
        "Bring the receiver back or renew the credentials; what waits is sent by itself, in "
        "order and once."
    ),
    "SRC006": (
        "Look at the transport between source and job first: rows of some partitions do not come "
        "through."
    ),
    "TRN001": (
        "Leave brokers that are down DOWN, and copy the partition directory aside on every "
        "broker that may still have the range."
    ),
    "TRN002": "Keep the leader up and the lead where it is until the follower has caught up.",
    "TRN003": (
        "Copy the partition directory aside on every broker, then take the follower out and "
        "rebuild it."
    ),
    "TRN004": (
        "Copy the partition directories aside, keep the leader up if the follower is in the "
        "ISR, then rebuild the follower."
    ),
    "TRN005": (
        "Nothing to repair with acks=all and retries; with acks=1 tell the producers the range "
        "and the time."
    ),
    "TRN006": "Copy the partition directory of both replicas aside and compare the range.",
}


def next_step(code: str) -> str:
    """What the person who is woken by this code does first."""
    return NEXT_STEP[code]
