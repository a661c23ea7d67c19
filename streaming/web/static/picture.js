// Logs on one offset axis: epochs as colours, log start, HW, LEO, cuts, lost and diverged ranges.

import { h, s } from "/static/dom.js";
import { range } from "/static/words.js";

const ROW = 62;
const TOP = 46;
const BAR = 24;
const PAD = 16;

// What of the offset axis is shown: all of it, or the part where logs may differ.
export function domain(state, whole) {
  const replicas = state.replicas;
  const ends = replicas.map((each) => each.log_end);
  const starts = replicas.map((each) => each.log_start);
  const marks = [
    ...ends,
    ...replicas.map((each) => each.high_watermark),
    ...replicas.filter((each) => each.cut).map((each) => each.cut.offset),
    ...(state.lost || []).flat(),
    ...(state.kept || []).flatMap((each) => each.slice(1)),
    ...(state.truncated || []).flatMap((each) => each.slice(1)),
    ...replicas.flatMap((each) => (each.lineage || []).slice(-2).map((entry) => entry[1])),
  ].filter((mark) => mark >= 0);
  const first = Math.min(...starts, ...(marks.length ? marks : [0]));
  const last = Math.max(1, ...marks);
  if (whole || last - first < 40) return [first, Math.max(last, first + 1)];
  const near = marks.filter((mark) => mark > last - (last - first) / 2 || mark > first);
  const low = Math.min(...near, last - 20);
  return [Math.max(first, Math.floor(low - (last - low) * 0.15)), last];
}

// Where no lineage was read, nobody knows who wrote what: one grey bar, and no guess.
function segments(replica) {
  const end = replica.log_end;
  const start = replica.log_start;
  const entries = (replica.lineage || []).filter((entry) => entry[1] < end);
  if (!entries.length) return end > start ? [{ epoch: null, from: start, to: end }] : [];
  const found = [];
  if (entries[0][1] > start) found.push({ epoch: null, from: start, to: entries[0][1] });
  entries.forEach((entry, at) => {
    const to = at + 1 < entries.length ? entries[at + 1][1] : end;
    const from = Math.max(entry[1], start);
    if (to > from) found.push({ epoch: entry[0], from, to });
  });
  return found;
}

export function role(state, broker) {
  if (broker === state.leader) return "leader";
  const live = !state.live || state.live.includes(broker);
  if (!live) return state.isr.includes(broker) ? "down, in ISR" : "down";
  return state.isr.includes(broker) ? "in sync" : "out of sync";
}

function hatch(id, colour) {
  return s(
    "pattern",
    { id, width: 8, height: 8, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    s("rect", { width: 8, height: 8, class: `${colour}-ground` }),
    s("line", { x1: 0, y1: 0, x2: 0, y2: 8, class: `${colour}-line`, "stroke-width": 5 }),
  );
}

let drawn = 0;

export function picture(state, options) {
  const { width = 900, whole = false, past = [] } = options || {};
  const id = `p${++drawn}`;
  const left = width < 560 ? 84 : 124;
  const [low, high] = domain(state, whole);
  const room = width - left - 64;
  const x = (offset) => left + ((Math.min(Math.max(offset, low), high) - low) / (high - low)) * room;
  const height = TOP + state.replicas.length * ROW + 18;
  const parts = [
    s("defs", {}, hatch(`${id}-lost`, "lost"), hatch(`${id}-diverged`, "diverged"), hatch(`${id}-cut`, "cut")),
    axis(low, high, x, height, width),
  ];
  const notes = [];
  const known = state.verified && state.verified.offsets;
  if (known && known[1] > low && known[0] < high) {
    parts.push(s("rect", { x: x(known[0]), y: 23, width: Math.max(3, x(known[1]) - x(known[0])), height: 5, class: "compared" }));
    notes.push(`all copies are equal in ${range(known)}`);
  }
  state.replicas.forEach((replica, at) => {
    const y = TOP + at * ROW + 14;
    parts.push(row(state, replica, y, { x, low, left, id, width, past }));
  });
  for (const lost of state.lost || []) {
    if (lost[1] <= low || lost[0] >= high) continue;
    const x0 = x(lost[0]);
    const wide = Math.max(6, x(lost[1]) - x0);
    parts.push(
      s("rect", { x: x0, y: TOP - 10, width: wide, height: height - TOP - 6, class: "lost-frame" }),
      s("rect", { x: x0, y: TOP - 14, width: wide, height: 10, fill: `url(#${id}-lost)` }),
      s("text", { x: x0 - 4, y: TOP - 5, class: "note lost-text", "text-anchor": "end" }, `lost ${range(lost)}`),
    );
    notes.push(`committed offsets ${range(lost)} are lost`);
  }
  const label = state.replicas
    .map(
      (each) =>
        `broker ${each.broker} ${role(state, each.broker)}: log ${each.log_start} to ${each.log_end}, high watermark ${each.high_watermark}`,
    )
    .concat(notes)
    .join("; ");
  return s(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label, class: "picture" },
    parts,
  );
}

function axis(low, high, x, height, width) {
  const wanted = width < 560 ? 4 : 8;
  const rough = Math.max(1, (high - low) / wanted);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(1, [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough));
  const marks = [];
  for (let mark = Math.ceil(low / step) * step; mark <= high; mark += step) marks.push(mark);
  return s(
    "g",
    { class: "axis" },
    s("text", { x: 8, y: 16 }, "offset"),
    marks.map((mark) => [
      s("line", { x1: x(mark), x2: x(mark), y1: 22, y2: height - 6 }),
      s("text", { x: x(mark), y: 16, "text-anchor": "middle" }, mark.toLocaleString("en")),
    ]),
  );
}

