// Errors: failed attempts by kind, with the last one of each.

import { css } from "../colors.js";
import { folded, h, keyed, say } from "../dom.js";
import { count, key, many, moment, place, rate, seconds, slot } from "../format.js";

/** Attempts per second over the last minutes, as a line with its last number. */
function spark() {
  const canvas = h("canvas", { class: "spark", "aria-hidden": "true" });
  const text = h("span", { class: "muted" });
  return {
    node: h("span", { class: "sparkline" }, canvas, text),
    update(values) {
      say(text, `${rate(values.at(-1))} attempts/s`);
      const [width, height] = [120, 24];
      const sharp = devicePixelRatio || 1;
      [canvas.width, canvas.height] = [width * sharp, height * sharp];
      const paint = canvas.getContext("2d");
      paint.scale(sharp, sharp);
      paint.strokeStyle = css("fail");
      paint.lineWidth = 1.5;
      const most = Math.max(...values.map((each) => each ?? 0), 1e-9);
      const known = values.slice(-120);
      paint.beginPath();
      known.forEach((each, at) => paint.lineTo((at / Math.max(1, known.length - 1)) * width, height - 2 - ((each ?? 0) / most) * (height - 4)));
      paint.stroke();
    },
  };
}

function group(shown) {
  const title = h("h3");
  const message = h("p", { class: "error" });
  const facts = h("dl", { class: "facts" });
  const stack = folded("Stack of the last error");
  const line = spark();
  const keys = h("p", { class: "note" });
  const fill = keyed(facts, (row) => row[0], ([name]) => {
    const value = h("dd");
    return { node: h("div", {}, h("dt", {}, name), value), update: ([, text]) => say(value, text) };
  });
  return {
    node: h("article", { class: "finding", "data-kind": "fail" }, h("div", { class: "head" }, title, line.node), message, facts, keys, stack.node),
    update({ group: each, now, values }) {
      say(title, each.error);
      say(message, each.message || "(without a message)");
      fill([
        ["attempts", count(each.count)],
        ["first", moment(each.first_at)],
        ["last", `${moment(each.last_at)}, ${seconds(Math.max(0, now - each.last_at))} ago`],
        ["where", each.where || "–"],
        ["record", place(each)],
      ]);
      const told = each.keys.map(([name, often], at) => `${shown() && name !== null ? key(name, each.slots[at], true) : `slot ${slot(each.slots[at])}`} (${many(often, "attempt")})`);
      say(keys, told.length ? `${told.length === 1 ? "The key" : `The last ${count(told.length)} keys`}: ${told.join(", ")}` : "");
      stack.update(each.stack);
      line.update(values);
    },
  };
}

export function screen(root) {
  let snapshot = null;
  const list = h("div", { class: "cards" });
  const none = h("p", { class: "empty" }, "No attempt has failed since the start.");
  const update = keyed(list, (row) => row.id, () => group(() => snapshot.keys_shown));
  root.append(none, list);
  return {
    update(value, past) {
      snapshot = value;
      const rows = value.status.subscriptions.flatMap((sub) =>
        sub.errors.map((each) => {
          const id = `${sub.name}/${each.error}/${each.where}`;
          return { id, group: each, now: value.taken_at, values: past.rates((sample) => sample.errors[id]) };
        }),
      );
      update(rows);
      none.hidden = rows.length > 0;
    },
  };
}
