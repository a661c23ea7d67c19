// The search over alerts, and one alert with all that is behind it.

import { get, send } from "/static/api.js";
import { h, put, table } from "/static/dom.js";
import { choice, field, filterForm, pager } from "/static/partition.js";
import { age, clock, exact, partitionLink, range, subject } from "/static/words.js";

const PAGE = 50;
const SINCE = [["", "any time"], ["3600000", "last hour"], ["86400000", "last day"], ["604800000", "last week"]];

// Which time the address asks for: so long ago until now, or from one time to another. Times are UTC,
// as everywhere on the page, so that a link means the same to whoever gets it.
function between(query) {
  const found = {};
  const instant = (name) => Date.parse(`${query.get(name) || ""}Z`);
  const span = Number(query.get("within"));
  if (span) found.since_ms = Date.now() - span;
  if (instant("from") >= 0) found.since_ms = instant("from");
  if (instant("until") >= 0) found.until_ms = instant("until") + 59999;
  return found;
}

export async function alerts(_, query) {
  const region = h("div", {});
  const offset = Number(query.get("offset")) || 0;
  const wanted = Object.fromEntries(query);
  const times = () => between(query);
  for (const name of ["within", "from", "until"]) delete wanted[name];
  const asked = () => get("alerts", { ...wanted, ...times(), limit: PAGE, offset });
  const [found, all] = await Promise.all([asked(), get("overview")]);
  const render = (page) =>
    put(
      region,
      pager("alerts", query, page.total, offset, PAGE),
      table(
        "Alerts",
        ["Status", "Severity", "Alert", "Cluster", "Where", "Offsets", "Since"],
        page.alerts.map((each) =>
          h(
            "tr",
            {},
            h("td", {}, h("span", { class: `status ${each.status}` }, each.status)),
            h("td", {}, h("span", { class: `severity ${each.severity}` }, each.severity)),
            h(
              "th",
              { scope: "row" },
              h("a", { href: `#/alert/${each.fingerprint}`, "data-key": each.fingerprint }, `${each.code} ${each.name.replaceAll("-", " ")}`),
            ),
            h("td", {}, each.cluster),
            h("td", { class: "mono where" }, subject(each)),
            h("td", { class: "mono whole" }, range(each.offsets)),
            h("td", {}, clock(each.started_at_ms)),
          ),
        ),
      ),
    );
  render(found);
  const link = (form) => {
    const next = new URLSearchParams(wanted);
    for (const [name, value] of Object.entries(times())) next.set(name, value);
    next.set("format", form);
    return `/api/v1/export/alerts?${next}`;
  };
  const clusters = [["", "all clusters"], ...all.clusters.map((each) => [each.cluster, each.cluster])];
  return {
    title: "Alerts",
    node: h(
      "div",
      {},
      h("h1", {}, "Alerts"),
      filterForm("alerts", [
        field("Text", h("input", { name: "q", type: "search", value: query.get("q") || "", placeholder: "topic, code, words" })),
        field("Cluster", choice("cluster", query.get("cluster"), clusters)),
        field("Topic", h("input", { name: "topic", value: query.get("topic") || "" })),
        field("Broker", h("input", { name: "broker", inputmode: "numeric", size: 5, value: query.get("broker") || "" })),
        field("Code", h("input", { name: "code", size: 7, value: query.get("code") || "", placeholder: "TRN" })),
        field("Severity", choice("severity", query.get("severity"), [["", "any"], ["critical", "critical"], ["warning", "warning"], ["info", "info"]])),
        field("Status", choice("status", query.get("status"), [["", "any"], ["firing", "firing"], ["acknowledged", "acknowledged"], ["pending", "pending"], ["resolved", "resolved"]])),
        field("Seen", choice("within", query.get("within"), SINCE)),
        field("From (UTC)", h("input", { name: "from", type: "datetime-local", value: query.get("from") || "" })),
        field("Until (UTC)", h("input", { name: "until", type: "datetime-local", value: query.get("until") || "" })),
      ]),
      h("p", {}, "Export: ", h("a", { href: link("csv") }, "CSV"), " ", h("a", { href: link("json") }, "JSON")),
      region,
    ),
    refresh: async () => {
      const page = await asked();
      return () => render(page);
    },
  };
}

