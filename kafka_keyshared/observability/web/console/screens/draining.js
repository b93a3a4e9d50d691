// Draining: slots with a new owner that wait for running records of the old one.

import { h, panel, say, table } from "../dom.js";
import { count, many, place, seconds, slot } from "../format.js";

const COLUMNS = [
  { title: "Slot", brief: true, text: (each) => slot(each.slot) },
  { title: "From", brief: true, text: (each) => each.worker },
  { title: "To", brief: true, text: (each) => each.owner ?? "none" },
  { title: "For", number: true, text: (each) => seconds(each.seconds) },
  { title: "Open leases", number: true, text: (each) => count(each.pending), hint: "Of the old owner" },
  { title: "Records waiting", number: true, text: (each) => count(each.blocked), hint: "For the new owner" },
  { title: "Waits for", node: () => {
    const text = h("span");
    return { node: text, update: (each) => say(text, each.first ? `${place(each.first)}, ${each.first.running ? "running" : "in the mailbox"}` : "–") };
  } },
];

export function screen(root) {
  const rows = table({
    caption: "Slots that drain",
    columns: COLUMNS,
    keyOf: (each) => `${each.subscription}/${each.worker}/${each.slot}/${each.owner}`,
    empty: (cleared) => `No slot drains. ${count(cleared)} have drained since the start. A slot drains if it moves while one of its records runs.`,
  });
  const shown = panel("Slots that drain", h("p", { class: "note" }, "The new owner gets records of a slot when the last lease of the old owner has ended. So two records of a key never run at the same time."), rows.node);
  root.append(shown.node);
  return {
    update(snapshot) {
      const found = snapshot.status.subscriptions.flatMap((sub) =>
        sub.workers.flatMap((worker) =>
          worker.draining.map((each) => ({
            ...each,
            subscription: sub.name,
            worker: worker.name,
            first: (sub.pending ?? []).find((one) => one.worker === worker.name && one.slot === each.slot),
          })),
        ),
      );
      const cleared = snapshot.status.subscriptions.reduce((sum, sub) => sum + sub.drained_slots, 0);
      found.sort((a, b) => b.seconds - a.seconds);
      rows.update(found, cleared);
      say(shown.beside, found.length ? `${many(snapshot.totals.draining, "slot")} now, ${count(cleared)} drained so far` : "");
    },
  };
}
