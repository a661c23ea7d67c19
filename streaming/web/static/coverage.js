// What is seen of each cluster, and what cannot be judged.

import { get } from "/static/api.js";
import { h, put, table } from "/static/dom.js";
import { age, count } from "/static/words.js";

function share(part, whole) {
  return whole ? `${Math.round((100 * part) / whole)} %` : "unknown";
}

function content(found) {
  return [
    h("p", {}, found.contents),
    found.problem && h("p", { class: "notice" }, `No state of partitions: ${found.problem}.`),
    table(
      "Coverage by cluster",
      ["Cluster", "Kafka", "Partitions", "Newest word", "Replicas read", "With epochs", "Blind spots"],
      found.clusters.map((each) =>
        h(
          "tr",
          {},
          h("th", { scope: "row" }, each.cluster),
          h("td", {}, each.versions.join(", ")),
          h("td", {}, count(each.partitions, "partition")),
          h("td", {}, `${age(each.age_ms)} ago, by ${each.source}`),
          h("td", {}, share(each.replicas_read, each.replicas_looked_at)),
          h("td", {}, share(each.replicas_with_epochs, each.replicas_read)),
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
    h("p", { class: "muted" }, "Shares are of a sample of 200 partitions at most."),
  ];
}

export async function coverage() {
  const region = h("div", {});
  put(region, content(await get("coverage")).filter(Boolean));
  return {
    title: "Coverage",
    node: h("div", {}, h("h1", {}, "What is seen, and what is not"), region),
    refresh: async () => {
      const found = await get("coverage");
      return () => put(region, content(found).filter(Boolean));
    },
  };
}