function evidence(found) {
  const told = found.evidence;
  if (!told) return h("p", { class: "muted" }, "No evidence was kept with it.");
  const rows = [];
  const state = (each) =>
    `leader ${each.leader}, epoch ${each.leader_epoch}, ISR (${each.isr.join(" ")}), version ${each.partition_epoch}`;
  const row = (what, value, at) =>
    rows.push(h("tr", {}, h("th", { scope: "row" }, what), h("td", { class: "mono" }, value), h("td", {}, at ? exact(at) : "")));
  const before = told.before;
  if (before) {
    row("before: metadata", state(before.state), before.observed_at_ms);
    row("before: committed", range(before.committed), before.observed_at_ms);
    for (const each of before.replicas || []) {
      row(`before: broker ${each.broker}`, `HW ${each.high_watermark}, LEO ${each.log_end}${lineage(each)}`, before.observed_at_ms);
    }
  }
  if (told.state) row("now: metadata", state(told.state), told.observed_at_ms);
  if (told.live) row("now: live", told.live.map((each) => each[0]).join(", "), told.observed_at_ms);
  for (const each of told.replicas || []) {
    row(
      `now: broker ${each.broker}`,
      `log start ${each.log_start}, HW ${each.high_watermark}, LEO ${each.log_end}${lineage(each)}${each.leads ? ", says it leads" : ""}`,
      each.read_at_ms,
    );
  }
  for (const name of ["controller", "controller_epoch", "place", "reason"]) {
    if (told[name] !== undefined && told[name] !== null) row(`now: ${name.replace("_", " ")}`, String(told[name]), told.observed_at_ms);
  }
  if (told.registrations) row("now: registered", told.registrations.map((each) => each[0]).join(", "), told.observed_at_ms);
  row("source", `${told.source}${told.round !== undefined ? `, round ${told.round}` : ""}${told.bracket ? `, ${told.bracket} sample` : ""}`, told.observed_at_ms);
  return table("Evidence with its times", ["What", "Value", "Read at"], rows);
}

function lineage(each) {
  return each.epochs && each.epochs.length ? `, epochs ${each.epochs.map((entry) => entry.join("@")).join(" ")}` : "";
}

function predictions(found) {
  const cuts = (found.evidence && found.evidence.before && found.evidence.before.predicted_cuts) || [];
  return h(
    "div",
    { class: "versus" },
    h(
      "section",
      {},
      h("h2", {}, "Kafka's rules predict"),
      h("p", { class: "mono big" }, found.expected || "nothing was predicted"),
      cuts.map((cut) => h("p", { class: "mono" }, `broker ${cut.broker} cuts at ${cut.offset} in epoch ${cut.epoch}`)),
    ),
    h("section", {}, h("h2", {}, "Observed"), h("p", { class: "mono big" }, found.observed || "nothing")),
  );
}

function ackForm(found, done) {
  const complaint = h("p", { role: "alert", class: "notice", hidden: true });
  const who = h("input", { id: "who", name: "who", required: true, maxlength: 200, autocomplete: "name" });
  const why = h("textarea", { id: "why", name: "why", required: true, maxlength: 2000, rows: 3 });
  return h(
    "form",
    {
      class: "stack narrow",
      onsubmit: async (event) => {
        event.preventDefault();
        try {
          await send("POST", `alerts/${found.fingerprint}/acknowledge`, { who: who.value, why: why.value });
          done();
        } catch (error) {
          complaint.textContent = error.message;
          complaint.hidden = false;
        }
      },
    },
    h("h2", {}, "Take it on"),
    h("label", { for: "who" }, "Who are you?"),
    who,
    h("label", { for: "why" }, "Why, or what are you doing about it?"),
    why,
    h("button", { type: "submit" }, "Acknowledge"),
    complaint,
  );
}

