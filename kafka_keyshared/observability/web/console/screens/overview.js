// Overview: the findings, the main numbers, and their charts.

import { chart } from "../charts.js";
import { badge, folded, h, keyed, mark, panel, say, table } from "../dom.js";
import { bytes, count, key, many, percent, place, rate, seconds, slot } from "../format.js";
import { button, note } from "../verbs.js";

/** One finding: the problem, its record, the cause and the cure. */
function finding() {
  const level = badge();
  const sentence = h("p", { class: "sentence" });
  const facts = h("dl", { class: "facts" });
  const cause = h("p");
  const cure = h("p");
  const code = h("p", { class: "code" });
  const stack = folded("Stack of the handler");
  let now = null;
  const named = () => ({ at: `${now.topic}-${now.partition}@${now.offset}`, subscription: now.subscription });
  const acts = h("div", { class: "buttons" }, ["unblock", "drop", "dead-letter"].map((verb) => button(verb, named)));
  const why = h("div", {}, note("unblock", "drop", "dead-letter"));
  const fill = keyed(facts, (row) => row[0], ([name]) => {
    const value = h("dd");
    return { node: h("div", {}, h("dt", {}, name), value), update: ([, text]) => say(value, text) };
  });
  const node = h("article", { class: "finding" }, h("div", { class: "head" }, level.node, sentence), facts, cause, cure, stack.node, acts, why, code);
  return {
    node,
    update(each, shown) {
      now = each;
      acts.hidden = why.hidden = each.code !== "key-blocked" || each.offset === null;
      const fails = each.level === "fail";
      mark(node, "data-kind", each.level);
      level.update(each.level, fails ? "to be mended" : "to be watched");
      say(sentence, each.sentence);
      const rows = [];
      if (each.topic) rows.push([each.offset === null ? "partition" : "record", place(each)]);
      if (each.seconds !== null) rows.push(["for", seconds(each.seconds)]);
      if (each.slot !== null) rows.push(["slot", slot(each.slot)]);
      if (each.worker) rows.push(["worker", each.worker]);
      if (each.count > 1) rows.push(["of this kind", count(each.count)]);
      if (each.slot !== null) rows.push(["key", key(each.key, each.slot, shown)]);
      fill(rows);
      say(cause, `Why: ${each.cause}.`);
      say(cure, `To do: ${each.cure}.`);
      stack.update(each.stack);
      say(code, `${each.code} · number ${each.number} · docs/${each.page}`);
    },
  };
}

/** The unit of a number: one record, else records. */
const unitOf = (number, one) => (number === 1 ? one : `${one}s`);

const FIGURES = [
  { title: "Received", unit: "records/s", value: (s, past) => rate(past.rate((each) => each.fetched)), more: (s) => `${count(s.totals.fetched)} in all` },
  { title: "Settled", unit: "records/s", value: (s, past) => rate(past.rate((each) => each.settled)), more: (s) => `${count(s.totals.ok)} done, ${count(s.totals.dropped)} dropped` },
  { title: "Lag", unit: (s) => unitOf(s.totals.lag, "record"), value: (s) => count(s.totals.lag), more: (s) => (s.totals.lag_seconds === null ? "committed position to log end" : `the oldest is ${seconds(s.totals.lag_seconds)} old`) },
  { title: "Backlog", unit: (s) => unitOf(s.totals.backlog, "record"), value: (s) => count(s.totals.backlog), more: () => "lag without settled records" },
  { title: "Workers busy", unit: (s) => `of ${s.totals.workers}`, value: (s) => count(s.totals.busy), more: (s) => `${many(s.totals.running, "record")} running` },
  { title: "Window", unit: (s) => `of ${count(s.totals.held_max)}`, value: (s) => count(s.totals.held), more: (s) => `${unitOf(s.totals.held, "record")} held, ${bytes(s.totals.bytes)}`, share: (s) => s.totals.held / (s.totals.held_max || 1) },
  { title: "Handler, median", unit: "last 10 s", value: (s, past) => seconds(past.handler(0.5)), more: (s, past) => `p99 ${seconds(past.handler(0.99))}` },
  { title: "Failed attempts", unit: "since the start", value: (s) => count(s.totals.failed_attempts), more: (s) => `${count(s.totals.retried)} retried` },
  { title: "Closed keys", unit: (s) => unitOf(s.totals.closed, "key"), value: (s) => count(s.totals.closed), more: (s) => `${many(s.totals.stuck, "record")} stuck` },
  { title: "Dead letters", unit: (s) => unitOf(s.totals.dead_letters, "record"), value: (s) => count(s.totals.dead_letters), more: (s) => (s.dlq.waiting ? `${count(s.dlq.waiting)} in flight` : "none in flight") },
];

