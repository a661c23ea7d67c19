// The search over partitions, and one partition with its past.

import { get } from "/static/api.js";
import { h, put, table } from "/static/dom.js";
import { legend, picture, role } from "/static/picture.js";
import { age, clock, count, exact, partitionLink, percent, range } from "/static/words.js";

const FLAG_WORDS = {
  under_replicated: "under-replicated",
  at_min_isr: "at min ISR",
  under_min_isr: "under min ISR",
  offline: "offline",
  violating: "breaks a rule",
};
const PAGE = 50;
const PROVEN = /^(TRN00[12]|HWM002|ELE009|LOG003)$/;

export function field(label, input) {
  return h("label", { class: "field" }, h("span", {}, label), input);
}

export function choice(name, value, options) {
  return h(
    "select",
    { name },
    options.map(([each, text]) => h("option", { value: each, selected: each === (value || "") }, text)),
  );
}

// A form whose fields are the query of the address: what is found can be shared as a link.
export function filterForm(path, children) {
  const form = h(
    "form",
    {
      class: "filters",
      role: "search",
      onsubmit: (event) => {
        event.preventDefault();
        const query = new URLSearchParams();
        for (const [name, value] of new FormData(form)) if (value) query.append(name, value);
        location.hash = `#/${path}?${query}`;
      },
    },
    children,
    h("button", { type: "submit" }, "Search"),
  );
  return form;
}

export function pager(path, query, total, offset, size) {
  const to = (at) => {
    const next = new URLSearchParams(query);
    next.set("offset", at);
    return `#/${path}?${next}`;
  };
  return h(
    "p",
    { class: "pager" },
    total ? `${offset + 1} to ${Math.min(offset + size, total)} of ${total.toLocaleString("en")} ` : "Nothing found. ",
    offset > 0 && h("a", { href: to(Math.max(0, offset - size)) }, "previous"),
    " ",
    offset + size < total && h("a", { href: to(offset + size) }, "next"),
  );
}

export async function partitions(_, query) {
  const region = h("div", {});
  const offset = Number(query.get("offset")) || 0;
  const asked = () => get("partitions", { ...Object.fromEntries(query), limit: PAGE, offset });
  const [found, all] = await Promise.all([asked(), get("overview")]);
  const render = (page) =>
    put(
      region,
      pager("partitions", query, page.total, offset, PAGE),
      table(
        "Partitions",
        ["Partition", "Cluster", "Leader", "ISR", "Replicas", "HW", "State"],
        page.partitions.map((each) => {
          const lead = each.replicas.find((replica) => replica.broker === each.leader);
          return h(
            "tr",
            {},
            h(
              "th",
              { scope: "row" },
              h("a", { class: "mono", href: partitionLink(each.cluster, each.topic, each.partition) }, `${each.topic}-${each.partition}`),
            ),
            h("td", {}, each.cluster),
            h("td", {}, each.leader < 0 ? "none" : `${each.leader} (epoch ${each.leader_epoch})`),
            h("td", {}, each.isr.join(", ")),
            h("td", {}, each.assignment.join(", ")),
            h("td", { class: "mono" }, lead ? lead.high_watermark.toLocaleString("en") : ""),
            h("td", {}, each.flags.map((flag) => h("span", { class: `tag flag ${flag}` }, FLAG_WORDS[flag]))),
          );
        }),
      ),
    );
  render(found);
  const clusters = [["", "all clusters"], ...all.clusters.map((each) => [each.cluster, each.cluster])];
  return {
    title: "Partitions",
    node: h(
      "div",
      {},
      h("h1", {}, "Partitions"),
      filterForm("partitions", [
        field("Topic", h("input", { name: "q", type: "search", value: query.get("q") || "", placeholder: "part of a name" })),
        field("Cluster", choice("cluster", query.get("cluster"), clusters)),
        field("Broker", h("input", { name: "broker", inputmode: "numeric", size: 5, value: query.get("broker") || "" })),
        field("State", choice("flag", query.get("flag"), [["", "any"], ...Object.entries(FLAG_WORDS)])),
        field("Contents", choice("verified", query.get("verified"), [["", "any"], ["true", "compared"], ["false", "never compared"]])),
      ]),
      region,
    ),
    refresh: async () => {
      const page = await asked();
      return () => render(page);
    },
  };
}

