// Ring: who has which slots, what runs in them, and what drains, drawn live.

import { css, workerColor } from "../colors.js";
import { SYMBOLS, h, keyed, mark, panel, say } from "../dom.js";
import { ownerOf, parse, unowned } from "../finding.js";
import { UNKNOWN, count, many, percent, slot as slotText } from "../format.js";
import { handing, sizing } from "./slots.js";

const SLOTS = 65536;
const still = matchMedia("(prefers-reduced-motion: reduce)");
const angle = (slot) => (slot / SLOTS) * 2 * Math.PI - Math.PI / 2;

/**
 * Draw the ring. `look` is {sub, picked (a worker's name), asked (a slot), beat (0 to 1), then (what
 * another number of workers would come to)}.
 */
function draw(canvas, { sub, picked, asked, beat, then }) {
  const size = canvas.clientWidth;
  const sharp = devicePixelRatio || 1;
  if (canvas.width !== Math.round(size * sharp)) canvas.width = canvas.height = Math.round(size * sharp);
  const paint = canvas.getContext("2d");
  paint.setTransform(sharp, 0, 0, sharp, 0, 0);
  paint.clearRect(0, 0, size, size);
  const middle = size / 2;
  const outer = middle - 26;
  const wide = Math.max(18, size * 0.085);
  const inner = outer - wide;
  const arc = (radius, from, to) => {
    paint.beginPath();
    paint.arc(middle, middle, radius, from, to);
    paint.stroke();
  };
  const tick = (slot, from, to) => {
    const at = angle(slot + 0.5);
    paint.beginPath();
    paint.moveTo(middle + from * Math.cos(at), middle + from * Math.sin(at));
    paint.lineTo(middle + to * Math.cos(at), middle + to * Math.sin(at));
    paint.stroke();
  };

  paint.lineWidth = wide;
  for (const [first, last, at] of sub.slots ?? []) {
    const other = picked !== null && sub.workers[at]?.name !== picked;
    paint.globalAlpha = other ? 0.16 : 1;
    paint.strokeStyle = at < 0 ? css("line") : workerColor(at);
    arc(outer - wide / 2, angle(first), angle(last + 1) + 0.0006);
  }
  paint.globalAlpha = 1;

  // A band outside: the owners after the previewed resize.
  paint.lineWidth = 5;
  for (const [first, last, at] of then?.slots ?? []) {
    paint.globalAlpha = picked !== null && then.workers[at] !== picked ? 0.16 : 1;
    paint.strokeStyle = workerColor(at);
    arc(outer + 6, angle(first), angle(last + 1) + 0.0006);
  }
  paint.globalAlpha = 1;

  // Inside: a tick for each lease, long if the record runs. Closed keys have their own mark.
  const place = new Map(sub.workers.map((each, at) => [each.name, at]));
  for (const each of sub.pending ?? []) {
    if (each.slot === null || (picked !== null && each.worker !== picked)) continue;
    paint.strokeStyle = workerColor(place.get(each.worker) ?? 0);
    paint.lineWidth = each.running ? 2 : 1;
    paint.globalAlpha = each.running ? 1 : 0.55;
    tick(each.slot, inner - 3, inner - (each.running ? 16 : 7));
  }
  paint.globalAlpha = 1;
  paint.fillStyle = css("fail");
  paint.textAlign = "center";
  paint.textBaseline = "middle";
  paint.font = "700 12px system-ui, sans-serif";
  for (const each of sub.closed) {
    if (each.slot === null) continue;
    const at = angle(each.slot + 0.5);
    paint.strokeStyle = css("fail");
    paint.lineWidth = 1.5;
    tick(each.slot, inner - 3, inner - 17);
    paint.fillText(SYMBOLS.fail, middle + (inner - 25) * Math.cos(at), middle + (inner - 25) * Math.sin(at));
  }

  // Outside: slots that drain glow.
  const glow = css("warn");
  for (const worker of sub.workers) {
    for (const each of worker.draining) {
      const at = angle(each.slot + 0.5);
      const x = middle + (outer + 9) * Math.cos(at);
      const y = middle + (outer + 9) * Math.sin(at);
      paint.fillStyle = glow;
      paint.shadowColor = glow;
      paint.shadowBlur = 6 + 12 * beat;
      paint.beginPath();
      paint.arc(x, y, 3.5 + 1.5 * beat, 0, 2 * Math.PI);
      paint.fill();
      paint.shadowBlur = 0;
      paint.strokeStyle = glow;
      paint.lineWidth = 2;
      tick(each.slot, outer - wide, outer + 9);
    }
  }

  if (asked !== null) {
    paint.strokeStyle = css("text");
    paint.lineWidth = 2;
    tick(asked, inner - 34, outer + 8);
    const at = angle(asked + 0.5);
    paint.fillStyle = css("text");
    paint.font = "600 12px ui-monospace, monospace";
    paint.fillText(slotText(asked), middle + (outer + 19) * Math.cos(at) * 0.985, middle + (outer + 19) * Math.sin(at));
  }
  paint.fillStyle = css("text");
  paint.font = `600 ${Math.round(size * 0.072)}px system-ui, sans-serif`;
  const own = sub.workers.filter((each) => each.share > 0).length;
  paint.fillText(String(own), middle, middle - size * 0.03 - 10);
  paint.fillStyle = css("muted");
  paint.font = "13px system-ui, sans-serif";
  paint.fillText(own === 1 ? "worker with slots" : "workers with slots", middle, middle + 12);
  paint.fillText(many((sub.slots ?? []).length, "run of slots", "runs of slots"), middle, middle + 32);
}