function figure({ title, unit, value, more, share }) {
  const shown = h("b", { class: "figure" });
  const unitShown = h("span", { class: "unit" });
  const below = h("span", { class: "more" });
  const bar = share ? h("span", { class: "meter" }, h("i")) : null;
  return {
    node: h("div", { class: "tile" }, h("h3", {}, title), h("p", {}, shown, " ", unitShown), bar, below),
    update(snapshot, past) {
      say(shown, value(snapshot, past));
      say(unitShown, typeof unit === "function" ? unit(snapshot) : unit);
      say(below, more(snapshot, past));
      bar?.firstChild.style.setProperty("width", percent(Math.min(1, share(snapshot))).replace(" ", ""));
    },
  };
}

/** Axis labels for records: whole numbers only. */
const whole = (each) => (each % 1 ? "" : count(each));

const CHARTS = [
  { title: "Records", unit: "per second", format: rate, ticks: (each) => (each % 1 ? rate(each) : count(each)), lines: [
    { label: "settled", color: "accent", read: (past) => past.rates((each) => each.settled) },
    { label: "received", color: "second", dash: true, read: (past) => past.rates((each) => each.fetched) },
  ] },
  { title: "Behind", unit: "records", format: count, ticks: whole, lines: [
    { label: "backlog", color: "accent", read: (past) => past.samples.map((each) => each.backlog) },
    { label: "lag", color: "second", dash: true, read: (past) => past.samples.map((each) => each.lag) },
  ] },
  { title: "Handler", unit: "time of an attempt", format: seconds, lines: [
    { label: "median", color: "accent", read: (past) => past.handlers(0.5) },
    { label: "p99", color: "second", dash: true, read: (past) => past.handlers(0.99) },
  ] },
  { title: "Held", unit: "records", format: count, ticks: whole, lines: [
    { label: "received and not settled", color: "accent", read: (past) => past.samples.map((each) => each.held) },
  ] },
];

const STUCK_MOST = 8;

const STUCK = [
  { title: "Record", text: place },
  { title: "State", brief: true, text: (each) => each.state },
  { title: "Key", text: (each) => each.named },
  { title: "Records behind", number: true, text: (each) => count(each.waiting) },
  { title: "For", number: true, text: (each) => seconds(each.seconds) },
];

export function screen(root) {
  const well = h("div", { class: "well" });
  const wellBadge = badge();
  const wellText = h("p", { class: "sentence" });
  well.append(h("div", { class: "head" }, wellBadge.node, wellText));
  const first = finding();
  const others = h("details", { class: "others" });
  const summary = h("summary");
  const list = h("div");
  others.append(summary, list);
  const stuck = table({ caption: "Records without progress", columns: STUCK, keyOf: (each) => `${each.subscription}/${place(each)}`, empty: "" });
  const all = h("a", { href: "#/stuck" });
  const held = panel("Slow and stuck", stuck.node);
  held.beside.append(all);
  let shown = false;
  const fill = keyed(list, (each) => `${each.code}/${each.topic}/${each.partition}/${each.offset}/${each.worker}/${each.slot}`, () => {
    const made = finding();
    return { node: made.node, update: (each) => made.update(each, shown) };
  });
  const figures = FIGURES.map(figure);
  const charts = CHARTS.map(chart);
  const acts = h("div", { class: "buttons" }, button("pause", () => ({})), button("resume", () => ({})), button("quiesce", () => ({})));
  root.append(
    h("section", { class: "panel diagnosed", id: "findings", "aria-label": "Diagnosis" }, well, first.node, others),
    held.node,
    h("section", { class: "tiles", "aria-label": "Numbers" }, ...figures.map((each) => each.node)),
    h("section", { class: "charts", "aria-label": "Charts of the last five minutes, since this page was opened" }, ...charts.map((each) => each.node)),
    h("section", { class: "panel" }, h("h2", {}, "This instance"), acts, note("pause", "resume", "quiesce")),
  );
  return {
    update(snapshot, past) {
      const { diagnosis, status } = snapshot;
      const [top, ...rest] = diagnosis.findings;
      shown = snapshot.keys_shown;
      well.hidden = Boolean(top);
      wellBadge.update(status.phase === "running" ? "ok" : "info", status.phase === "running" ? "healthy" : status.phase);
      say(wellText, status.phase === "running" ? `No findings. Running for ${seconds(snapshot.taken_at - status.started_at)}.` : "No findings so far.");
      first.node.hidden = !top;
      if (top) first.update(top, shown);
      others.hidden = rest.length === 0;
      say(summary, `${many(rest.length, "more finding")}`);
      fill(rest);
      held.node.hidden = snapshot.stuck.length === 0;
      // What has gone wrong last first: a key that was blocked just now is among them.
      const newest = [...snapshot.stuck].sort((a, b) => a.seconds - b.seconds).slice(0, STUCK_MOST);
      stuck.update(newest.map((each) => ({ ...each, named: each.key === null ? `slot ${slot(each.slot)}` : key(each.key, each.slot, shown) })));
      say(all, snapshot.stuck.length > STUCK_MOST ? `Show all ${count(snapshot.stuck.length)} with stacks` : "Show with stacks");
      for (const each of figures) each.update(snapshot, past);
      for (const each of charts) each.update(past);
    },
  };
}
