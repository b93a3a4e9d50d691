// Slow and stuck: records without progress, and the orders for them.

import { badge, folded, h, keyed, mark, say } from "../dom.js";
import { count, key, place, seconds, slot } from "../format.js";
import { button, note } from "../verbs.js";

const KINDS = { running: "warn", detached: "warn", stuck: "fail", blocked: "fail", archived: "fail", waiting: "warn" };
const DECIDED = new Set(["blocked", "archived", "diverted", "diverting"]);

function card(shown) {
  const state = badge();
  const at = h("h3");
  const facts = h("dl", { class: "facts" });
  const error = h("p", { class: "error" });
  const stack = folded("Stack");
  let now = null;
  const named = () => ({ at: `${now.topic}-${now.partition}@${now.offset}`, subscription: now.subscription });
  const acts = h("div", { class: "buttons" }, ...["unblock", "drop", "dead-letter"].map((verb) => button(verb, named)));
  const fill = keyed(facts, (row) => row[0], ([title]) => {
    const value = h("dd");
    return { node: h("div", {}, h("dt", {}, title), value), update: ([, text]) => say(value, text) };
  });
  const node = h("article", { class: "finding" }, h("div", { class: "head" }, state.node, at), facts, error, stack.node, acts);
  return {
    node,
    update(each) {
      now = each;
      const kind = KINDS[each.state] ?? "warn";
      mark(node, "data-kind", kind);
      state.update(kind, each.state);
      say(at, place(each));
      const rows = [["for", seconds(each.seconds)], ["records behind", count(each.waiting)], ["slot", slot(each.slot)]];
      if (each.worker) rows.push(["worker", each.worker]);
      if (each.attempts) rows.push(["attempts", count(each.attempts)]);
      if (each.due_seconds !== null) rows.push(["next in", seconds(Math.max(0, each.due_seconds))]);
      rows.push(["key", key(each.key, each.slot, shown())]);
      fill(rows);
      error.hidden = !(each.error || each.where);
      say(error, each.error || each.where);
      stack.update(each.stack);
      acts.hidden = !DECIDED.has(each.state);
    },
  };
}

export function screen(root) {
  let snapshot = null;
  const list = h("div", { class: "cards" });
  const none = h("p", { class: "empty" }, "All records make progress: none has been running for a second, and no key is closed.");
  const update = keyed(list, (each) => `${each.subscription}/${each.topic}/${each.partition}/${each.offset}`, () => card(() => snapshot.keys_shown));
  const greyed = h("div", {}, note("unblock", "drop", "dead-letter"));
  root.append(none, greyed, list);
  return {
    update(value) {
      snapshot = value;
      update(value.stuck);
      none.hidden = value.stuck.length > 0;
      greyed.hidden = !value.stuck.some((each) => DECIDED.has(each.state));
    },
  };
}
