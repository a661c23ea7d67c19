"""The page in a real browser: every view on a running job, by keyboard, and without a job."""

from __future__ import annotations

import json
import re
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.browser.conftest import PATIENCE_S
from tests.streaming.web.watched import HTML

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Browser, Page

    from tests.browser.conftest import RunningJob

    Shot = Callable[[Page, str], None]

pytestmark = [pytest.mark.slow, pytest.mark.spark]
AA = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}


def asked(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=30) as response:  # noqa: S310 - loopback
        return json.load(response)


def loss(job: RunningJob) -> Any:
    return asked(f"{job.url}/api/v1/alerts?code=TRN001")["alerts"][0]


def opened(page: Page, address: str) -> None:
    page.goto(address)
    expect(page.locator("main h1")).to_be_visible()


def accessible(page: Page) -> None:
    found = Axe().run(page, options=AA)
    told = [
        f"{each['id']}: {each['help']} {[node['html'] for node in each['nodes']][:3]}"
        for each in found.response["violations"]
    ]
    assert told == []


def test_the_overview_says_in_one_line_what_is_lost_and_what_to_do(
    page: Page, job: RunningJob, shot: Shot
) -> None:
    opened(page, f"{job.url}/")
    expect(page.locator("h1")).to_contain_text("Committed data is lost in old-0.10.2")
    line = page.get_by_role("region", name="cluster old-0.10.2")
    expect(line).to_contain_text("committed offsets lost: t-0, offsets [1,2)")
    expect(line).to_contain_text("Do first: Leave brokers that are down DOWN")
    expect(line.locator(".ladder li").last).to_contain_text("1lost")
    expect(line).to_contain_text("controller")
    expect(page.locator("#live")).to_have_text("live")
    accessible(page)
    shot(page, "overview")


def test_a_partition_shows_the_logs_and_goes_back_in_time(
    page: Page, job: RunningJob, shot: Shot
) -> None:
    opened(page, f"{job.url}/#/partition/old-0.10.2/t/0")
    picture = page.locator("svg.picture")
    expect(picture).to_have_attribute("aria-label", re.compile(r"offsets \[1, 2\) are lost"))
    expect(picture.locator(".who")).to_have_count(3)
    expect(page.locator(".timeline li").first).to_be_visible()
    accessible(page)
    shot(page, "partition")
    page.locator("#moment").focus()
    page.keyboard.press("Home")
    expect(page.locator(".moment")).to_contain_text("first seen")
    expect(picture).not_to_have_attribute("aria-label", re.compile("are lost"))
    expect(page.locator(".sentence")).to_contain_text("All replicas are in sync")
    told = []
    for _ in range(30):
        page.keyboard.press("ArrowRight")
        told.append(page.locator(".moment").inner_text())
        if told[-1].startswith("Now"):
            break
    assert any("broker 1 cut [1, 2)" in each for each in told), told
    assert any("leader 3 → 2" in each for each in told), told
    page.get_by_role("button", name=re.compile(r"\d{4}-")).first.click()
    expect(page.locator(".moment")).not_to_contain_text("Now")


def test_an_alert_is_told_and_taken_on(page: Page, job: RunningJob, shot: Shot) -> None:
    found = loss(job)
    opened(page, f"{job.url}/#/alert/{found['fingerprint']}")
    expect(page.locator("article")).to_contain_text("leader LEO >= 2")
    expect(page.locator("article")).to_contain_text("leader 1 LEO 1")
    expect(page.get_by_role("region", name="Evidence with its times")).to_contain_text("committed")
    accessible(page)
    shot(page, "alert")
    page.get_by_label("Who are you?").fill("Ada <b>")
    page.get_by_label("Why, or what").fill("copying the directories")
    page.get_by_role("button", name="Acknowledge").click()
    expect(page.locator("article")).to_contain_text("Ada <b> has taken it on")
    assert asked(f"{job.url}/api/v1/alerts/{found['fingerprint']}")["acks"][0]["who"] == "Ada <b>"


