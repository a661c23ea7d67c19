// Scenarios, step by step, under two versions side by side.

import { get } from "/static/api.js";
import { h, put } from "/static/dom.js";
import { legend, picture } from "/static/picture.js";
import { range } from "/static/words.js";

const FIRST = { name: "s23-loss-0.10.2", left: "0.10.2.2", right: "3.9.1" };

function lostBy(steps, at) {
  const found = {};
  for (const step of steps.slice(0, at + 1)) {
    for (const alert of step.alerts) {
      if (alert.code === "TRN001" && alert.offsets) (found[alert.partition] ||= []).push(alert.offsets);
    }
  }
  return found;
}

function side(play, at, width) {
  const step = play.steps[Math.min(at, play.steps.length - 1)];
  const lost = lostBy(play.steps, at);
  return h(
    "section",
    { class: "side", "aria-label": `Kafka ${play.version}` },
    h("h2", {}, `Kafka ${play.version}`),
    step.partitions.map((partition) => {
      const state = {
        ...partition,
        live: partition.replicas.filter((each) => each.role !== "down").map((each) => each.broker),
        lost: lost[partition.partition] || [],
        kept: step.alerts
          .filter((alert) => alert.partition === partition.partition && alert.offsets && alert.broker !== null && /^(TRN00[346]|EPO004)/.test(alert.code))
          .map((alert) => [alert.broker, ...alert.offsets]),
        truncated: [],
        replicas: partition.replicas.map((each) => ({ ...each, cut: null })),
      };
      return h(
        "div",
        {},
        h("p", { class: "mono" }, `${partition.partition}: leader ${partition.leader < 0 ? "none" : partition.leader}, epoch ${partition.leader_epoch}, ISR (${partition.isr.join(" ")})`),
        picture(state, { width }),
        h("ul", { class: "logs mono small" }, partition.replicas.map((each) => h("li", {}, `${each.broker}: ${each.log}`))),
      );
    }),
    step.alerts.length
      ? h(
          "ul",
          { class: "raised" },
          step.alerts.map((alert) =>
            h(
              "li",
              {},
              h("span", { class: `severity ${alert.severity}` }, alert.severity),
              " ",
              h("a", { href: `#/rule/${alert.code}` }, `${alert.code} ${alert.name.replaceAll("-", " ")}`),
              ` ${range(alert.offsets)}: ${alert.because}`,
            ),
          ),
        )
      : h("p", { class: "muted" }, "No alert in this step."),
  );
}

export async function learn([name], query) {
  const all = await get("scenarios");
  const chosen = name || FIRST.name;
  const known = all.scenarios.find((each) => each.name === chosen);
  if (!known) throw new Error(`There is no scenario ${chosen}.`);
  const left = query.get("left") || (chosen === FIRST.name ? FIRST.left : known.version);
  const right = query.get("right") || (left === FIRST.right ? FIRST.left : FIRST.right);
  const plays = await Promise.all(
    [left, right].map((version) => get(`scenarios/${encodeURIComponent(chosen)}`, { version })),
  );
  const steps = Math.max(...plays.map((play) => play.steps.length));
  let at = 0;
  const stage = h("div", { class: "sides" });
  const told = h("div", { class: "step", "aria-live": "polite" });
  const slider = h("input", { type: "range", id: "step", min: 0, max: steps - 1, step: 1, value: 0, oninput: () => go(Number(slider.value)) });

  function go(next) {
    at = Math.min(Math.max(0, next), steps - 1);
    slider.value = at;
    slider.setAttribute("aria-valuetext", `step ${at} of ${steps - 1}`);
    render();
  }

  function render() {
    const step = plays[0].steps[Math.min(at, plays[0].steps.length - 1)];
    put(
      told,
      h("p", {}, h("strong", {}, at === 0 ? "The cluster as it begins. " : `Step ${at} of ${steps - 1}. `), at === 0 ? "" : step.comment),
      h("p", { class: "mono small" }, step.commands.join("   ")),
    );
    const room = stage.clientWidth || 900;
    const width = Math.max(340, room > 820 ? Math.floor((room - 24) / 2) : room);
    put(stage, plays.map((play) => side(play, at, width)));
  }

  const form = h(
    "form",
    {
      class: "filters",
      onsubmit: (event) => {
        event.preventDefault();
        const data = new FormData(form);
        location.hash = `#/learn/${encodeURIComponent(data.get("name"))}?left=${data.get("left")}&right=${data.get("right")}`;
      },
    },
    h("label", { class: "field" }, h("span", {}, "Story"), h("select", { name: "name" }, all.scenarios.map((each) => h("option", { value: each.name, selected: each.name === chosen }, `${each.name}: ${each.title}`)))),
    [["left", left], ["right", right]].map(([label, version]) =>
      h("label", { class: "field" }, h("span", {}, `Kafka, ${label}`), h("select", { name: label }, all.versions.map((each) => h("option", { value: each, selected: each === version }, each)))),
    ),
    h("button", { type: "submit" }, "Play"),
  );
  render();
  requestAnimationFrame(render);
  return {
    title: "Learn",
    node: h(
      "div",
      {},
      h("h1", {}, plays[0].title),
      h("p", { class: "prose" }, plays[0].story.split("\n").slice(1).join(" ")),
      form,
      h(
        "div",
        { class: "player" },
        h("label", { for: "step" }, "Step"),
        h("button", { type: "button", "aria-label": "step back", onclick: () => go(at - 1) }, "◀"),
        slider,
        h("button", { type: "button", "aria-label": "next step", onclick: () => go(at + 1) }, "▶"),
      ),
      told,
      stage,
      legend(),
    ),
  };
}