export function screen(root) {
  const canvas = h("canvas", { class: "ring", role: "img" });
  const which = h("select", { "aria-label": "Subscription", hidden: true });
  const field = h("input", { type: "search", id: "ring-key", autocomplete: "off", spellcheck: "false", placeholder: "customer-7 or 0x3f2a" });
  const answer = h("p", { class: "answer", "aria-live": "polite" });
  const list = h("ul", { class: "owners" });
  const none = h("p", { class: "empty", hidden: true });
  const drained = h("p", { class: "note" });
  let picked = null;
  let pinned = null;
  let now = null;
  let frame = 0;

  const size = sizing(() => sub(), () => repaint());
  const byHand = handing(() => sub());
  const sub = () => now?.status.subscriptions[Math.max(0, which.selectedIndex)] ?? null;
  const repaint = (beat = 0.5) => {
    const found = sub();
    if (found === null || !canvas.clientWidth) return; // not shown: no slots, or another screen
    draw(canvas, { sub: found, picked, asked: slotAsked(), beat, then: size.then() });
  };
  const animate = (time) => {
    frame = 0;
    if (!canvas.isConnected || !sub()?.draining_slots || still.matches) return;
    repaint(0.5 + 0.5 * Math.sin(time / 260));
    frame = requestAnimationFrame(animate);
  };
  const slotAsked = () => {
    if (!now || !field.value.trim()) return null;
    return parse(field.value, now).slot ?? null;
  };
  const tell = () => {
    const found = sub();
    const slot = slotAsked();
    if (!found || !field.value.trim()) say(answer, "");
    else if (slot === null) say(answer, parse(field.value, now).wrong ?? "A key, or a slot: 0x0000 to 0xffff.");
    else {
      const owner = ownerOf(found, slot);
      say(answer, `${field.value.trim()} → slot ${slotText(slot)} → ${owner ?? "no owner"}`);
    }
    repaint();
  };
  field.addEventListener("input", tell);
  which.addEventListener("change", () => screenOf.update(now));

  const pick = (name) => {
    picked = name ?? pinned;
    repaint();
  };
  const fill = keyed(list, (each) => each.name, () => {
    let name = "";
    const swatch = h("i", { class: "swatch", "aria-hidden": "true" });
    const label = h("span");
    const gone = h("span", { class: "muted" });
    const share = h("span", { class: "number" });
    const meter = h("span", { class: "meter", "aria-hidden": "true" }, h("i"));
    const load = h("span");
    const unit = h("span", { class: "unseen" });
    const row = h(
      "button",
      {
        type: "button",
        class: "owner",
        onmouseenter: () => pick(name),
        onmouseleave: () => pick(null),
        onclick: () => {
          pinned = pinned === name ? null : name;
          pick(null);
          screenOf.update(now);
        },
      },
      swatch, h("span", { class: "name" }, label, gone), share, meter, h("span", { class: "number" }, load, unit),
    );
    return {
      node: h("li", {}, row),
      update(each) {
        name = each.name;
        swatch.style.setProperty("--swatch", workerColor(each.at));
        say(label, each.name);
        const leaves = each.share === 0 && each.draining.length > 0;
        say(gone, each.state === "gone" ? " gone" : leaves ? " leaving" : "");
        say(share, each.owned ? percent(each.share) : UNKNOWN);
        meter.firstChild.style.setProperty("width", `${Math.min(100, each.share * 100 * each.scale)}%`);
        say(load, count(each.leased));
        say(unit, each.leased === 1 ? " lease" : " leases");
        mark(row, "aria-pressed", pinned === each.name ? "true" : "false");
      },
    };
  });

  const signs = h("ul", { class: "signs", "aria-label": "Signs" },
    h("li", {}, h("span", { class: "sign lease", "aria-hidden": "true" }), "a lease; long: running"),
    h("li", {}, h("span", { class: "sign drain", "aria-hidden": "true" }), "a draining slot"),
    h("li", {}, h("span", { class: "sign closed", "aria-hidden": "true" }, SYMBOLS.fail), "a closed key"));
  const drawn = panel("Slots", h("div", { class: "ring-box" }, canvas), none, signs);
  const heads = h("p", { class: "heads", "aria-hidden": "true" }, h("i", { class: "swatch" }), "Worker", h("span", { class: "number" }, "Share"), h("span", { class: "meter" }), h("span", { class: "number" }, "Leases"));
  const owners = panel("Workers", h("p", { class: "note" }, "The share of all slots and the leases of each worker. Select a worker to see only its slots."),
    heads, list);
  root.append(
    h("div", { class: "bar" }, which, h("label", { for: "ring-key" }, "Key or slot"), field, answer),
    h("div", { class: "two" }, drawn.node, h("div", {}, owners.node,
      panel("Size", size.node, drained).node, byHand.node)),
  );

  const screenOf = {
    update(snapshot) {
      now = snapshot;
      const { subscriptions } = snapshot.status;
      if (which.options.length !== subscriptions.length) which.replaceChildren(...subscriptions.map((each) => h("option", {}, each.name)));
      which.hidden = subscriptions.length < 2;
      const found = sub();
      size.update(found);
      byHand.update(found);
      const most = Math.max(...found.workers.map((each) => each.share), 1e-9);
      const there = Boolean(found.slots?.length);
      fill(found.workers.map((each, at) => ({ ...each, at, owned: there, scale: 1 / most })));
      canvas.hidden = !there;
      none.hidden = there;
      signs.hidden = !there;
      heads.hidden = found.workers.length === 0;
      say(none, unowned(found));
      say(drawn.beside, `routing by ${found.routing}`);
      say(drained, `${many(found.draining_slots, "slot")} draining now, ${count(found.drained_slots)} drained so far.`);
      canvas.setAttribute("aria-label", `Ring of 65,536 slots: ${found.workers.map((each) => `${each.name} ${percent(each.share)}`).join(", ")}. ${count(found.draining_slots)} slots drain.`);
      tell();
      if (!frame && found.draining_slots && !still.matches) frame = requestAnimationFrame(animate);
    },
    leave() {
      cancelAnimationFrame(frame);
    },
  };
  return screenOf;
}