// What happened between two moments, in words.
function changes(before, after) {
  if (!before) return ["first seen"];
  const found = [];
  if (before.leader !== after.leader) {
    const name = (leader) => (leader < 0 ? "none" : leader);
    found.push(`leader ${name(before.leader)} → ${name(after.leader)}, epoch ${after.leader_epoch}`);
  } else if (before.leader_epoch !== after.leader_epoch) found.push(`epoch ${after.leader_epoch}`);
  if (before.isr.join() !== after.isr.join()) found.push(`ISR (${before.isr.join(" ")}) → (${after.isr.join(" ")})`);
  if (before.assignment.join() !== after.assignment.join()) found.push(`replicas now ${after.assignment.join(", ")}`);
  for (const broker of before.live) if (!after.live.includes(broker)) found.push(`broker ${broker} down`);
  for (const broker of after.live) if (!before.live.includes(broker)) found.push(`broker ${broker} up`);
  for (const [broker, from, to] of after.truncated) found.push(`broker ${broker} cut ${range([to, from])}`);
  const known = new Set(before.findings.map((each) => `${each.code}/${each.broker}`));
  for (const each of after.findings) if (!known.has(`${each.code}/${each.broker}`)) found.push(`${each.code} raised`);
  const still = new Set(after.findings.map((each) => `${each.code}/${each.broker}`));
  for (const each of before.findings) {
    // A loss that is no longer seen is still a loss: its alert stays until somebody takes it on.
    if (!still.has(`${each.code}/${each.broker}`) && !PROVEN.test(each.code)) found.push(`${each.code} over`);
  }
  if (before.lost.length < after.lost.length) found.push(`lost ${range(after.lost[after.lost.length - 1])}`);
  return found;
}

// How far the bytes of all copies have been compared.
// Where a setting comes from, if that is known.
const from = (source) => (source ? ` (${source})` : "");

function contents(state) {
  const known = state.verified;
  if (!known)
    return h("p", { class: "verified" }, "Contents: not compared yet. ", h("a", { href: "#/coverage" }, "What is compared"));
  const epoch = known.epoch === null ? "" : ` (epoch ${known.epoch})`;
  return h(
    "p",
    { class: "verified" },
    `Contents: all copies are equal in ${range(known.offsets)}${epoch}, ${percent(known.share)} of what is committed; `,
    `compared up to there at ${clock(known.at_ms)}, in a pass that began at ${clock(known.began_ms)}.`,
  );
}

function replicaTable(state) {
  return table(
    "Replicas in numbers",
    ["Broker", "Role", "Log start", "HW", "LEO", "Epochs (epoch@offset)", "Predicted cut"],
    state.replicas.map((each) =>
      h(
        "tr",
        {},
        h("th", { scope: "row" }, each.broker),
        h("td", {}, role(state, each.broker)),
        h("td", { class: "mono" }, each.log_start),
        h("td", { class: "mono" }, each.high_watermark),
        h("td", { class: "mono" }, each.log_end),
        h("td", { class: "mono" }, each.lineage ? each.lineage.map((entry) => `${entry[0]}@${entry[1]}`).join(" ") : "not read"),
        h("td", {}, each.cut ? `${each.cut.offset} in epoch ${each.cut.epoch}: ${each.cut.because}` : ""),
      ),
    ),
  );
}

function verdictOf(state) {
  if (state.lost.length) return ["lost", `Committed offsets ${state.lost.map(range).join(", ")} are lost.`];
  if (state.kept.length) return ["diverged", "Replicas hold different records at the same offsets."];
  if (state.flags.includes("offline")) return ["at-risk", "Offline: no leader."];
  if (state.flags.includes("under_min_isr")) return ["at-risk", "Under min ISR: writes with acks=all are refused."];
  if (state.findings.length) return ["at-risk", `Breaks ${state.findings.map((each) => each.code).join(", ")}.`];
  if (state.flags.includes("under_replicated")) return ["at-risk", "Under-replicated."];
  return ["ok", "All replicas are in sync."];
}

