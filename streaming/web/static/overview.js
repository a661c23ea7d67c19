// Ten seconds: is data lost or at risk, where, why, what to do.

import { get } from "/static/api.js";
import { h, put, table } from "/static/dom.js";
import { age, clock, count, range, subject } from "/static/words.js";

export const SIGNS = { lost: "✖", diverged: "≠", blind: "?", "at risk": "!", ok: "✓" };
const RUNGS = {
  behind: ["behind", "a replica's log ends below the high watermark"],
  under_replicated: ["under-replicated", "an assigned replica is not in sync"],
  at_min_isr: ["at min ISR", "one more failure and writes are refused"],
  under_min_isr: ["under min ISR", "writes with acks=all are refused"],
  offline: ["offline", "no leader: neither reads nor writes"],
  unclean: ["unclean", "a leader was elected that was not in sync"],
  diverged: ["diverged", "replicas hold different records at the same offset"],
  lost: ["lost", "committed records are gone"],
};
const GRAVE = new Set(["under_min_isr", "offline", "unclean", "diverged", "lost"]);

export function badge(word) {
  return h(
    "span",
    { class: `badge ${word.replace(" ", "-")}` },
    h("span", { "aria-hidden": "true" }, SIGNS[word] || ""),
    ` ${word}`,
  );
}

function verdictLine(cluster) {
  const worst = cluster.verdict;
  return h(
    "section",
    { class: `verdict ${worst.replace(" ", "-")}`, "aria-label": `cluster ${cluster.cluster}` },
    h(
      "div",
      { class: "verdict-head" },
      badge(worst),
      h("h2", {}, cluster.cluster),
      h("p", { class: "because" }, cluster.because),
      cluster.alert &&
        h(
          "a",
          { class: "button", href: `#/alert/${cluster.alert}`, "data-key": `go-${cluster.cluster}` },
          `${cluster.code}: proof and what to do`,
        ),
    ),
    cluster.next_step &&
      h("p", { class: "first" }, h("strong", {}, "Do first: "), cluster.next_step),
    cluster.also.length > 0 &&
      h("p", { class: "muted" }, "Also: ", cluster.also.map((word) => [badge(word), " "])),
    ladder(cluster),
    facts(cluster),
  );
}

function ladder(cluster) {
  return h(
    "ul",
    { class: "ladder", "aria-label": `Partitions of ${cluster.cluster} by trouble` },
    Object.entries(RUNGS).map(([name, [label, meaning]]) => {
      const number = cluster.ladder[name];
      const kind = number === 0 ? "none" : GRAVE.has(name) ? "grave" : "some";
      const where = { under_replicated: 1, at_min_isr: 1, under_min_isr: 1, offline: 1 }[name]
        ? `#/partitions?cluster=${encodeURIComponent(cluster.cluster)}&flag=${name}`
        : { unclean: "ELE009", diverged: "", lost: "" }[name] !== undefined
          ? `#/alerts?cluster=${encodeURIComponent(cluster.cluster)}&open_only=true` +
            (name === "unclean" ? "&code=ELE009" : "&severity=critical")
          : null;
      const content = [
        h("span", { class: "number" }, number.toLocaleString("en")),
        h("span", { class: "rung" }, label),
      ];
      return h(
        "li",
        { class: kind, title: meaning },
        number > 0 && where
          ? h("a", { href: where, "data-key": `${cluster.cluster}-${name}` }, content)
          : content,
      );
    }),
  );
}

function facts(cluster) {
  const brokers = cluster.brokers.map((each) => {
    const state = !each.registered
      ? "down"
      : each.fenced
        ? "fenced"
        : each.answers === false
          ? "silent"
          : "up";
    const since = state === "down" ? ` for ${age(Date.now() - each.seen_ms)}` : "";
    return h(
      "li",
      { class: `broker ${state}` },
      h("span", { class: "dot", "aria-hidden": "true" }, state === "up" ? "●" : "○"),
      ` ${each.broker} ${state}${since}`,
      each.controller && h("span", { class: "tag" }, "controller"),
      each.rack && h("span", { class: "muted" }, ` ${each.rack}`),
    );
  });
  const sources = cluster.sources.map((each) =>
    h("li", {}, `${each.source}: ${age(each.age_ms)} ago`),
  );
  return h(
    "div",
    { class: "facts" },
    h("p", {}, `${count(cluster.partitions, "partition")}, Kafka ${cluster.rules || "unknown"}`),
    h("div", {}, h("h3", {}, "Brokers"), h("ul", { class: "inline" }, brokers)),
    h("div", {}, h("h3", {}, "Sources"), h("ul", { class: "inline" }, sources)),
  );
}

