// Partitions: a strip for each, from the committed position to the end of the log.

import { css } from "../colors.js";
import { badge, h, keyed, mark, panel, say } from "../dom.js";
import { count, many, partition, seconds } from "../format.js";
import { button, note } from "../verbs.js";

const MOST = 60;
const HEIGHT = 30;
const LATER = 0.16; // of the strip, for what is in the log and not received, however much that is

/** Draw a strip. Received records have their own scale, because the log may have a million records. */
function draw(canvas, each) {
  const width = canvas.clientWidth;
  const sharp = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * sharp)) {
    canvas.width = Math.round(width * sharp);
    canvas.height = Math.round(HEIGHT * sharp);
  }
  const paint = canvas.getContext("2d");
  paint.setTransform(sharp, 0, 0, sharp, 0, 0);
  paint.clearRect(0, 0, width, HEIGHT);
  const start = each.committed ?? each.safe ?? 0;
  const end = Math.max(each.fetched ?? start, start);
  const beyond = (each.log_end ?? end) > end;
  const room = beyond ? width * (1 - LATER) : width;
  const span = Math.max(1, end - start);
  // The first tenth stands for what is committed, so that there is something to begin with.
  const begun = Math.min(28, width * 0.06);
  const x = (offset) => begun + ((room - begun) * Math.max(0, offset - start)) / span;
  const block = (from, to, colour, top = 6, bottom = HEIGHT - 6) => {
    paint.fillStyle = colour;
    paint.fillRect(from, top, Math.max(1, to - from), bottom - top);
  };
  block(0, begun, css("done"));
  block(begun, room, css("gap"));
  // Gaps are hatched, so that they are told from settled records without their colour.
  paint.save();
  paint.beginPath();
  paint.rect(begun, 6, room - begun, HEIGHT - 12);
  paint.clip();
  paint.strokeStyle = css("hatch");
  paint.lineWidth = 1;
  paint.beginPath();
  for (let at = begun - HEIGHT; at < room; at += 6) {
    paint.moveTo(at, HEIGHT);
    paint.lineTo(at + HEIGHT, 0);
  }
  paint.stroke();
  paint.restore();
  if (end === start) block(0, room, css("done"));
  if (each.safe !== null && each.safe > start) block(begun, x(each.safe), css("settled"));
  for (const [first, last] of each.settled ?? []) block(x(first), x(last), css("settled"));
  if (beyond) {
    block(room + 2, width, css("later"));
    paint.strokeStyle = css("muted");
    paint.strokeRect(room + 2.5, 6.5, width - room - 3, HEIGHT - 13);
  }
  const line = (at, colour) => {
    paint.fillStyle = colour;
    paint.fillRect(Math.min(width - 2, Math.max(0, at - 1)), 1, 2, HEIGHT - 2);
  };
  if (end > start) line(begun, css("text"));
  if (each.safe !== null && each.safe > start) line(x(each.safe), css("accent"));
}