def test_alerts_are_searched_filtered_and_exported(page: Page, job: RunningJob, shot: Shot) -> None:
    opened(page, f"{job.url}/#/alerts")
    page.get_by_label("Code").fill("TRN001")
    page.get_by_label("Severity").select_option("critical")
    page.get_by_label("Until (UTC)").fill("2020-01-01T00:00")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("main")).to_contain_text("Nothing found")
    page.get_by_label("Until (UTC)").fill("")
    page.get_by_label("From (UTC)").fill("2020-01-01T00:00")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page).to_have_url(re.compile("code=TRN001&severity=critical&from=2020"))
    accessible(page)
    shot(page, "alerts")
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    assert "TRN001" in download.value.path().read_text()
    page.get_by_role("link", name=re.compile("TRN001")).click()
    page.get_by_role("link", name="Runbook").click()
    expect(page.locator("h1")).to_contain_text("TRN001")
    expect(page.locator("article")).to_contain_text("What not to do")
    accessible(page)


def test_partitions_are_found(page: Page, job: RunningJob, shot: Shot) -> None:
    opened(page, f"{job.url}/#/partitions")
    expect(page.locator("tbody tr")).to_have_count(2)
    page.get_by_label("Cluster").select_option("new-3.9")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    accessible(page)
    shot(page, "partitions")


def test_what_if_answers_whether_a_broker_can_be_stopped(
    page: Page, job: RunningJob, shot: Shot
) -> None:
    opened(page, f"{job.url}/#/what-if?cluster=new-3.9")
    for broker in ("1", "2", "3"):
        page.get_by_role("checkbox", name=re.compile(rf"^{broker}\b")).check()
    page.get_by_role("button", name="Forecast").click()
    expect(page.locator("main")).to_contain_text("go offline")
    accessible(page)
    shot(page, "what-if")


def test_kip_101_is_played_with_both_protocols_side_by_side(
    page: Page, job: RunningJob, shot: Shot
) -> None:
    opened(page, f"{job.url}/#/learn")
    sides = page.locator(".side")
    expect(sides).to_have_count(2)
    for _ in range(5):
        page.get_by_role("button", name="next step").click()
    expect(sides.first).to_contain_text("TRN001")
    expect(sides.last).not_to_contain_text("TRN001")
    accessible(page)
    shot(page, "learn")


def test_coverage_says_what_cannot_be_judged(page: Page, job: RunningJob, shot: Shot) -> None:
    opened(page, f"{job.url}/#/coverage")
    expect(page.locator("tbody")).to_contain_text("keeps no leader epochs")
    accessible(page)
    shot(page, "coverage")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_nothing_is_cut_off(
    browser: Browser, job: RunningJob, scheme: Any, shot: Shot
) -> None:
    context = browser.new_context(color_scheme=scheme, viewport={"width": 390, "height": 800})
    page = context.new_page()
    for name in ("", "alerts", "partition/old-0.10.2/t/0", "learn", "what-if"):
        opened(page, f"{job.url}/#/{name}")
        page.reload()
        expect(page.locator("main h1")).to_be_visible()
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 390, f"{name} is {wide} wide"
        accessible(page)
    opened(page, f"{job.url}/#/")
    shot(page, f"phone-{scheme}")
    context.close()


def test_everything_is_reached_by_keyboard(page: Page, job: RunningJob) -> None:
    opened(page, f"{job.url}/")
    expect(page.locator(":focus")).to_have_js_property("tagName", "H1")
    passed = []
    for _ in range(12):
        page.keyboard.press("Shift+Tab")
        passed.append(page.locator(":focus").inner_text())
        if passed[-1] == "Skip to the content":
            break
    assert {"Overview", "Alerts", "Partitions", "What if", "Learn"} <= set(passed), passed
    expect(page.locator(":focus")).to_have_text("Skip to the content")
    page.keyboard.press("Enter")
    expect(page.locator(":focus")).to_have_attribute("id", "main")
    reached = []
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.getAttribute('href')"))
        if str(reached[-1]).startswith("#/alert"):
            break
    assert str(reached[-1]).startswith("#/alert"), reached
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid", "who has the focus must be seen"
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("#/alert"))
    expect(page.locator(":focus")).to_have_js_property("tagName", "H1")