function row(state, replica, y, { x, low, left, id, width, past }) {
  const who = role(state, replica.broker);
  const parts = [
    s("text", { x: 8, y: y + 11, class: "who" }, `broker ${replica.broker}`),
    s("text", { x: 8, y: y + 26, class: "role" }, replica.role || who),
  ];
  for (const each of segments(replica)) {
    const x0 = x(each.from);
    const wide = Math.max(0, x(each.to) - x0);
    if (each.to <= low || wide <= 0) continue;
    parts.push(
      s("rect", {
        x: x0,
        y,
        width: wide,
        height: BAR,
        class: `epoch ${each.epoch === null ? "unknown" : `e${each.epoch % 8}`}${who.startsWith("down") ? " away" : ""}`,
      }),
      wide > 26 &&
        s("text", { x: x0 + 5, y: y + 16, class: "epoch-text" }, each.epoch === null ? (wide > 150 ? "epochs not known" : "") : `e${each.epoch}`),
    );
  }
  if (replica.log_end > replica.high_watermark && replica.log_end > low) {
    const from = x(Math.max(replica.high_watermark, replica.log_start));
    parts.push(
      s("rect", { x: from, y: y + BAR - 5, width: Math.max(0, x(replica.log_end) - from), height: 5, class: "uncommitted" }),
    );
  }
  for (const each of diverged(state, replica)) {
    const x0 = x(each[0]);
    parts.push(s("rect", { x: x0, y, width: Math.max(6, x(each[1]) - x0), height: BAR, fill: `url(#${id}-diverged)` }));
  }
  for (const [broker, from, to] of state.truncated || []) {
    if (broker !== replica.broker || from <= low) continue;
    parts.push(
      s("rect", { x: x(to), y, width: Math.max(6, x(from) - x(to)), height: BAR, fill: `url(#${id}-cut)`, class: "cut-away" }),
      s("text", { x: x(from) + 4, y: y + 10, class: "note" }, width < 560 ? "cut" : `cut ${range([to, from])}`),
    );
  }
  parts.push(marks(replica, y, x, low, left, width));
  if (replica.cut && replica.cut.offset >= low) {
    const at = x(replica.cut.offset);
    const comes = pending(state, replica, past);
    parts.push(
      s("line", { x1: at, x2: at, y1: y - 9, y2: y + BAR + 6, class: comes ? "predicted" : "predicted past" }),
      comes &&
        s("text", { x: at - 4, y: y - 4, class: "note", "text-anchor": "end" }, `cut at ${replica.cut.offset} predicted`),
    );
  }
  return s("g", {}, parts);
}

// A cut is still to come while the log holds nothing of the epoch that it is predicted for. Where
// epochs are not known: while the log is as it was when the cut was first predicted, and some of it is
// not committed yet. Whoever has followed has a shorter log, or a longer one.
function pending(state, replica, past) {
  const cut = replica.cut;
  if (cut.offset >= replica.log_end) return false;
  if (replica.lineage && replica.lineage.length) return replica.lineage[replica.lineage.length - 1][0] < cut.epoch;
  if (replica.high_watermark >= replica.log_end) return false;
  return past
    .filter((moment) => moment.at_ms <= state.at_ms && moment.leader_epoch === state.leader_epoch)
    .flatMap((moment) => moment.replicas)
    .filter((each) => each.broker === replica.broker && each.cut && each.cut.epoch === cut.epoch)
    .every((each) => each.log_end === replica.log_end);
}

function marks(replica, y, x, low, left, width) {
  const hw = x(replica.high_watermark);
  const leo = x(replica.log_end);
  const close = Math.abs(leo - hw) < (width < 560 ? 70 : 96);
  return [
    low > replica.log_start &&
      s("text", { x: left - 4, y: y + 16, class: "note", "text-anchor": "end" }, "⋯"),
    s("line", { x1: hw, x2: hw, y1: y - 5, y2: y + BAR + 5, class: "watermark" }),
    s("line", { x1: leo, x2: leo, y1: y, y2: y + BAR, class: "end" }),
    close
      ? s("text", { x: leo - left < 100 ? left - 2 : leo + 4, y: y + BAR + 13, class: "mark", "text-anchor": leo - left < 100 ? "start" : "end" }, `HW ${replica.high_watermark}  LEO ${replica.log_end}`)
      : [
          s("text", { x: hw, y: y + BAR + 13, class: "mark", "text-anchor": "middle" }, `HW ${replica.high_watermark}`),
          s("text", { x: leo + 4, y: y + BAR + 13, class: "mark", "text-anchor": "end" }, `LEO ${replica.log_end}`),
        ],
  ];
}

function diverged(state, replica) {
  const kept = (state.kept || []).filter((each) => each[0] === replica.broker).map((each) => each.slice(1));
  const found = (state.findings || [])
    .filter((each) => each.broker === replica.broker && each.offsets && /^(TRN00[346]|EPO|LOG)/.test(each.code))
    .map((each) => each.offsets);
  return [...kept, ...found];
}

export function legend() {
  const item = (kind, text) => h("li", {}, h("span", { class: `swatch ${kind}`, "aria-hidden": "true" }), ` ${text}`);
  return h(
    "ul",
    { class: "legend" },
    item("e0", "a colour for each leader epoch (e0, e1, ...)"),
    item("unknown", "epochs not known"),
    item("watermark", "high watermark (HW): below it is committed"),
    item("uncommitted", "not committed yet"),
    item("compared", "contents compared, equal"),
    item("predicted", "predicted cut"),
    item("cut", "cut away"),
    item("diverged", "diverged"),
    item("lost", "committed and lost"),
  );
}