function strip() {
  const name = h("h3");
  const state = badge();
  const canvas = h("canvas", { class: "strip", role: "img", height: HEIGHT });
  const facts = h("dl", { class: "facts" });
  const fill = keyed(facts, (row) => row[0], ([title]) => {
    const value = h("dd");
    return { node: h("div", {}, h("dt", {}, title), value), update: ([, text]) => say(value, text) };
  });
  let now = null;
  const at = () => ({ partitions: [[now.topic, now.partition]] });
  const pause = button("pause", at, { what: "this partition" });
  const resume = button("resume", at, { what: "this partition" });
  return {
    node: h("article", { class: "partition" }, h("div", { class: "head" }, name, state.node, h("span", { class: "buttons" }, pause, resume)), canvas, facts),
    update(each) {
      now = each;
      say(name, partition(each));
      const byHand = each.held_back.includes("it is paused by hand");
      if (each.held_back.length) {
        state.update("warn", each.held_back.map((why, place) => `${why}, ${seconds(each.held_seconds[place])}`).join("; "));
      } else if (each.backlog === 0) state.update("ok", "at the end");
      else state.update("busy", each.unsettled && each.fetched >= each.log_end ? `${many(each.unsettled, "record")} to settle` : "fetching");
      pause.hidden = byHand;
      resume.hidden = !byHand && !each.paused;
      mark(facts, "data-large", (each.log_end ?? each.fetched) >= 1e8);
      fill([
        ["committed", count(each.committed)],
        ["safe", count(each.safe)],
        ["settled up to", count(each.settled_max)],
        ["received end", count(each.fetched)],
        ["log end", count(each.log_end)],
        ["unsettled", count(each.unsettled)],
        ["lag", count(each.lag)],
        ["backlog", count(each.backlog)],
        ["oldest", each.unsettled ? seconds(each.oldest_seconds) : "–"],
        ["behind", each.lag_seconds === null ? "–" : seconds(each.lag_seconds)],
      ]);
      const runs = each.settled?.length ?? 0;
      canvas.setAttribute("aria-label", `${partition(each)}: committed ${count(each.committed)}, safe ${count(each.safe)}, ${many(runs, "settled run")} beyond it, received end ${count(each.fetched)}, log end ${count(each.log_end)}`);
      if (canvas.isConnected) draw(canvas, each);
      else requestAnimationFrame(() => canvas.isConnected && draw(canvas, each));
    },
  };
}

const ORDERS = {
  "by name": () => 0,
  "most gaps first": (a, b) => b.unsettled - a.unsettled,
  "most lag first": (a, b) => (b.lag ?? -1) - (a.lag ?? -1),
};

/** The reason why there is no partition, and the cure. */
function nothing(status) {
  if (status.brokers_away_seconds !== null) return `No partition: no broker has answered for ${seconds(status.brokers_away_seconds)}. The screen Doctor shows the errors of the client.`;
  if (status.rebalance_seconds !== null) return `No partition yet: a rebalance has been in progress for ${seconds(status.rebalance_seconds)}.`;
  if (!status.joined) return "No partition yet: this instance has not joined its group. Joining takes some seconds; the screen Doctor shows whether brokers answer.";
  return "The group has assigned no partition to this instance. The usual cause is more instances than partitions: run fewer instances with more workers, or add partitions. The screen Group shows the owners.";
}

export function screen(root) {
  const order = h("select", { id: "order" }, ...Object.keys(ORDERS).map((each) => h("option", {}, each)));
  const list = h("div", { class: "strips" });
  const none = h("p", { class: "empty", hidden: true });
  const update = keyed(list, partition, strip);
  const signs = h("ul", { class: "signs", "aria-label": "Signs" },
    h("li", {}, h("span", { class: "sign done", "aria-hidden": "true" }), "committed"),
    h("li", {}, h("span", { class: "sign settled", "aria-hidden": "true" }), "settled"),
    h("li", {}, h("span", { class: "sign gap", "aria-hidden": "true" }), "received, not settled"),
    h("li", {}, h("span", { class: "sign later", "aria-hidden": "true" }), "in the log, not received (not to scale)"),
    h("li", {}, h("span", { class: "sign at", "aria-hidden": "true" }), "committed position"),
    h("li", {}, h("span", { class: "sign safe", "aria-hidden": "true" }), "safe position"));
  const shown = panel(
    "Positions, in offsets",
    h("p", { class: "bar" }, h("label", { for: "order" }, "Order"), order),
    signs,
    list, none, note("pause", "resume"));
  root.append(shown.node);
  let now = null;
  const screenOf = {
    update(snapshot) {
      now = snapshot;
      const all = [...snapshot.status.partitions].sort(ORDERS[order.value]);
      update(all.slice(0, MOST));
      none.hidden = all.length > 0;
      say(none, nothing(snapshot.status));
      order.parentElement.hidden = signs.hidden = all.length < 1;
      say(shown.beside, all.length > MOST ? `${MOST} of ${count(all.length)} partitions` : many(all.length, "partition"));
    },
  };
  order.addEventListener("change", () => now && screenOf.update(now));
  return screenOf;
}
