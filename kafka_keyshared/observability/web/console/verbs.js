// The orders to an instance: their table, their availability and their buttons.

import { h, say, mark } from "./dom.js";
import { slot } from "./format.js";
import { auth } from "./stream.js";
import { askToken, confirm, toast } from "./dialogs.js";

const PREFIX = "/api/v1/actions/";

/** The partitions of an order as text; empty if the order is about all partitions. */
const from = ({ partitions }) => (partitions ? ` from ${partitions.map(([topic, number]) => `${topic}-${number}`).join(", ")}` : "");

/**
 * Every verb: its label, whether it is irreversible (`hard` marks the button), and the question that
 * the page asks before it sends the order. A query has no question. A replay is first sent as a trial,
 * which returns the plan. The button supplies the body of the order.
 */
export const VERBS = {
  pause: { label: "Pause", question: (body) => `Pause fetching${from(body)} until resumed? Received records still run.` },
  resume: { label: "Resume", question: (body) => `Resume fetching${from(body)}?` },
  quiesce: { label: "Quiesce", question: () => "Pause all partitions, finish the received records and commit? The instance stays in its group, paused, until resumed." },
  scale: { label: "Scale", question: (body) => `Run ${body.workers} workers? Slots that move drain first.` },
  assign: {
    label: "Assign the range",
    question: ({ first, last, worker, take_over }) =>
      `${worker === null ? "Unassign" : "Assign"} the slots ${slot(first)} to ${slot(last)}${worker === null ? "" : ` to ${worker}`}? ${take_over ? "Slots of other workers drain first." : "The order is refused if other workers own some of them."}`,
  },
  move: { label: "Move the slot", question: (body) => `${body.worker === null ? `Unassign slot ${slot(body.slot)}` : `Assign slot ${slot(body.slot)} to ${body.worker}`}? It drains first.` },
  unblock: { label: "Unblock", question: ({ at }) => `Unblock the key of ${at}? The record runs again, then the records behind it.` },
  drop: { label: "Drop", hard: true, question: ({ at }) => `Drop ${at}? The record counts as settled and does not run again. This cannot be undone.` },
  "dead-letter": { label: "Dead letter", hard: true, question: ({ at }) => `Send ${at} to the dead-letter topic? Its key continues without the record.` },
  letters: { label: "List the newest" },
  replay: {
    label: "Replay",
    trial: { asks: { execute: false }, does: { execute: true } },
    question: (_, tried) => `${tried.done}. They are sent again and handled like any record. Continue?`,
  },
  "log-level": { label: "Set log level", question: (body) => `Set the log level to ${body.level}?` },
};

const NOT_OFFERED = "this instance does not accept the order over HTTP";
const NO_ORDERS = "this instance accepts no orders: it runs without http_token_file; set it to a file with a token, and restart the instance";
let offered = null;
let why = "waiting for the list of orders from the instance";
const greyed = new Set(); // weak references, so that removed elements can be collected

/** Call `refresh` now, and after each change of the available orders while the element exists. */
function keepUp(element, refresh) {
  element.keepUp = refresh;
  greyed.add(new WeakRef(element));
  refresh();
}

/** Query the available orders. The buttons of the others stay greyed, with the reason. */
export async function discover({ settings }) {
  try {
    const answer = await fetch("/api/v1/openapi.json", { headers: auth.headers });
    if (!answer.ok) return;
    const { paths } = await answer.json();
    const takes = settings.find((each) => each.name === "http_token_file")?.value != null;
    offered = new Set(Object.keys(VERBS).filter((name) => takes && paths[PREFIX + name]?.post));
    why = takes ? NOT_OFFERED : NO_ORDERS;
  } catch {
    return; // the next connection queries again
  }
  for (const each of greyed) {
    const element = each.deref();
    if (element) element.keepUp();
    else greyed.delete(each);
  }
}

/**
 * A button for a verb. `body()` returns the order, and throws for an invalid field. `what` names the object in the toast.
 * `after(said)` is called with the answer. `quiet`: no toast, because another element shows the result.
 */
export function button(verb, body, { what = "", after = () => {}, label = VERBS[verb].label, quiet = false } = {}) {
  const { hard = false, question, trial } = VERBS[verb];
  const made = h("button", { type: "button", class: hard ? "hard" : null }, label);
  const refresh = () => {
    const there = offered?.has(verb) ?? false;
    mark(made, "aria-disabled", there ? null : "true");
    mark(made, "title", there ? null : `${label}: ${why}`);
  };
  keepUp(made, refresh);
  const about = what ? `${label} (${what})` : label;
  const order = async (sent) => {
    const tried = trial ? await send(verb, { ...sent, ...trial.asks }) : {};
    if (tried.refused) return tried;
    if (question && !(await confirm(label, question(sent, tried), hard))) return null;
    return send(verb, { ...sent, ...trial?.does });
  };
  made.addEventListener("click", async () => {
    if (!offered?.has(verb)) {
      toast("info", `${label}: ${why}`);
      return;
    }
    let sent;
    try {
      sent = body();
    } catch (wrong) {
      toast("fail", `${about}: ${wrong.message}`);
      return;
    }
    mark(made, "aria-busy", "true");
    const said = await order(sent);
    mark(made, "aria-busy", null);
    if (said === null) return;
    if (said.refused) toast("fail", `${about}: ${said.refused}`);
    else if (!quiet) toast("ok", `${about}: ${said.done}`);
    after(said);
  });
  return made;
}

/** Send an order, and ask for the token if needed; resolve with the answer. */
export async function send(verb, body) {
  for (;;) {
    let answer;
    try {
      answer = await fetch(PREFIX + verb, {
        method: "POST",
        headers: { "Content-Type": "application/json", ...auth.headers },
        body: JSON.stringify(body),
      });
    } catch {
      return { refused: "no answer from the instance; the page shows whether the order was done" };
    }
    const said = read((await answer.text()).trim());
    if (answer.status === 401 && (await askToken(auth.token ? "The instance refused this token." : ""))) continue;
    return answer.ok ? said : { refused: said.refused || `HTTP ${answer.status}, without a reason` };
  }
}

/** The answer as {done, result} or {refused}. A proxy may answer with text that is no JSON. */
function read(text) {
  try {
    return JSON.parse(text);
  } catch {
    return { refused: text };
  }
}

/** A line below buttons with the reason why they are greyed; hidden if they are not. */
export function note(...verbs) {
  const line = h("p", { class: "note" });
  const refresh = () => {
    const missing = verbs.filter((each) => !offered?.has(each));
    line.hidden = missing.length === 0;
    say(line, missing.length ? `${missing.map((each) => VERBS[each].label).join(", ")}: ${why}.` : "");
  };
  keepUp(line, refresh);
  return line;
}