function life(found) {
  return h(
    "ol",
    { class: "timeline" },
    found.history.map((each) =>
      h("li", {}, clock(each.at_ms), " ", h("span", { class: `status ${each.status}` }, each.status), each.reason ? ` (${each.reason})` : ""),
    ),
    found.acks.map((each) => h("li", {}, clock(each.at_ms), ` taken on by ${each.who}: ${each.why}`)),
  );
}

export async function alert([fingerprint]) {
  const path = `alerts/${encodeURIComponent(fingerprint)}`;
  let found = await get(path);
  const region = h("div", {});
  const rest = h("div", {});
  const actions = h("div", {});
  const reload = async () => {
    found = await get(path);
    render();
    renderActions();
    actions.querySelector("[tabindex]")?.focus();
  };

  function renderActions() {
    put(
      actions,
      found.acknowledged
        ? h("p", { class: "sentence ok", tabindex: "-1" }, h("strong", {}, `${found.acknowledged.who} has taken it on`), ` (${clock(found.acknowledged.at_ms)}): ${found.acknowledged.why}`)
        : found.status === "firing" || found.status === "pending"
          ? ackForm(found, reload)
          : h("p", { class: "muted" }, "It is over: nothing to take on."),
    );
  }

  function render() {
    const place = found.topic !== null ? partitionLink(found.cluster, found.topic, found.partition, found.last_seen_ms) : null;
    put(
      region,
      h(
        "p",
        {},
        h("span", { class: `severity ${found.severity}` }, found.severity),
        " ",
        h("span", { class: `status ${found.status}` }, found.status),
        ` since ${clock(found.started_at_ms)} (${age(Date.now() - found.started_at_ms)})`,
        found.resolved_at_ms ? `, over since ${clock(found.resolved_at_ms)}` : "",
      ),
      h(
        "p",
        { class: "where" },
        h("span", { class: "mono" }, `${found.cluster} ${subject(found)} ${range(found.offsets)}`),
        place ? [" ", h("a", { class: "button", href: place, "data-key": "logs" }, "See the logs")] : "",
      ),
      h("p", { class: "lead" }, found.because),
      h("p", { class: "first" }, h("strong", {}, "Do first: "), found.next_step, " ", h("a", { href: `#/rule/${found.code}`, "data-key": "runbook" }, "Runbook")),
      predictions(found),
    );
    put(
      rest,
      found.members.length
        ? [
            h("h2", {}, `Partitions (${found.members_count})`),
            h(
              "ul",
              { class: "columns" },
              found.members.map((each) =>
                h("li", {}, h("a", { class: "mono", href: partitionLink(found.cluster, each.topic, each.partition) }, `${each.topic}-${each.partition}`), ` ${each.observed} ${range(each.offsets)}`),
              ),
            ),
          ]
        : [],
      h("h2", {}, "The rule"),
      h("p", {}, h("strong", {}, found.claim), ` ${found.why}`),
      h("p", { class: "muted" }, `Judged ${found.sampling}, from ${found.inputs}. Grace: ${found.grace}.`),
      h("h2", {}, "Evidence"),
      evidence(found),
      h("h2", {}, "Its life"),
      life(found),
    );
  }

  const copied = h("span", { role: "status" });
  const share = h("button", {
    type: "button",
    onclick: async () => {
      try {
        await navigator.clipboard.writeText(location.href);
        copied.textContent = " The link is copied.";
      } catch {
        copied.textContent = ` ${location.href}`;
      }
    },
  }, "Copy link");
  render();
  renderActions();
  return {
    title: found.code,
    node: h(
      "article",
      {},
      h("h1", {}, `${found.code} ${found.name.replaceAll("-", " ")}`),
      region,
      actions,
      rest,
      h("p", {}, share, copied),
    ),
    refresh: async () => {
      const next = await get(path);
      return () => {
        const was = found.status;
        found = next;
        render();
        if (was !== found.status) renderActions();
      };
    },
  };
}
