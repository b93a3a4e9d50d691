// Resizes with a preview of the moved slots, and the assignment of ranges.

import { h, panel, say, table } from "../dom.js";
import { count, many, percent, slot } from "../format.js";
import { auth } from "../stream.js";
import { button, note } from "../verbs.js";

const LAST = 65535;

/** The number of workers. `sub()` is the subscription; `changed()` is called after a change of the preview. */
export function sizing(sub, changed) {
  const field = h("input", { type: "number", min: "1", max: "1000", id: "scale", value: "" });
  const told = h("p", { class: "answer", "aria-live": "polite" });
  const shares = table({
    caption: "Share of all slots, before and after",
    columns: [
      { title: "Worker", text: (each) => each.name },
      { title: "Before", number: true, text: (each) => percent(each.now) },
      { title: "After", number: true, text: (each) => percent(each.then) },
    ],
    keyOf: (each) => each.name,
    empty: "",
  });
  let then = null;
  const show = (found, text = "") => {
    then = found;
    say(told, text);
    const own = new Map(sub()?.workers.map((each) => [each.name, each.share]));
    const names = then ? [...new Set([...own.keys(), ...then.workers])] : [];
    shares.update(names.map((name) => ({ name, now: own.get(name) ?? null, then: then.shares[then.workers.indexOf(name)] ?? null })));
    shares.node.hidden = then === null;
    changed();
  };
  const ask = async () => {
    const query = new URLSearchParams({ workers: field.value, subscription: sub().name });
    try {
      const answer = await fetch(`/api/v1/what-if?${query}`, { headers: auth.headers });
      if (!answer.ok) return show(null, (await answer.text()).trim());
      const found = await answer.json();
      const leases = found.leases ? ` ${many(found.leases, "open lease")} would have to end first.` : "";
      const moved = `${count(found.moved)} of 65,536 slots (${percent(found.moved / (LAST + 1))})`;
      return show(found, found.moved ? `${moved} would move.${leases} The outer ring shows them.` : "Nothing would move.");
    } catch {
      return show(null, "No answer from the instance.");
    }
  };
  field.addEventListener("input", () => show(null));
  shares.node.hidden = true;
  return {
    node: h("div", {},
      h("div", { class: "buttons" }, h("label", { for: "scale" }, "Workers"), field,
        button("scale", () => ({ workers: Number(field.value), subscription: sub().name }), { after: () => show(null) }),
        h("button", { type: "button", onclick: ask }, "Preview the moves")),
      note("scale"), told, shares.node),
    then: () => then,
    update(found) {
      // Who is leaving has no slots any more, and does not count for the size.
      if (!field.value && found.workers.length) field.value = String(found.workers.filter((each) => each.share > 0 || (each.state !== "gone" && !each.draining.length)).length);
    },
  };
}

/** Parse a slot: 0x3f2a or 16170. */
function typed(field, name) {
  const text = field.value.trim();
  const number = /^(0x[0-9a-f]{1,4}|\d{1,5})$/i.test(text) ? Number(text) : NaN;
  if (!(number <= LAST)) throw new Error(`${name}: enter a slot, 0 to 65535 or 0x0000 to 0xffff`);
  return number;
}

const UNASSIGNED = "";

/** Assignment by hand: the ranges of each worker, a range, one slot. */
export function handing(sub) {
  const input = (id, placeholder) => h("input", { type: "text", class: "slot", id, autocomplete: "off", spellcheck: "false", placeholder });
  const [first, last, one] = [input("first", "0x0000"), input("last", "0x00ff"), input("one", "0x3f2a")];
  const worker = h("select", { id: "to-worker" });
  const over = h("input", { type: "checkbox", id: "take-over" });
  const ranges = table({
    caption: "Ranges",
    columns: [{ title: "Worker", text: (each) => each.name }, { title: "Slots", text: (each) => each.slots }],
    keyOf: (each) => each.name,
    empty: "No worker has a range: no slot has an owner.",
  });
  const to = () => ({ worker: worker.value === UNASSIGNED ? null : worker.value, subscription: sub().name });
  const assign = button("assign", () => {
    const body = { first: typed(first, "First"), last: typed(last, "Last"), take_over: over.checked, ...to() };
    if (body.first > body.last) throw new Error(`${slot(body.first)} is after ${slot(body.last)}: enter the first slot first`);
    return body;
  });
  const move = button("move", () => ({ slot: typed(one, "Slot"), ...to() }));
  const elsewise = h("p", { class: "note" });
  const fields = h("div", { class: "fields" },
    h("div", { class: "bar" }, h("label", { for: "to-worker" }, "To"), worker),
    h("div", { class: "bar" }, h("label", { for: "first" }, "Slots"), first, h("label", { for: "last" }, "to"), last,
      h("span", {}, over, " ", h("label", { for: "take-over" }, "also what others have")), assign),
    h("div", { class: "bar" }, h("label", { for: "one" }, "Slot"), one, move),
    note("assign", "move"));
  const shown = panel("Assign slots", ranges.node, elsewise, fields);
  let names = "";
  return {
    node: shown.node,
    update(found) {
      const sticky = found.routing === "sticky";
      fields.hidden = ranges.node.hidden = !sticky;
      elsewise.hidden = sticky;
      say(elsewise, found.slots?.length ? `With routing ${found.routing}, the present workers determine the slots. Slots can be assigned with routing sticky.` : "There are no slots to assign. Slots can be assigned with routing sticky.");
      if (!sticky) return;
      const given = Object.entries(found.ranges).map(([name, slots]) => ({ name, slots }));
      ranges.update(found.unassigned ? [...given, { name: "no worker", slots: found.unassigned }] : given);
      const all = [...new Set([...found.workers.map((each) => each.name), ...Object.keys(found.ranges)])];
      if (all.join() === names) return;
      names = all.join();
      const kept = worker.value;
      worker.replaceChildren(...all.map((each) => h("option", { value: each }, each)), h("option", { value: UNASSIGNED }, "no worker"));
      if (all.includes(kept)) worker.value = kept;
    },
  };
}
