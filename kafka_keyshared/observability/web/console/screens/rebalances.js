// Rebalances: the moved partitions and the cost.

import { badge, h, panel, say, table } from "../dom.js";
import { count, moment, seconds } from "../format.js";

const KINDS = { assigned: "ok", revoked: "info", lost: "fail" };

/** Partitions in short: orders 0–7, 9 */
export function few(pairs) {
  const topics = new Map();
  for (const [topic, number] of pairs) topics.set(topic, [...(topics.get(topic) ?? []), number]);
  return [...topics].map(([topic, numbers]) => {
    numbers.sort((a, b) => a - b);
    const runs = [];
    for (const each of numbers) {
      if (runs.length && runs.at(-1)[1] === each - 1) runs.at(-1)[1] = each;
      else runs.push([each, each]);
    }
    return `${topic} ${runs.map(([first, last]) => (first === last ? first : `${first}–${last}`)).join(", ")}`;
  }).join("; ");
}

export function screen(root) {
  let longest = 0;
  const rows = table({
    caption: "The last rebalances",
    columns: [
      { title: "At", brief: true, text: (each) => moment(each.at) },
      { title: "What", node: () => {
        const made = badge("brief");
        return { node: made.node, update: (each) => made.update(KINDS[each.event] ?? "info", each.event) };
      } },
      { title: "Partitions", text: (each) => (each.partitions.length ? few(each.partitions) : "none") },
      { title: "Took", number: true, node: () => {
        const text = h("span");
        const bar = h("span", { class: "meter", "aria-hidden": "true" }, h("i"));
        return { node: h("span", { class: "took" }, text, bar), update(each) {
          say(text, seconds(each.seconds));
          bar.firstChild.style.setProperty("width", `${longest ? (each.seconds / longest) * 100 : 0}%`);
        } };
      } },
      { title: "Records released", number: true, text: (each) => count(each.let_go), hint: "Received here, but settled by another member" },
      { title: "Left running", number: true, text: (each) => count(each.left), hint: "Running at the deadline; they may run twice" },
    ],
    keyOf: (each) => `${each.at}/${each.event}/${few(each.partitions)}`,
    empty: "No partition has been assigned to this instance or revoked from it.",
  });
  const shown = panel("The last 50", h("p", { class: "note" }, "A released record runs at the new owner of its partition. A record that was left running at the deadline may run twice."), rows.node);
  const going = h("p", { class: "going", hidden: true });
  root.append(going, shown.node);
  return {
    update({ status }) {
      const { rebalanced, rebalances } = status;
      longest = Math.max(...rebalanced.map((each) => each.seconds), 0);
      rows.update([...rebalanced].sort((a, b) => b.at - a.at));
      say(shown.beside, Object.entries(rebalances).map(([event, number]) => `${count(number)} ${event}`).join(", "));
      going.hidden = status.rebalance_seconds === null;
      say(going, `▲ A rebalance has been in progress for ${seconds(status.rebalance_seconds)}.`);
    },
  };
}