def test_a_topic_named_like_html_stays_text(page: Page, still: str) -> None:
    page.on("dialog", lambda dialog: pytest.fail(f"a script ran: {dialog.message}"))
    opened(page, f"{still}/#/partitions?cluster=odd")
    link = page.get_by_role("link", name=f"{HTML}-0", exact=True)
    expect(link).to_have_text(f"{HTML}-0")
    link.click()
    expect(page.locator("h1")).to_contain_text(HTML)
    page.get_by_role("link", name=re.compile("TRN001")).first.click()
    expect(page.locator("article")).to_contain_text(HTML)
    opened(page, f"{still}/#/")
    expect(page.get_by_role("region", name="cluster odd")).to_contain_text(HTML)
    assert page.locator("main img").count() == 0


def test_a_cut_is_drawn_before_it_happens(page: Page, still: str, shot: Shot) -> None:
    """Brokers 2 and 3 are back; 2 has a record that its leader has not, and has not fetched yet."""
    opened(page, f"{still}/#/partition/old/t/0")
    page.locator("#moment").focus()
    page.keyboard.press("End")
    predicted = page.locator("svg.picture").get_by_text("cut at 1 predicted")
    expect(predicted).to_have_count(0)
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".moment")).to_contain_text("broker 2 up")
    expect(predicted).to_have_count(1)
    shot(page, "partition-predicted-cut")


def test_coverage_says_what_was_compared_and_what_waits(page: Page, still: str, shot: Shot) -> None:
    opened(page, f"{still}/#/coverage")
    expect(page.get_by_role("region", name="Coverage by cluster")).to_contain_text(
        "2 of 3 partitions (67 %)"
    )
    waiting = page.get_by_role("region", name="waited longest").locator("tbody tr")
    expect(waiting).to_have_count(3)
    expect(waiting.first).to_contain_text("never")
    accessible(page)
    shot(page, "coverage-compared")
    waiting.filter(has_text="orders-0").get_by_role("link").click()
    expect(page.locator(".verified")).to_contain_text("all copies are equal in [0, 6) (epoch 0)")
    expect(page.locator(".verified")).to_contain_text("60 % of what is committed")
    expect(page.locator("svg.picture .compared")).to_have_count(1)
    accessible(page)
    shot(page, "partition-compared")
    opened(page, f"{still}/#/partitions?cluster=new&verified=false")
    expect(page.locator("tbody tr")).to_have_count(1)


def test_a_page_without_a_job_says_that_it_is_old(page: Page, still: str) -> None:
    opened(page, f"{still}/#/")
    expect(page.locator("#live")).to_contain_text("the job does not run")
    expect(page.locator("main")).to_contain_text("What you see is old")


def test_the_job_dies_and_returns_while_the_page_is_open(page: Page, job: RunningJob) -> None:
    opened(page, f"{job.url}/")
    expect(page.locator("#live")).to_have_text("live")
    job.die()
    expect(page.locator("#live")).to_contain_text("connection lost")
    expect(page.get_by_role("region", name="cluster old-0.10.2")).to_be_visible()
    job.come_back()
    expect(page.locator("#live")).to_have_text("live", timeout=1_000 * PATIENCE_S)

    def again() -> bool:
        return "first batch is done" in job.monitor.err.rsplit("starting Spark")[-1]

    job.monitor.until(again)
    expect(page.get_by_role("region", name="cluster new-3.9")).to_be_visible()