function causes(found) {
  if (!found.causes.length) {
    return h("p", { class: "muted" }, "No alert fires.");
  }
  return table(
    "Alerts that fire, by cause",
    ["Severity", "Alert", "Where", "Offsets", "For"],
    found.causes.map((cause) =>
      h(
        "tbody",
        { class: "cause" },
        h(
          "tr",
          {},
          h(
            "th",
            { scope: "rowgroup", colspan: 5 },
            h("span", { class: "mono" }, cause.cause),
            h("span", { class: "muted" }, ` in ${cause.cluster}`),
          ),
        ),
        cause.alerts.map((alert) =>
          h(
            "tr",
            {},
            h("td", {}, h("span", { class: `severity ${alert.severity}` }, alert.severity)),
            h(
              "td",
              {},
              h(
                "a",
                { href: `#/alert/${alert.fingerprint}`, "data-key": alert.fingerprint },
                `${alert.code} ${alert.name.replaceAll("-", " ")}`,
              ),
              h("div", { class: "small muted" }, alert.because),
            ),
            h("td", { class: "mono where" }, subject(alert)),
            h("td", { class: "mono whole" }, range(alert.offsets)),
            h("td", { class: "whole", title: clock(alert.started_at_ms) }, age(found.now_ms - alert.started_at_ms)),
          ),
        ),
      ),
    ),
  );
}

const ORDER = ["lost", "diverged", "blind", "at risk", "ok"];

function content(found) {
  const clusters = [...found.clusters].sort(
    (a, b) => ORDER.indexOf(a.verdict) - ORDER.indexOf(b.verdict),
  );
  const failing = found.job.sinks.filter((sink) => sink.failing_since_ms !== null);
  return [
    !found.job.running &&
      h("p", { class: "notice", role: "alert" }, "The monitoring job does not run. What you see is old."),
    found.job.state && h("p", { class: "notice" }, `No state of partitions: ${found.job.state}.`),
    failing.length > 0 &&
      h("p", { class: "notice" }, `Alerts do not get out: ${failing.map((each) => each.sink).join(", ")} fails.`),
    clusters.length
      ? clusters.map(verdictLine)
      : h("p", {}, "The first batch takes longest, half a minute or so. This page shows it by itself."),
    h("h2", {}, "What fires now, by cause"),
    causes(found),
    h(
      "p",
      { class: "muted" },
      `${count(found.acknowledged, "alert")} taken on, ${found.pending} pending. `,
      h("a", { href: "#/alerts" }, "All alerts"),
    ),
  ];
}

// The answer in one line; it is also what a screen reader says first.
function answer(found) {
  const named = (word) => found.clusters.filter((each) => each.verdict === word).map((each) => each.cluster);
  const listed = (names) => (names.length > 3 ? `${names.length} clusters` : names.join(" and "));
  for (const [word, sentence] of [
    ["lost", "Committed data is lost in "],
    ["diverged", "Replicas have diverged in "],
    ["blind", "The monitor is blind on "],
    ["at risk", "Data is at risk in "],
  ]) {
    if (named(word).length) return sentence + listed(named(word));
  }
  return found.clusters.length ? "No data is lost or at risk" : "No cluster has been seen yet";
}

export async function overview() {
  const region = h("div", {});
  const heading = h("h1", {});
  const render = (found) => {
    const text = answer(found);
    if (heading.textContent !== text) heading.textContent = text;
    document.title = `${text} - Tidestaff`;
    put(region, content(found).filter(Boolean));
  };
  const first = await get("overview");
  render(first);
  return {
    title: answer(first),
    node: h("div", {}, heading, region),
    refresh: async () => {
      const found = await get("overview");
      return () => render(found);
    },
  };
}
