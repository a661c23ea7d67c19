// What is seen of each cluster, what has been compared, and what cannot be judged.

import { get } from "/static/api.js";
import { h, put, table } from "/static/dom.js";
import { age, count, partitionLink, percent, range } from "/static/words.js";

function share(part, whole) {
  return whole ? percent(part / whole) : "unknown";
}

function compared(cluster, known) {
  if (!known.partitions) return "none";
  return [
    `${known.partitions.toLocaleString("en")} of ${count(known.of, "partition")} (${share(known.partitions, known.of)}); `,
    `the oldest comparison is ${age(known.oldest_age_ms)} old`,
    known.empty ? `; ${known.empty.toLocaleString("en")} without records` : "",
    " ",
    known.partitions < known.of &&
      h(
        "a",
        { href: `#/partitions?cluster=${encodeURIComponent(cluster)}&verified=false`, "aria-label": `never compared in ${cluster}` },
        "never compared",
      ),
  ];
}

function waiting(clusters, now) {
  const rows = clusters.flatMap((each) => each.verified.worst.map((one) => [each.cluster, one]));
  if (!rows.length) return null;
  return [
    h("h2", {}, "Waiting longest to be compared"),
    table(
      "Partitions that have waited longest to be compared",
      ["Partition", "Cluster", "Compared", "Equal in", "Of what is committed"],
      rows.map(([cluster, one]) =>
        h(
          "tr",
          {},
          h(
            "th",
            { scope: "row" },
            h("a", { class: "mono", href: partitionLink(cluster, one.topic, one.partition) }, `${one.topic}-${one.partition}`),
          ),
          h("td", {}, cluster),
          h("td", {}, one.verified ? `${age(now - one.verified.at_ms)} ago` : "never"),
          h("td", { class: "mono" }, one.verified ? range(one.verified.offsets) : ""),
          h("td", {}, one.verified ? percent(one.verified.share) : one.committed[1] > one.committed[0] ? "nothing" : "no records"),
        ),
      ),
    ),
  ];
}

function content(found) {
  return [
    h("p", {}, found.contents),
    found.problem && h("p", { class: "notice" }, `No state of partitions: ${found.problem}.`),
    table(
      "Coverage by cluster",
      ["Cluster", "Kafka", "Partitions", "Newest word", "Replicas read", "With epochs", "Contents compared", "Blind spots"],
      found.clusters.map((each) =>
        h(
          "tr",
          {},
          h("th", { scope: "row" }, each.cluster),
          h("td", {}, each.versions.join(", ")),
          h("td", {}, each.partitions.toLocaleString("en")),
          h("td", {}, `${age(each.age_ms)} ago, by ${each.source}`),
          h("td", {}, share(each.replicas_read, each.replicas_looked_at)),
          h("td", {}, share(each.replicas_with_epochs, each.replicas_read)),
          h("td", {}, compared(each.cluster, each.verified)),
          h(
            "td",
            {},
            each.blind_spots.length
              ? h("ul", {}, each.blind_spots.map((spot) => h("li", {}, spot)))
              : "none known",
          ),
        ),
      ),
    ),
    h("p", { class: "muted" }, "Shares of replicas are of a sample of 200 partitions at most."),
    waiting(found.clusters, Date.now()),
  ]
    .flat()
    .filter(Boolean);
}

export async function coverage() {
  const region = h("div", {});
  put(region, content(await get("coverage")));
  return {
    title: "Coverage",
    node: h("div", {}, h("h1", {}, "What is seen, and what is not"), region),
    refresh: async () => {
      const found = await get("coverage");
      return () => put(region, content(found));
    },
  };
}
