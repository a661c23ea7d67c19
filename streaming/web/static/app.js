// The way from an address to a view, live updates, and logging in.

import { ApiError, get, listen, send } from "/static/api.js";
import { h, put } from "/static/dom.js";
import { overview } from "/static/overview.js";
import { partition, partitions } from "/static/partition.js";
import { alert, alerts } from "/static/alerts.js";
import { whatIf } from "/static/what-if.js";
import { learn } from "/static/learn.js";
import { coverage } from "/static/coverage.js";
import { rule } from "/static/rule.js";

const VIEWS = {
  "": overview,
  alerts,
  alert,
  partitions,
  partition,
  "what-if": whatIf,
  learn,
  coverage,
  rule,
};
const PARENT = { alert: "alerts", partition: "partitions", rule: "alerts" };

const main = document.getElementById("main");
const live = document.getElementById("live");
let current = null;
let wanted = 0;
let waiting = null;

function address() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/");
  return { name, rest: rest.map(decodeURIComponent), query: new URLSearchParams(query || "") };
}

function say(text, kind) {
  live.textContent = text;
  live.className = `live ${kind}`;
}

function problem(error) {
  if (error instanceof ApiError && error.status === 401) {
    logIn();
    return;
  }
  put(
    main,
    h("h1", { tabindex: "-1" }, "This cannot be shown"),
    h("p", { class: "notice" }, error.message),
    h("p", {}, h("a", { href: "#/" }, "To the overview")),
  );
}

async function show() {
  const { name, rest, query } = address();
  const view = VIEWS[name];
  const mine = ++wanted;
  for (const link of document.querySelectorAll("nav a")) {
    const here = link.dataset.view === (PARENT[name] || name);
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  try {
    if (!view) throw new Error("There is no such page.");
    const made = await view(rest, query);
    if (mine !== wanted) return;
    current = made;
    put(main, made.node);
    document.title = `${made.title} - Tidestaff`;
    const heading = main.querySelector("h1");
    if (heading) {
      heading.tabIndex = -1;
      heading.focus({ preventScroll: true });
    }
    window.scrollTo(0, 0);
  } catch (error) {
    if (mine === wanted) {
      current = null;
      problem(error);
    }
  }
}

async function refresh() {
  waiting = null;
  if (!current || !current.refresh) return;
  const mine = wanted;
  try {
    const apply = await current.refresh();
    if (mine === wanted && apply) apply();
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) logIn();
    // Anything else: what is shown stays, and the next change tries again.
  }
}

function changed(state) {
  if (state.running) say("live", "good");
  else say("the job does not run: what you see is old", "bad");
  if (waiting === null) waiting = setTimeout(refresh, 300);
}

function connect() {
  listen(changed, () => say("connection lost, trying again", "bad"));
}

async function logIn() {
  const session = await get("session");
  if (!session.token) {
    put(main, h("h1", {}, "Please come through the proxy"), h("p", {}, "It says who you are."));
    return;
  }
  const complaint = h("p", { role: "alert", class: "notice", hidden: true });
  const token = h("input", { type: "password", id: "token", autocomplete: "current-password" });
  const form = h(
    "form",
    {
      class: "stack narrow",
      onsubmit: async (event) => {
        event.preventDefault();
        try {
          await send("POST", "log-in", { token: token.value });
          connect();
          show();
        } catch (error) {
          complaint.textContent = error.message;
          complaint.hidden = false;
        }
      },
    },
    h("label", { for: "token" }, "Token"),
    token,
    h("button", { type: "submit" }, "Log in"),
    complaint,
  );
  put(main, h("h1", {}, "Log in"), form);
  token.focus();
}

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
window.addEventListener("hashchange", show);

const session = await get("session").catch(() => ({ needed: false }));
if (session.needed && session.user === null) {
  say("not logged in", "bad");
  logIn();
} else {
  connect();
  show();
}
