// Slots that change hands: another number of workers, and what that would move; ranges by hand.

import { h, panel, say, table } from "../dom.js";
import { count, many, percent, slot } from "../format.js";
import { auth } from "../stream.js";
import { button, note } from "../verbs.js";

const LAST = 65535;

/** How many workers there are to be. `sub()` is the subscription; `changed()` is called when what is shown may differ. */
export function sizing(sub, changed) {
  const field = h("input", { type: "number", min: "1", max: "1000", id: "scale", value: "" });
  const told = h("p", { class: "answer", "aria-live": "polite" });
  const shares = table({
    caption: "The share of all slots, now and then",
    columns: [
      { title: "Worker", text: (each) => each.name },
      { title: "Now", number: true, text: (each) => percent(each.now) },
      { title: "Then", number: true, text: (each) => percent(each.then) },
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
      const leases = found.leases ? ` ${many(found.leases, "lease")} of now would be waited for.` : "";
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
        h("button", { type: "button", onclick: ask }, "What would move?")),
      note("scale"), told, shares.node),
    then: () => then,
    update(found) {
      // Who is leaving has no slots any more, and does not count for the size.
      if (!field.value && found.workers.length) field.value = String(found.workers.filter((each) => each.share > 0 || (each.state !== "gone" && !each.draining.length)).length);
    },
  };
}

/** A slot as it is typed: 0x3f2a or 16170. */
function typed(field, name) {
  const text = field.value.trim();
  const number = /^(0x[0-9a-f]{1,4}|\d{1,5})$/i.test(text) ? Number(text) : NaN;
  if (!(number <= LAST)) throw new Error(`${name}: give a slot, 0 to 65535 or 0x0000 to 0xffff`);
  return number;
}

const NOBODY = "";

/** Slots that are given by hand: what each worker has, a range, one slot. */
export function handing(sub) {
  const input = (id, placeholder) => h("input", { type: "text", class: "slot", id, autocomplete: "off", spellcheck: "false", placeholder });
  const [first, last, one] = [input("first", "0x0000"), input("last", "0x00ff"), input("one", "0x3f2a")];
  const worker = h("select", { id: "to-worker" });
  const over = h("input", { type: "checkbox", id: "take-over" });
  const ranges = table({
    caption: "Ranges",
    columns: [{ title: "Worker", text: (each) => each.name }, { title: "Slots", text: (each) => each.slots }],
    keyOf: (each) => each.name,
    empty: "No worker was given a range yet: every slot is nobody's.",
  });
  const to = () => ({ worker: worker.value === NOBODY ? null : worker.value, subscription: sub().name });
  const assign = button("assign", () => {
    const body = { first: typed(first, "First"), last: typed(last, "Last"), take_over: over.checked, ...to() };
    if (body.first > body.last) throw new Error(`${slot(body.first)} is behind ${slot(body.last)}: give the first one first`);
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
  const shown = panel("Slots by hand", ranges.node, elsewise, fields);
  let names = "";
  return {
    node: shown.node,
    update(found) {
      const sticky = found.routing === "sticky";
      fields.hidden = ranges.node.hidden = !sticky;
      elsewise.hidden = sticky;
      say(elsewise, found.slots?.length ? `With routing ${found.routing}, slots follow from who is there. They are given by hand with routing sticky.` : "There is no slot to give. They are given by hand with routing sticky.");
      if (!sticky) return;
      const given = Object.entries(found.ranges).map(([name, slots]) => ({ name, slots }));
      ranges.update(found.unassigned ? [...given, { name: "nobody", slots: found.unassigned }] : given);
      const all = [...new Set([...found.workers.map((each) => each.name), ...Object.keys(found.ranges)])];
      if (all.join() === names) return;
      names = all.join();
      const kept = worker.value;
      worker.replaceChildren(...all.map((each) => h("option", { value: each }, each)), h("option", { value: NOBODY }, "nobody"));
      if (all.includes(kept)) worker.value = kept;
    },
  };
}
