// A code of the catalogue with its runbook.

import { get } from "/static/api.js";
import { h } from "/static/dom.js";
import { markdown } from "/static/markdown.js";

export async function rule([code]) {
  const found = await get(`rules/${encodeURIComponent(code)}`);
  return {
    title: found.code,
    node: h(
      "article",
      { class: "prose" },
      h("h1", {}, `${found.code} ${found.name.replaceAll("-", " ")}`),
      h(
        "p",
        {},
        h("span", { class: `severity ${found.severity}` }, found.severity),
        ` ${found.class}. `,
        h("strong", {}, "The rule: "),
        found.claim,
      ),
      h("p", { class: "first" }, h("strong", {}, "Do first: "), found.next_step),
      found.runbook
        ? markdown(found.runbook.replace(/^# .*\n/, ""))
        : [h("p", {}, found.why), h("p", { class: "muted" }, "The runbook is not installed here.")],
    ),
  };
}
