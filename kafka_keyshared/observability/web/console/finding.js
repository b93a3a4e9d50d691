// Following: the current place of a key, a slot or a record, and the reason.

import { close, show } from "./dialogs.js";
import { h, keyed, say } from "./dom.js";
import { count, key, many, percent, place, rate, seconds, slot as slotText } from "./format.js";
import { slotOf } from "./hashing.js";

/** The parsed question: {slot} or {topic?, partition, offset}, or {wrong}. */
export function parse(text, snapshot) {
  const asked = text.trim();
  const record = /^(\S+)-(\d+)@(\d+)$/.exec(asked) ?? /^(?:(\S+?)[[:/\s]|p?)(\d+)\]?\s*(?:@|\/|:|\s)\s*([\d,]+)$/.exec(asked);
  if (record) {
    const [, topic, number, offset] = record;
    return { topic: topic === "p" ? "" : topic, partition: Number(number), offset: Number(offset.replaceAll(",", "")) };
  }
  const hex = /^0x([0-9a-f]{1,4})$/i.exec(asked);
  if (hex) return { slot: Number.parseInt(hex[1], 16) };
  const decimal = /^slot\s+(\d{1,5})$/i.exec(asked);
  if (decimal && Number(decimal[1]) < 65536) return { slot: Number(decimal[1]) };
  const name = snapshot.settings.find((each) => each.name === "slot_function")?.value ?? "mmh3";
  const slot = slotOf(asked.replace(/^key\s+/, ""), name);
  if (slot === null) return { wrong: `This page cannot compute slots with ${name}: enter the slot, 0x….` };
  return { slot, key: asked.replace(/^key\s+/, "") };
}

/** The owner of a slot in a subscription, null if it has none. */
export function ownerOf(sub, slot) {
  const run = (sub.slots ?? []).find(([first, last]) => first <= slot && slot <= last);
  return run && run[2] >= 0 ? sub.workers[run[2]].name : null;
}

/** The reason why no slot of a subscription has an owner. */
export function unowned({ routing }) {
  if (routing === "exclusive") return "Routing is exclusive: one worker has every record, and slots are not used.";
  if (routing === "unordered") return "Routing is unordered: any worker may have any record, and slots are not used.";
  return "No slot has an owner, because there is no worker.";
}

function* ofSlot(snapshot, slot) {
  for (const sub of snapshot.status.subscriptions) {
    const owner = ownerOf(sub, slot);
    const named = snapshot.status.subscriptions.length > 1 ? ` of ${sub.name}` : "";
    if (!sub.slots?.length) yield `${unowned(sub)}${named && ` (${sub.name})`}`;
    else yield owner ? `Slot ${slotText(slot)}${named} is ${owner}'s${sub.shared ? " by the ring; workers share waiting records, so any of them may run it" : ""}.` : `Slot ${slotText(slot)}${named} has no owner.`;
    for (const worker of sub.workers) {
      for (const each of worker.draining) {
        if (each.slot === slot) yield `It drains since ${seconds(each.seconds)}: ${worker.name} has ${many(each.pending, "open lease")}, and ${many(each.blocked, "record")} wait.`;
      }
    }
    for (const each of sub.shared?.detached ?? []) {
      if (each.slot === slot) yield `${place(each)} runs detached at ${each.worker} for ${seconds(each.seconds)}, with ${many(each.waiting, "record")} of its key behind it.`;
    }
    for (const each of sub.shared?.hot_keys ?? []) {
      if (each.slot === slot) yield `It has a hot key: ${many(each.waiting, "record")} waiting, ${percent(each.share)} of what arrives, ${rate(each.rate)} a second${each.capacity === null ? "" : `; one worker runs ${rate(each.capacity)} a second`}.`;
    }
    const leases = (sub.pending ?? []).filter((each) => each.slot === slot);
    for (const each of leases.slice(0, 8)) yield `${place(each)} ${each.running ? "runs" : "waits in the mailbox"} at ${each.worker}${each.draining ? ", and the slot waits for it" : ""}.`;
    if (leases.length > 8) yield `${count(leases.length - 8)} more are leased.`;
    for (const each of sub.closed) {
      if (each.slot !== slot) continue;
      yield `A key of it (${key(each.key, each.slot, snapshot.keys_shown)}) is ${each.state}: ${place(each)}, ${many(each.attempts, "attempt")}, ${many(each.waiting, "record")} behind it. ${each.error}`;
    }
    if (sub.hottest_slot === slot) yield `It has the key with the most unsettled records: ${count(sub.hottest)}.`;
  }
}