export async function partition([cluster, topic, number], query) {
  const path = ["partitions", ...[cluster, topic, number].map(encodeURIComponent)].join("/");
  let found = await get(path);
  let at = null;
  let whole = false;
  const wanted = Number(query.get("at"));
  if (wanted) {
    const earlier = found.moments.filter((moment) => moment.at_ms <= wanted);
    at = earlier.length ? earlier.length - 1 : null;
  }
  const drawing = h("div", { class: "drawing", tabindex: "0", role: "region", "aria-label": "Logs of the replicas" });
  const told = h("p", { class: "moment", "aria-live": "polite" });
  const head = h("div", {});
  const numbers = h("div", {});
  const events = h("div", {});
  const slider = h("input", {
    type: "range",
    id: "moment",
    min: 0,
    step: 1,
    "aria-describedby": "moment-text",
    oninput: () => go(Number(slider.value)),
  });
  told.id = "moment-text";
  const shown = () => (at === null ? found.now : found.moments[at]);

  function go(index) {
    at = index >= found.moments.length ? null : Math.max(0, index);
    render();
  }

  function render() {
    const state = shown();
    const count_ = found.moments.length;
    slider.max = count_;
    slider.value = at === null ? count_ : at;
    slider.disabled = count_ === 0;
    slider.setAttribute("aria-valuetext", at === null ? "now" : clock(state.at_ms));
    const before = at === null ? found.moments[count_ - 1] : found.moments[at - 1];
    const words = at === null ? [] : changes(before, state);
    told.textContent =
      at === null
        ? `Now (${clock(state.at_ms)})${count_ ? "" : ": nothing has happened since it is watched"}`
        : `${clock(state.at_ms)}: ${words.join("; ") || "as before"}`;
    const width = Math.max(340, Math.min(1100, drawing.clientWidth || 900));
    put(drawing, picture(state, { width, whole, past: found.moments }));
    const [kind, sentence] = verdictOf(state);
    put(
      head,
      h("p", { class: `sentence ${kind}` }, h("strong", {}, sentence)),
      h(
        "p",
        {},
        `Leader ${state.leader < 0 ? "none" : state.leader}, epoch ${state.leader_epoch}; ISR (${state.isr.join(" ")}) of (${state.assignment.join(" ")}); `,
        `min.insync.replicas ${state.min_insync_replicas}${from(state.min_insync_replicas_source)}; `,
        `unclean election ${state.unclean_election_allowed ? "allowed" : "not allowed"}${from(state.unclean_election_source)}; `,
        `Kafka ${state.rules.version} ${state.rules.mode}; committed ${range(state.committed)}.`,
      ),
      contents(state),
    );
    put(numbers, replicaTable(state));
    put(events, timeline());
  }

  function timeline() {
    const told = found.moments
      .map((moment, index) => [moment, index])
      .filter(([moment, index]) => index > 0 && changes(found.moments[index - 1], moment).length);
    if (!told.length) return h("p", { class: "muted" }, "Nothing since it is watched but that logs grew.");
    return h(
      "ol",
      { class: "timeline", reversed: true },
      told
        .reverse()
        .slice(0, 100)
        .map(([moment, index]) =>
          h(
            "li",
            index === at ? { "aria-current": "true" } : {},
            h("button", { type: "button", class: "link", "data-key": `m${moment.at_ms}`, onclick: () => go(index) }, clock(moment.at_ms)),
            ` ${changes(found.moments[index - 1], moment).join("; ")}`,
          ),
        ),
    );
  }

  const alertList = h("div", {});
  const renderAlerts = () =>
    put(
      alertList,
      found.alerts.length
        ? h(
            "ul",
            {},
            found.alerts.map((each) =>
              h(
                "li",
                {},
                h("span", { class: `severity ${each.severity}` }, each.severity),
                " ",
                h("a", { href: `#/alert/${each.fingerprint}` }, `${each.code} ${each.name.replaceAll("-", " ")}`),
                ` ${each.status}, since ${clock(each.started_at_ms)} ${range(each.offsets)}`,
              ),
            ),
          )
        : h("p", { class: "muted" }, "None."),
    );
  renderAlerts();
  const zoom = h("button", {
    type: "button",
    "aria-pressed": "false",
    onclick: () => {
      whole = !whole;
      zoom.setAttribute("aria-pressed", String(whole));
      render();
    },
  }, "Whole log");
  const node = h(
    "div",
    {},
    h("h1", {}, h("span", { class: "mono" }, `${topic}-${number}`), h("span", { class: "muted" }, ` in ${cluster}`)),
    head,
    drawing,
    legend(),
    h(
      "div",
      { class: "player" },
      h("label", { for: "moment" }, "Time"),
      h("button", { type: "button", "aria-label": "earlier", onclick: () => go((at === null ? found.moments.length : at) - 1) }, "◀"),
      slider,
      h("button", { type: "button", "aria-label": "later", onclick: () => go((at === null ? found.moments.length : at) + 1) }, "▶"),
      h("button", { type: "button", onclick: () => go(found.moments.length) }, "Now"),
      zoom,
    ),
    told,
    h("h2", {}, "In numbers"),
    numbers,
    h("h2", {}, "Alerts"),
    alertList,
    h("h2", {}, "What happened"),
    events,
  );
  render();
  requestAnimationFrame(render);
  return {
    title: `${topic}-${number}`,
    node,
    refresh: async () => {
      const next = await get(path);
      return () => {
        const stays = at === null ? null : found.moments[at].at_ms;
        found = next;
        at = stays === null ? null : Math.max(0, found.moments.findIndex((moment) => moment.at_ms === stays));
        render();
        renderAlerts();
      };
    },
  };
}
