// Group: the instances of the group, by their own reports. The screen polls while it is open.

import { badge, h, keyed, mark, panel, say, table } from "../dom.js";
import { count, many, rate, seconds } from "../format.js";
import { auth } from "../stream.js";
import { few } from "./rebalances.js";

const LAYOUT = 1; // the version of the group view's layout that this page reads
const EVERY = 2000; // milliseconds between two questions

/** The style and the name of a state. */
const STATES = {
  running: ["ok", "running"],
  rebalancing: ["warn", "rebalancing"],
  starting: ["info", "starting"],
  stopping: ["idle", "stopping"],
  silent: ["fail", "silent"],
};

/** The held partitions, as pairs of topic and number. */
const pairs = (held) => Object.entries(held).flatMap(([topic, numbers]) => numbers.map((each) => [topic, each]));

const COLUMNS = [
  { title: "Instance", node: () => {
    const name = h("b");
    const link = h("a", { rel: "noreferrer noopener", target: "_blank" }, "console ↗");
    const here = h("span", { class: "muted" });
    return { node: h("span", {}, name, " ", here, " ", link), update(each) {
      say(name, each.label);
      say(here, each.here ? "(this one)" : "");
      // The server lets nothing else through either; a link that is code would be run.
      const fits = /^https?:\/\//.test(each.report.url) && !each.here;
      link.hidden = !fits;
      mark(link, "href", fits ? each.report.url : null);
      mark(link, "aria-label", fits ? `Console of ${each.label}, in a new tab` : null);
    } };
  } },
  { title: "State", node: () => {
    const made = badge("brief");
    return { node: made.node, update(each) {
      const [kind, word] = STATES[each.state] ?? ["info", each.state];
      const told = { silent: each.heard_seconds, rebalancing: each.report.rebalance_seconds }[each.state];
      made.update(kind, told === undefined || told === null ? word : `${word} for ${seconds(told)}`);
    } };
  } },
  { title: "Partitions", node: () => {
    const number = h("b", { class: "number" });
    const which = h("span", { class: "muted" });
    return { node: h("span", {}, number, " ", which), update(each) {
      say(number, count(each.held_partitions));
      say(which, each.held_partitions ? few(pairs(each.report.partitions)) : "");
    } };
  } },
  { title: "Settled/s", number: true, node: () => {
    const made = badge("brief");
    return { node: made.node, update: (each) => made.update(each.slow ? "warn" : "", each.slow ? `${rate(each.per_second)}, slow` : rate(each.per_second)) };
  } },
  { title: "Backlog", number: true, text: (each) => count(each.report.backlog), hint: "Records left to process" },
  { title: "Oldest", number: true, text: (each) => seconds(each.report.oldest_seconds), hint: "Age of the oldest unsettled record" },
  { title: "Busy", number: true, text: (each) => `${count(each.report.busy)} of ${count(each.report.workers)}`, hint: "Workers that run a record" },
  { title: "Heard", number: true, text: (each) => `${seconds(Math.round(each.heard_seconds))} ago` },
  { title: "Diagnosis", node: () => {
    const made = badge();
    return { node: made.node, update(each) {
      if (each.state === "silent") made.update("idle", `when last heard: ${each.report.text}`);
      else made.update(each.report.level ?? "ok", each.slow ? `${each.report.text}; ${each.slow}` : each.report.text);
    } };
  } },
];

const FACTS = [
  ["Instances", (view) => count(view.instances.filter((each) => each.state !== "silent").length)],
  ["Partitions held", (view) => (view.unheld === null ? count(view.partitions) : `${count(view.partitions)} of ${count(view.partitions + view.unheld)}`)],
  ["Settled", (view) => `${rate(view.per_second)}/s`],
  ["Backlog", (view) => (view.backlog === null ? "–" : many(view.backlog, "record"))],
];

/** Query the group; throw an error with the text to show. */
async function ask(signal) {
  const answer = await fetch("/api/v1/group", { headers: auth.headers, signal });
  if (answer.status === 404) throw new Error("this instance has no group view: it is of an older release");
  if (!answer.ok) throw new Error((await answer.text()).trim() || `HTTP ${answer.status}`);
  const view = await answer.json();
  if (view.version !== LAYOUT) throw new Error(`the instance sends layout ${view.version} of the group, this page reads ${LAYOUT}: load the page again`);
  return view;
}

export function screen(root) {
  const gone = new AbortController();
  let timer = 0;
  let told = false;
  const level = badge();
  const sentence = h("p", { class: "sentence" }, "Waiting for the group view of the instance…");
  const facts = h("dl", { class: "facts" });
  const values = FACTS.map(([name, value]) => {
    const shown = h("dd");
    facts.append(h("div", {}, h("dt", {}, name), shown));
    return (view) => say(shown, value(view));
  });
  const others = h("ul", { class: "followed", hidden: true });
  const list = keyed(others, (each) => `${each.code}/${each.labels.join()}`, () => {
    const kind = badge();
    return { node: h("li", {}, kind.node), update: (each) => kind.update(each.level, each.sentence) };
  });
  const wrong = h("p", { class: "going", role: "status", hidden: true });
  const rows = table({ caption: "Instances of the group", columns: COLUMNS, keyOf: (each) => each.report.instance, empty: "No instance has been heard yet. An instance sends reports once it runs." });
  const shown = panel("Instances", rows.node);
  const first = h("section", { class: "panel well" }, h("div", { class: "head" }, level.node, sentence), facts, others);
  for (const each of [facts, shown.node]) each.hidden = true;
  root.append(wrong, first, shown.node);

  function draw(view) {
    const there = view.source !== "none";
    const kind = !there ? "info" : !view.healthy ? "fail" : view.remarks.length || view.troubles.length ? "warn" : "ok";
    level.update(kind, { info: "not set", fail: "to be mended", warn: "to be watched", ok: "well" }[kind]);
    say(sentence, there ? view.text : `${view.text}. Then one console shows every instance of ${view.group}.`);
    list(view.remarks.slice(1));
    others.hidden = view.remarks.length < 2;
    for (const each of [facts, shown.node]) each.hidden = !there;
    for (const each of values) each(view);
    rows.update(view.instances);
    say(shown.beside, there ? `${view.group}, by ${view.source === "topic" ? "the topic" : "the addresses"} ${view.place}` : "");
    say(wrong, view.troubles.length ? `▲ ${view.troubles.join(". ")}` : "");
    wrong.hidden = view.troubles.length === 0;
    told = true;
  }

  async function look() {
    try {
      draw(await ask(gone.signal));
    } catch (error) {
      if (gone.signal.aborted) return;
      wrong.hidden = false;
      const since = told ? " What you see is of before." : "";
      say(wrong, `▲ The group cannot be shown: ${error.message || "no answer"}. The page tries again.${since}`);
      if (!told) say(sentence, "The state of the group is unknown.");
    }
    if (!gone.signal.aborted) timer = setTimeout(look, EVERY);
  }
  look();
  return {
    update() {}, // it has its own source
    leave() {
      gone.abort();
      clearTimeout(timer);
    },
  };
}