function* ofRecord(snapshot, asked) {
  const found = snapshot.status.partitions.filter((each) => each.partition === asked.partition && (!asked.topic || each.topic === asked.topic));
  if (found.length === 0) yield "This instance does not have that partition; another member of the group may have it.";
  for (const each of found) {
    const at = place({ ...each, offset: asked.offset });
    const stuck = snapshot.stuck.find((one) => one.topic === each.topic && one.partition === each.partition && one.offset === asked.offset);
    const lease = snapshot.status.subscriptions
      .flatMap((sub) => sub.pending ?? [])
      .find((one) => one.topic === each.topic && one.partition === each.partition && one.offset === asked.offset);
    const island = (each.settled ?? []).find(([first, end]) => first <= asked.offset && asked.offset < end);
    if (each.committed !== null && asked.offset < each.committed) yield `${at} is committed and never runs again.`;
    else if (each.safe !== null && asked.offset < each.safe) yield `${at} is settled and part of the next commit.`;
    else if (island) yield `${at} is settled beyond the safe position ${count(each.safe)}: the commit metadata keeps it until the records before it are settled.`;
    else if (stuck) yield `${at} is ${stuck.state} for ${seconds(stuck.seconds)}${stuck.worker ? ` at ${stuck.worker}` : ""}, with ${many(stuck.waiting, "record")} behind it. ${stuck.error}`;
    else if (lease) yield `${at} ${lease.running ? "runs" : "waits in the mailbox"} at ${lease.worker}.`;
    else if (each.fetched !== null && asked.offset < each.fetched) yield `${at} was received, but is not settled: it waits for its key or its worker${(each.settled ?? []).length >= 100 ? ", or it is settled beyond the first 100 runs, which are all that is told" : ""}.`;
    else if (each.log_end !== null && asked.offset < each.log_end) yield `${at} is in the log but not received yet.${each.held_back.length ? ` Held back: ${each.held_back.join(", ")}.` : ""}`;
    else yield `${at} is beyond the end of the log.`;
  }
}

/** The answer, as sentences. */
export function followed(text, snapshot) {
  const asked = parse(text, snapshot);
  if (asked.wrong) return [asked.wrong];
  if (asked.slot === undefined) return [...ofRecord(snapshot, asked)];
  const first = asked.key === undefined ? [] : [`The key “${asked.key}” has the slot ${slotText(asked.slot)} (${asked.slot}).`];
  return [...first, ...ofSlot(snapshot, asked.slot)];
}

/** Open the dialog that answers while the user types. */
export function findAndFollow(now) {
  // Not a search field: there Escape would clear it first, and not close the dialog.
  const field = h("input", { type: "text", id: "follow", autofocus: true, autocomplete: "off", spellcheck: "false", placeholder: "customer-7   0x3f2a   orders-3@1200" });
  const list = h("ol", { class: "followed", "aria-live": "polite" });
  const update = keyed(list, (row) => row.at, () => {
    const node = h("li");
    return { node, update: (row) => say(node, row.text) };
  });
  const refresh = () => {
    const snapshot = now();
    const lines = snapshot && field.value.trim() ? followed(field.value, snapshot) : [];
    update(lines.map((text, at) => ({ at, text })));
  };
  field.addEventListener("input", refresh);
  const timer = setInterval(refresh, 500);
  show(
    "Follow a key, a slot or a record",
    h("label", { for: "follow" }, "A key; a slot, 0x3f2a; or a record, topic-partition@offset"),
    field,
    list,
    h("div", { class: "buttons" }, h("button", { type: "button", onclick: () => close() }, "Close")),
  ).then(() => clearInterval(timer));
}
