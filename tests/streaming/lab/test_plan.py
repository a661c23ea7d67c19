"""The plan of a lab: what is chosen, written down, and told when it is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tidestaff.streaming.jars import locked
from tidestaff.streaming.lab.errors import LabError
from tidestaff.streaming.lab.places import lab_folder, labs
from tidestaff.streaming.lab.plan import load_plan, make_plan
from tidestaff.streaming.lab.properties import broker_properties, settings_to_give, text_of
from tidestaff.streaming.lab.releases import RELEASES, ZOOKEEPER_LOCK
from tidestaff.streaming.lab.wires import Cut, read_cuts, wires_of, write_cuts

if TYPE_CHECKING:
    from pathlib import Path

    from tidestaff.streaming.lab.plan import Plan


def ports(plan: Plan) -> list[int]:
    found = [
        *plan.clients.values(),
        *plan.inner.values(),
        *plan.inner_wires.values(),
        *plan.controllers.values(),
        *plan.controller_wires.values(),
        *plan.zookeeper_wires.values(),
    ]
    return [*found, *([plan.zookeeper] if plan.zookeeper else [])]


@pytest.mark.parametrize("mode", ["kraft", "zookeeper"])
@pytest.mark.parametrize("cuttable", [True, False])
def test_a_plan_is_read_back_as_it_was_written(tmp_path: Path, mode: str, cuttable: bool) -> None:
    settings = {0: {"a": "1"}, 2: {"b": "2"}}
    plan = make_plan(tmp_path, version="3.9.1", mode=mode, cuttable=cuttable, settings=settings)
    plan.save()
    assert load_plan(tmp_path) == plan
    assert len(set(ports(plan))) == len(ports(plan))


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        pytest.param({"version": "3.9.0"}, r"did you mean 3\.9\.1", id="unknown-version"),
        pytest.param({"version": "4.1.1", "mode": "zookeeper"}, "--mode kraft", id="wrong-mode"),
        pytest.param({"version": "0.10.2.2", "mode": "kraft"}, "--mode zookeeper", id="too-old"),
        pytest.param({"version": "3.9.1", "brokers": 0}, "expected 1 to 9", id="no-broker"),
        pytest.param({"version": "3.9.1", "brokers": 10}, "expected 1 to 9", id="too-many"),
    ],
)
def test_what_cannot_be_had_is_told_with_what_can(
    tmp_path: Path, wanted: dict[str, object], told: str
) -> None:
    with pytest.raises(LabError, match=told):
        make_plan(tmp_path, **wanted)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": "3.9.1"}'])
def test_a_damaged_plan_says_which_folder_to_remove(tmp_path: Path, text: str) -> None:
    (tmp_path / "lab.json").write_text(text, encoding="utf-8")
    with pytest.raises(LabError, match="remove"):
        load_plan(tmp_path)


def test_a_folder_without_a_lab_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="tidestaff lab up"):
        load_plan(tmp_path)


def test_settings_of_one_broker_stand_before_those_of_all(tmp_path: Path) -> None:
    settings = {0: {"x": "all", "y": "all"}, 2: {"x": "own"}}
    plan = make_plan(tmp_path, version="3.9.1", mode="zookeeper", settings=settings)
    one, two = broker_properties(plan, 1), broker_properties(plan, 2)
    assert (one["x"], one["y"], two["x"], two["y"]) == ("all", "all", "own", "all")
    assert text_of({"b": "2", "a": "1"}) == "a=1\nb=2\n"


@pytest.mark.parametrize("mode", ["kraft", "zookeeper"])
def test_with_wires_no_node_reaches_another_past_them(tmp_path: Path, mode: str) -> None:
    plan = make_plan(tmp_path, version="3.9.1", mode=mode, cuttable=True)
    hidden = {*plan.inner.values(), *plan.controllers.values()} | {plan.zookeeper or -1}
    for broker in plan.brokers:
        told = broker_properties(plan, broker)
        asked = " ".join(
            told.get(name, "")
            for name in ("advertised.listeners", "controller.quorum.voters", "zookeeper.connect")
        )
        assert not [port for port in hidden if f":{port}" in asked]
        if mode == "kraft":
            # Else voters find the leader of the quorum by its own listener, past the wires.
            wire = f"CONTROLLER://127.0.0.1:{plan.controller_wires[broker]}"
            assert wire in told["advertised.listeners"].split(",")
    assert {each.port for each in wires_of(plan)} == hidden - {-1}


def test_cuts_are_read_as_they_were_written(tmp_path: Path) -> None:
    assert read_cuts(tmp_path) == set()
    cuts = {Cut(frozenset({1, 2})), Cut(frozenset({0, 3}), inner_only=True)}
    write_cuts(tmp_path, cuts)
    assert read_cuts(tmp_path) == cuts


@pytest.mark.parametrize("version", RELEASES)
def test_every_release_has_its_lock_file_with_its_own_broker(version: str) -> None:
    jars = locked(RELEASES[version].lock)
    brokers = [jar for jar in jars if jar.artifact.startswith("kafka_2.")]
    assert [jar.version for jar in brokers] == [version]
    assert len({jar.file_name for jar in jars}) == len(jars)


def test_zookeeper_has_its_lock_file() -> None:
    assert "zookeeper" in {jar.artifact for jar in locked(ZOOKEEPER_LOCK)}


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".hidden", "a b"])
def test_a_name_cannot_leave_the_folder_of_labs(tmp_path: Path, name: str) -> None:
    with pytest.raises(LabError, match="expected letters"):
        lab_folder(name, {"TIDESTAFF_LAB_DIR": str(tmp_path)})


def test_labs_are_listed_by_name(tmp_path: Path) -> None:
    environment = {"TIDESTAFF_LAB_DIR": str(tmp_path)}
    for name in ("b", "a"):
        make_plan(lab_folder(name, environment), version="4.1.1").save()
    assert labs(environment) == ["a", "b"]


def test_what_all_brokers_have_is_given_where_none_can_be_asked(tmp_path: Path) -> None:
    """As they have it: by the defaults of the version leaders would be moved back by themselves."""
    mine = {0: {"min.insync.replicas": "2"}, 1: {"zookeeper.session.timeout.ms": "25000"}}
    plan = make_plan(tmp_path, version="0.10.2.2", settings=mine)
    assert settings_to_give(plan) == {
        "settings.auto.leader.rebalance.enable": "false",
        "settings.min.insync.replicas": "2",
        "settings.zookeeper.session.timeout.ms": "6000",
    }
