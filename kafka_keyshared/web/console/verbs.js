// What can be done to an instance: the table, whether this one offers it, and how it is asked.

import { h, say, mark } from "./dom.js";
import { auth } from "./stream.js";
import { askToken, confirm, toast } from "./dialogs.js";

const PREFIX = "/api/v1/actions/";

/**
 * Every verb: its label, whether it takes something away (then the button is marked), and the
 * question that is asked before it is sent. What it is sent with is up to the button.
 */
export const VERBS = {
  pause: { label: "Pause", question: () => "Fetch nothing more until it is resumed? What was received is finished." },
  resume: { label: "Resume", question: () => "Fetch again?" },
  drain: { label: "Drain", hard: true, question: () => "Finish what was received, commit, leave the group and end the process?" },
  scale: { label: "Scale", question: (body) => `Run ${body.workers} workers? Slots that move drain first.` },
  assign: { label: "Assign ranges", question: () => "Give the slots to these workers?" },
  move: { label: "Move the slot", question: (body) => `Give slot ${body.slot} to ${body.worker}? It drains first.` },
  release: { label: "Try again", question: () => "Release the key? Its record is tried again, and what waits behind it goes on." },
  drop: { label: "Drop", hard: true, question: () => "Drop the record? It counts as done without having run to its end, for good." },
  "dead-letter": { label: "Dead letter", hard: true, question: () => "Send the record to the dead-letter topic? Its key goes on without it." },
  "log-level": { label: "Set log level", question: (body) => `Log at level ${body.level} from now on?` },
};

const NOT_OFFERED = "this instance does not offer it over HTTP";
let offered = null;
let why = "asking what the instance offers";
const buttons = new Set();

/** Ask what the instance offers. Buttons that it has nothing for stay greyed, and say why. */
export async function discover() {
  try {
    const answer = await fetch("/api/v1/openapi.json", { headers: auth.headers });
    if (!answer.ok) return;
    const { paths } = await answer.json();
    offered = new Set(Object.keys(VERBS).filter((name) => paths[PREFIX + name]?.post));
    why = NOT_OFFERED;
  } catch {
    return; // it is asked again with the next connection
  }
  for (const each of buttons) each();
}

/** A button for a verb. `body()` is what is sent; `what` says what it is about, for the toast. */
export function button(verb, body, what = "") {
  const { label } = VERBS[verb];
  const made = h("button", { type: "button", class: VERBS[verb].hard ? "hard" : null }, label);
  const refresh = () => {
    const there = offered?.has(verb) ?? false;
    mark(made, "aria-disabled", there ? null : "true");
    mark(made, "title", there ? null : `${label}: ${why}`);
  };
  buttons.add(refresh);
  refresh();
  made.addEventListener("click", async () => {
    if (!offered?.has(verb)) {
      toast("info", `${label}: ${why}`);
      return;
    }
    const sent = body();
    if (await confirm(label, VERBS[verb].question(sent), VERBS[verb].hard)) {
      mark(made, "aria-busy", "true");
      await send(verb, sent, what);
      mark(made, "aria-busy", null);
    }
  });
  return made;
}

async function send(verb, body, what) {
  const { label } = VERBS[verb];
  const about = what ? `${label} (${what})` : label;
  for (;;) {
    let answer;
    try {
      answer = await fetch(PREFIX + verb, {
        method: "POST",
        headers: { "Content-Type": "application/json", ...auth.headers },
        body: JSON.stringify(body),
      });
    } catch {
      toast("fail", `${about}: no answer from the instance; whether it was done is seen above`);
      return;
    }
    const text = (await answer.text()).trim();
    if (answer.status === 401 && (await askToken(auth.token ? "That token is not the instance's." : ""))) continue;
    if (answer.ok) toast("ok", `${about}: ${told(text)}`);
    else toast("fail", `${about}: refused (${answer.status}): ${told(text) || "without a reason"}`);
    return;
  }
}

/** An answer as a line: the text, or what a JSON object says under the name of a message. */
function told(text) {
  try {
    const value = JSON.parse(text);
    if (typeof value === "string") return value;
    return value?.message ?? value?.outcome ?? value?.reason ?? "done";
  } catch {
    return text || "done";
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
  buttons.add(refresh);
  refresh();
  return line;
}
