// Which brokers can be stopped: the forecast of Kafka's rules for every partition.

import { get } from "/static/api.js";
import { h, put, table } from "/static/dom.js";
import { field } from "/static/partition.js";
import { count, partitionLink, range } from "/static/words.js";

const OUTCOMES = {
  loses: "lose committed records",
  offline: "go offline",
  unclean: "get an unclean leader",
  under_min_isr: "refuse acks=all writes",
  cuts: "cut a replica's log",
  moves: "go on as they are, or with another leader",
  unchanged: "are not touched",
};

function result(found) {
  const worst = found.counts.loses ? "lost" : found.safe ? (found.counts.under_min_isr ? "at-risk" : "ok") : "at-risk";
  const sentence = found.counts.loses
    ? "No. Committed records would be lost."
    : found.counts.offline
      ? "Not safe: partitions go offline until a broker is back."
      : found.counts.unclean
        ? "Not safe: leaders would be elected that are not in sync."
        : found.counts.under_min_isr
          ? "Nothing is lost, but writes with acks=all are refused meanwhile."
          : "Safe: every partition keeps a leader and accepts writes.";
  return [
    h("p", { class: `sentence ${worst}`, role: "status" }, h("strong", {}, sentence)),
    h(
      "ul",
      { class: "outcomes" },
      Object.entries(OUTCOMES)
        .filter(([name]) => found.counts[name])
        .map(([name, words]) => h("li", {}, h("strong", {}, count(found.counts[name], "partition")), ` ${words}`)),
    ),
    found.rows.length > 0 &&
      table(
        "The partitions that fare worst",
        ["Partition", "Outcome", "Leader", "ISR", "Lost", "Cuts"],
        found.rows.map((each) =>
          h(
            "tr",
            {},
            h("th", { scope: "row" }, h("a", { class: "mono", href: partitionLink(found.cluster, each.topic, each.partition) }, `${each.topic}-${each.partition}`)),
            h("td", {}, each.outcome.replaceAll("_", " ")),
            h("td", {}, `${each.leader_before} → ${each.leader < 0 ? "none" : each.leader}`),
            h("td", {}, each.isr.join(", ")),
            h("td", { class: "mono" }, range(each.lost)),
            h("td", {}, each.cuts.map((cut) => h("div", {}, `broker ${cut.broker} ${range(cut.offsets)}${cut.on_return ? " on return" : ""}`))),
          ),
        ),
      ),
    found.rows_left_out > 0 && h("p", { class: "muted" }, `and ${found.rows_left_out} more`),
  ].filter(Boolean);
}

export async function whatIf(_, query) {
  const all = await get("overview");
  const clusters = all.clusters.filter((each) => each.brokers.length);
  const name = query.get("cluster") || (clusters[0] && clusters[0].cluster);
  const cluster = clusters.find((each) => each.cluster === name);
  const stopping = query.getAll("stop");
  const controlled = query.get("controlled") === "true";
  const region = h("div", {});
  const asked = () => get("what-if", { cluster: name, stop: stopping, controlled });
  const chosen = stopping.length > 0 && cluster;
  if (chosen) put(region, result(await asked()));
  const go = (form) => {
    const next = new URLSearchParams();
    for (const [key, value] of new FormData(form)) next.append(key, value);
    location.hash = `#/what-if?${next}`;
  };
  const form = h(
    "form",
    {
      class: "filters",
      onsubmit: (event) => {
        event.preventDefault();
        go(form);
      },
    },
    field(
      "Cluster",
      h(
        "select",
        { name: "cluster", onchange: (event) => { location.hash = `#/what-if?cluster=${encodeURIComponent(event.target.value)}`; } },
        clusters.map((each) => h("option", { value: each.cluster, selected: each.cluster === name }, each.cluster)),
      ),
    ),
    cluster &&
      h(
        "fieldset",
        {},
        h("legend", {}, "Stop these brokers"),
        cluster.brokers.map((each) =>
          h(
            "label",
            { class: "check" },
            h("input", { type: "checkbox", name: "stop", value: String(each.broker), checked: stopping.includes(String(each.broker)) }),
            ` ${each.broker}${each.registered ? "" : " (down)"}`,
          ),
        ),
      ),
    h(
      "label",
      { class: "check" },
      h("input", { type: "checkbox", name: "controlled", value: "true", checked: controlled }),
      " as a clean stop (leaders move first)",
    ),
    h("button", { type: "submit" }, "Forecast"),
  );
  return {
    title: "What if",
    node: h(
      "div",
      {},
      h("h1", {}, "Is it safe to stop a broker?"),
      h("p", {}, "Kafka's rules for the version of the cluster, applied to the newest state of every partition. Nothing is written to the cluster."),
      clusters.length ? form : h("p", { class: "notice" }, "No cluster has been seen yet."),
      region,
    ),
    refresh: async () => {
      if (!chosen) return null;
      const found = await asked();
      return () => put(region, result(found));
    },
  };
}
