// The console: one stream of snapshots, one screen at a time, and the frame of the page.

import { askToken, close, show, toast } from "./dialogs.js";
import { h, mark, say, SYMBOLS } from "./dom.js";
import { findAndFollow } from "./finding.js";
import { clock, many, seconds, short } from "./format.js";
import { History } from "./history.js";
import * as dlq from "./screens/dlq.js";
import * as doctor from "./screens/doctor.js";
import * as draining from "./screens/draining.js";
import * as errors from "./screens/errors.js";
import * as group from "./screens/group.js";
import * as overview from "./screens/overview.js";
import * as partitions from "./screens/partitions.js";
import * as rebalances from "./screens/rebalances.js";
import * as ring from "./screens/ring.js";
import * as stuck from "./screens/stuck.js";
import * as workers from "./screens/workers.js";
import { auth, follow } from "./stream.js";
import { discover } from "./verbs.js";

/** The screens: their shortcut key after g, and the number beside the name. */
const SCREENS = [
  { name: "overview", title: "Overview", key: "o", module: overview },
  { name: "ring", title: "Ring", key: "r", module: ring },
  { name: "workers", title: "Workers", key: "w", module: workers, beside: (s) => s.totals.workers },
  { name: "partitions", title: "Partitions", key: "p", module: partitions, beside: (s) => s.status.partitions.length },
  { name: "draining", title: "Draining", key: "d", module: draining, beside: (s) => s.totals.draining },
  { name: "stuck", title: "Slow and stuck", key: "s", module: stuck, beside: (s) => s.stuck.length },
  { name: "errors", title: "Errors", key: "e", module: errors, beside: (s) => s.status.subscriptions.reduce((sum, sub) => sum + sub.errors.length, 0) },
  { name: "dlq", title: "Dead letters", key: "l", module: dlq, beside: (s) => s.totals.dead_letters },
  { name: "rebalances", title: "Rebalances", key: "b", module: rebalances, beside: (s) => s.status.rebalanced.length },
  { name: "group", title: "Group", key: "m", module: group },
  { name: "doctor", title: "Doctor and settings", key: "c", module: doctor },
];

const $ = (id) => document.getElementById(id);
const history = new History();
let snapshot = null;
let current = null;

// --- the frame of the page ---

const links = SCREENS.map((each) => {
  const beside = h("span", { class: "beside" });
  const link = h("a", { href: `#/${each.name}`, title: `g ${each.key}` }, h("span", {}, each.title), beside);
  return { ...each, link, beside: each.beside, shown: beside };
});
$("nav").append(...links.map((each) => each.link));

function frame() {
  const { about, status, diagnosis } = snapshot;
  say($("whose"), `${status.group} · ${about.topics.join(", ")} · ${about.host}`);
  mark($("whose"), "title", `Group ${status.group}, ${many(about.topics.length, "topic")} ${about.topics.join(", ")}, host ${about.host}`);
  document.title = `${diagnosis.healthy ? "" : "✕ "}${current.title} · ${status.group} · keyshared`;
  for (const each of links) {
    if (!each.beside) continue;
    const number = each.beside(snapshot);
    say(each.shown, number > 0 ? short(number) : "");
  }
  const strip = $("diagnosis");
  const kind = kindOf(diagnosis);
  strip.hidden = current?.name === "overview";
  mark(strip, "data-kind", kind);
  say(strip, `${SYMBOLS[kind]}  ${diagnosis.text}`);
}

/** The style of a diagnosis: ok, warn or fail. */
function kindOf(diagnosis) {
  if (!diagnosis.healthy) return "fail";
  return diagnosis.findings.length ? "warn" : "ok";
}

function connection(state, text) {
  const link = $("link");
  mark(link, "data-state", state);
  say(link, text);
}

function notice(text) {
  const shown = $("notice");
  shown.hidden = !text;
  say(shown, text);
  document.body.classList.toggle("stale", Boolean(text));
}

// --- screens ---

