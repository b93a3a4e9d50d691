// Workers: their running records and their leases.

import { workerColor } from "../colors.js";
import { badge, folded, h, panel, say, table } from "../dom.js";
import { UNKNOWN, count, key, many, percent, place, rate, seconds, slot } from "../format.js";

const STATES = { idle: "idle", running: "busy", stuck: "fail", gone: "info" };

function columns(shown, busy) {
  return [
    { title: "Worker", node: () => {
      const swatch = h("i", { class: "swatch", "aria-hidden": "true" });
      const name = h("b");
      return { node: h("span", { class: "worker-name" }, swatch, name), update(each) {
        swatch.style.setProperty("--swatch", workerColor(each.at));
        say(name, each.name);
      } };
    } },
    { title: "State", node: () => {
      const made = badge("brief");
      return { node: made.node, update: (each) => made.update(STATES[each.state] ?? "info", each.state) };
    } },
    { title: "Record", none: (each) => !each.running, node: () => {
      const at = h("span");
      const of = h("span", { class: "muted" });
      const stack = folded("Stack of the handler");
      return { node: h("div", { class: "record" }, at, of, stack.node), update({ running }) {
        say(at, running ? place(running) : "–");
        say(of, running ? `key ${key(running.key, running.slot, shown())}, slot ${slot(running.slot)}` : "");
        stack.update(running?.stack);
      } };
    } },
    { title: "For", number: true, text: (each) => seconds(each.running?.seconds), hint: "Running time of the record" },
    { title: "Running", number: true, text: (each) => count(each.runs), hint: "Running records" },
    { title: "Leased", number: true, text: (each) => count(each.leased), hint: "Leased and not settled" },
    { title: "Waiting", number: true, text: (each) => count(each.queued), hint: "Waiting records, not leased yet" },
    { title: "Shards", number: true, text: (each) => count(each.shards), spare: (each) => !each.shards, hint: "Leased to it" },
    { title: "Busy", number: true, text: (each) => percent(busy(each)), hint: "Of the last 10 s" },
    { title: "Share", number: true, text: (each) => percent(each.share), hint: "Of all slots" },
    { title: "Restarts", number: true, text: (each) => count(each.restarts), spare: (each) => each.restarts === 0 },
    { title: "Notes", text: besides, spare: (each) => besides(each) === UNKNOWN },
  ];
}

function besides(each) {
  const told = [];
  if (each.stuck) told.push(`${count(each.stuck)} stuck`);
  if (each.draining.length) told.push(`${many(each.draining.length, "slot")} draining`);
  if (each.detached) told.push(`detached${each.behind ? `: ${many(each.behind, "record")} of its key behind it` : ""}, other keys continue`);
  if (each.dropped) told.push(`${count(each.dropped)} dropped while full`);
  return told.join("; ") || UNKNOWN;
}

const LEASES = [
  { title: "Worker", brief: true, text: (each) => each.worker },
  { title: "Record", text: place },
  { title: "Slot", brief: true, text: (each) => slot(each.slot) },
  { title: "State", brief: true, text: (each) => (each.running ? "running" : "in the mailbox") },
  { title: "Drains", text: (each) => (each.draining ? "the slot waits for it" : UNKNOWN), spare: (each) => !each.draining },
];

const HOT = (shown) => [
  { title: "Key", text: (each) => key(each.key, each.slot, shown()) },
  { title: "Slot", brief: true, text: (each) => slot(each.slot) },
  { title: "Partition", text: (each) => each.partitions.map(([topic, number]) => `${topic}-${number}`).join(", ") || UNKNOWN },
  { title: "Waiting", number: true, text: (each) => count(each.waiting), hint: "Waiting records of the key" },
  { title: "Share", number: true, text: (each) => percent(each.share), hint: "Share of the records of the last 30 s" },
  { title: "Arrive", number: true, text: (each) => `${rate(each.rate)}/s`, hint: "Records per second" },
  { title: "Run", number: true, text: (each) => (each.capacity === null ? UNKNOWN : `${rate(each.capacity)}/s`), hint: "Records of the key per second that one worker runs" },
  { title: "For", number: true, text: (each) => seconds(each.seconds) },
];

const MOST = 25; // leases that are listed: thousands of them are no list that anybody reads

export function screen(root) {
  let now = null;
  let past = null;
  const parts = new Map();
  const part = (name) => {
    const busy = (each) => {
      const spent = past.rate((sample) => sample.busy[`${name}/${each.name}`]);
      return spent === null ? null : Math.min(1, spent / Math.max(1, each.runs));
    };
    const workers = table({ caption: "Workers", columns: columns(() => now.keys_shown, busy), keyOf: (each) => each.name, empty: "There is no worker, so no record runs. In the pool pull, your own code adds workers with join()." });
    const leases = table({ caption: "Leases", columns: LEASES, keyOf: (each) => `${each.topic}/${each.partition}/${each.offset}`, empty: "No worker has a record." });
    const hot = table({ caption: "Hot keys", columns: HOT(() => now.keys_shown), keyOf: (each) => each.slot, empty: "" });
    const choice = h("select", { id: `of-${name}` });
    choice.append(h("option", { value: "" }, "all workers"));
    choice.addEventListener("change", () => update());
    const bar = h("p", { class: "bar" }, h("label", { for: `of-${name}` }, "Of"), choice);
    const first = panel(name === "default" ? "Running records" : `Running records of ${name}`, workers.node);
    const second = panel("Leases", bar, leases.node);
    const third = panel("Hot keys", hot.node);
    root.append(first.node, third.node, second.node);
    const update = () => {
      const sub = now.status.subscriptions.find((each) => each.name === name);
      const shared = sub.shared;
      say(first.beside, `pool ${sub.pool}${shared ? ` · of ${many(shared.shards, "shard")} ${count(shared.ready)} ready, ${count(shared.held)} held` : ""}`);
      const behind = new Map(shared?.detached.map((each) => [each.worker, each.waiting]));
      workers.update(sub.workers.map((each, at) => ({ ...each, at, behind: behind.get(each.name) })));
      third.node.hidden = !shared?.hot_keys.length;
      hot.update(shared?.hot_keys ?? []);
      say(third.beside, shared ? count(shared.hot) : "");
      const names = sub.workers.map((each) => each.name);
      if (choice.options.length !== names.length + 1) {
        const kept = choice.value;
        choice.replaceChildren(h("option", { value: "" }, "all workers"), ...names.map((each) => h("option", { value: each }, each)));
        choice.value = names.includes(kept) ? kept : "";
      }
      bar.hidden = names.length === 0;
      const pending = (sub.pending ?? []).filter((each) => !choice.value || each.worker === choice.value);
      leases.update(pending.slice(0, MOST));
      say(second.beside, pending.length > MOST ? `the first ${MOST} of ${count(pending.length)}` : many(pending.length, "lease"));
    };
    return { update, remove: () => [first.node, second.node, third.node].forEach((each) => each.remove()) };
  };
  return {
    update(snapshot, history) {
      [now, past] = [snapshot, history];
      const names = snapshot.status.subscriptions.map((each) => each.name);
      for (const name of names) if (!parts.has(name)) parts.set(name, part(name));
      for (const each of parts.values()) each.update();
    },
  };
}
