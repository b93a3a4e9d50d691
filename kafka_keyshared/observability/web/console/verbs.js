// What can be done to an instance: the table, whether this one offers it, and how it is asked.

import { h, say, mark } from "./dom.js";
import { slot } from "./format.js";
import { auth } from "./stream.js";
import { askToken, confirm, toast } from "./dialogs.js";

const PREFIX = "/api/v1/actions/";

/** Which partitions an order is about, in words: nothing where it is about all. */
const from = ({ partitions }) => (partitions ? ` from ${partitions.map(([topic, number]) => `${topic}-${number}`).join(", ")}` : "");

/**
 * Every verb: its label, whether it takes something away (then the button is marked), and the
 * question that is asked before it is sent; what only looks has none. Of a replay it is asked first
 * what it would do (its trial). What a verb is sent with is up to the button.
 */
export const VERBS = {
  pause: { label: "Pause", question: (body) => `Fetch nothing more${from(body)} until it is resumed? What was received is finished.` },
  resume: { label: "Resume", question: (body) => `Fetch again${from(body)}?` },
  drain: { label: "Drain", question: () => "Fetch nothing more, finish what was received and commit it? It stays in its group, paused, until it is resumed." },
  scale: { label: "Scale", question: (body) => `Run ${body.workers} workers? Slots that move drain first.` },
  assign: {
    label: "Assign the range",
    question: ({ first, last, worker, take_over }) =>
      `Make the slots ${slot(first)} to ${slot(last)} ${worker === null ? "nobody's" : `those of ${worker}`}? ${take_over ? "What others have of them drains first." : "If others have some of them, it is refused."}`,
  },
  move: { label: "Move the slot", question: (body) => `Make slot ${slot(body.slot)} ${body.worker === null ? "nobody's" : `one of ${body.worker}`}? It drains first.` },
  release: { label: "Try again", question: ({ at }) => `Release the key of ${at}? The record is tried again, and what waits behind it goes on.` },
  drop: { label: "Drop", hard: true, question: ({ at }) => `Drop ${at}? The record counts as done without having run to its end, for good.` },
  "dead-letter": { label: "Dead letter", hard: true, question: ({ at }) => `Send ${at} to the dead-letter topic? Its key goes on without it.` },
  letters: { label: "List the newest" },
  replay: {
    label: "Replay",
    trial: { asks: { execute: false }, does: { execute: true } },
    question: (_, tried) => `${tried.done}. They are sent once more, and handled like any record. Do it?`,
  },
  "log-level": { label: "Set log level", question: (body) => `Log at level ${body.level} from now on?` },
};

const NOT_OFFERED = "this instance does not offer it over HTTP";
const NO_ORDERS = "this instance takes no orders, because it runs without http_token_file; set that to a file with a token, and restart it";
let offered = null;
let why = "asking what the instance offers";
const greyed = new Set(); // by weak references: what the page has let go is not kept here

/** Have `refresh` called now, and whenever it is known anew what the instance offers, while the element is there. */
function keepUp(element, refresh) {
  element.keepUp = refresh;
  greyed.add(new WeakRef(element));
  refresh();
}

/** Ask what the instance offers. Buttons that it has nothing for stay greyed, and say why. */
export async function discover({ settings }) {
  try {
    const answer = await fetch("/api/v1/openapi.json", { headers: auth.headers });
    if (!answer.ok) return;
    const { paths } = await answer.json();
    const takes = settings.find((each) => each.name === "http_token_file")?.value != null;
    offered = new Set(Object.keys(VERBS).filter((name) => takes && paths[PREFIX + name]?.post));
    why = takes ? NOT_OFFERED : NO_ORDERS;
  } catch {
    return; // it is asked again with the next connection
  }
  for (const each of greyed) {
    const element = each.deref();
    if (element) element.keepUp();
    else greyed.delete(each);
  }
}

/**
 * A button for a verb. `body()` is what is sent, and throws where a field is wrong; `what` says what it is about, for the toast, and
 * `after(said)` is called with what was done, or refused. `quiet`: what was done is seen elsewhere.
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

/** Order something, asking for the token where it is needed; resolve with what was answered. */
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
      return { refused: "no answer from the instance; whether it was done is seen above" };
    }
    const said = read((await answer.text()).trim());
    if (answer.status === 401 && (await askToken(auth.token ? "That token is not the instance's." : ""))) continue;
    return answer.ok ? said : { refused: said.refused || `HTTP ${answer.status}, without a reason` };
  }
}

/** An answer as {done, result} or {refused}: what is no JSON was said by something in between. */
function read(text) {
  try {
    return JSON.parse(text);
  } catch {
    return { refused: text };
  }
}

/** A line that says, below buttons, why they are greyed; empty where they are not. */
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