function go() {
  const [name] = location.hash.replace(/^#\/?/, "").split("/");
  const wanted = SCREENS.find((each) => each.name === name) ?? SCREENS[0];
  for (const each of links) {
    mark(each.link, "aria-current", each.name === wanted.name ? "page" : null);
    // On a narrow page the names are in a row that scrolls.
    if (each.name === wanted.name) $("nav").scrollLeft = each.link.offsetLeft - ($("nav").clientWidth - each.link.offsetWidth) / 2;
  }
  if (current?.name !== wanted.name) {
    current?.screen.leave?.();
    const root = h("div", { class: `screen ${wanted.name}` });
    const waits = h("p", { class: "empty" }, "Waiting for the first snapshot…");
    current = { name: wanted.name, title: wanted.title, root, waits, screen: wanted.module.screen(root) };
    $("screen").replaceChildren(h("h1", {}, wanted.title), waits, root);
    scrollTo(0, 0);
  }
  draw();
}

function draw() {
  current.waits.hidden = snapshot !== null;
  current.root.hidden = snapshot === null;
  if (snapshot === null) return;
  frame();
  try {
    current.screen.update(snapshot, history);
  } catch (error) {
    // A fault of this page: it must not look like one of the connection.
    console.error(error);
    notice(`This screen cannot be shown (${error.message}). The others work; keyshared status shows the same data.`);
  }
}

// --- keys ---

const HELP = [
  ["/", "follow a key, a slot or a record"],
  ["?", "show these keys"],
  ["t", "light, dark, or the system theme"],
  ["Esc", "close"],
  ...SCREENS.map((each) => [`g ${each.key}`, each.title]),
];

function help() {
  const rows = HELP.map(([keys, what]) => [h("dt", {}, ...keys.split(" ").map((each) => h("kbd", {}, each))), h("dd", {}, what)]);
  show("Keys", h("dl", { class: "keys" }, rows), h("div", { class: "buttons" }, h("button", { type: "button", autofocus: true, onclick: () => close() }, "Close")));
}

function theme() {
  const name = { auto: "Auto", light: "Light", dark: "Dark" }[window.keysharedTheme.name];
  say($("theme"), name);
  mark($("theme"), "aria-label", `${name} theme`);
}

let waiting = "";
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || $("dialog").open) return;
  if (event.target.closest("input, textarea, select")) return;
  const after = waiting;
  waiting = "";
  if (after === "g") {
    const wanted = SCREENS.find((each) => each.key === event.key);
    if (wanted) location.hash = `#/${wanted.name}`;
  } else if (event.key === "g") waiting = "g";
  else if (event.key === "/") findAndFollow(() => snapshot);
  else if (event.key === "?") help();
  else if (event.key === "t") $("theme").click();
  else return;
  event.preventDefault();
});
// The address names the screen: a fragment of its own would be another one.
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  $("content").focus();
});
$("help").addEventListener("click", help);
$("find").addEventListener("click", () => findAndFollow(() => snapshot));
$("theme").addEventListener("click", () => {
  window.keysharedTheme.next();
  theme();
  draw();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
addEventListener("resize", draw);
addEventListener("hashchange", go);

// --- the stream ---

const SAID = {
  lost: (detail) => `Connection lost${detail ? ` (${detail})` : ""}. The page reconnects by itself. ${seen()} If the instance has ended, start it again.`,
  old: (detail) => `This page and the instance have different versions: ${detail}. Load the page again.`,
  refused: (detail) => `The instance refused the request: ${detail}.`,
};

function seen() {
  return snapshot === null ? "No snapshot has arrived yet." : `The page shows the snapshot of ${clock(snapshot.taken_at)}.`;
}

let wasLive = false;
follow({
  snapshot(value) {
    snapshot = value;
    history.take(value);
    const age = Date.now() / 1000 - value.taken_at;
    if (!wasLive) discover(value);
    wasLive = true;
    // A status that is not made anew is that of an owner that is busy: a rebalance, most often.
    connection("live", age > 3 && age < 3600 ? `live · ${seconds(age)} old` : "live");
    notice("");
    draw();
  },
  state(name, detail) {
    wasLive = false;
    connection(name, { lost: "connection lost", old: "does not fit", refused: "refused" }[name]);
    notice(SAID[name](detail));
  },
  async token() {
    connection("token", "token needed");
    if (!(await askToken(auth.token ? "The instance refused this token." : ""))) {
      notice("The page needs the token of the instance.");
      await new Promise((resolve) => {
        const again = h("button", { type: "button", onclick: resolve }, "Enter the token");
        $("notice").append(" ", again);
      });
    }
    notice("");
  },
});
addEventListener("unhandledrejection", (event) => toast("fail", `Error in this page: ${event.reason}`));
theme();
go();
