// Dead letters: their topics, those in flight, the newest ones, and their replay.

import { badge, h, panel, say, table } from "../dom.js";
import { count, key, many, moment, place, seconds, textOf } from "../format.js";
import { button, note } from "../verbs.js";

const WORDS = { acknowledged: "written", failed: "refused" };

/** The newest letters of a dead-letter topic, read from Kafka on request. */
function newest(chosen, shown) {
  let listed = "";
  const lines = table({
    caption: "Newest letters",
    columns: [
      { title: "Letter", brief: true, text: (each) => each.at },
      { title: "Of record", text: (each) => each.source ?? "–" },
      { title: "Key", text: (each) => key(textOf(each.key), each.source, shown()) },
      { title: "Failed with", text: (each) => each.error },
      { title: "Attempts", number: true, text: (each) => count(each.attempts) },
      { title: "Written", brief: true, text: (each) => (Date.parse(each.written) ? moment(Date.parse(each.written) / 1000) : each.written ?? "–") },
      { title: "State", node: () => {
        const state = badge("brief");
        return { node: state.node, update: (each) => (each.replayed ? state.update("ok", "replayed") : state.update("warn", "outstanding")) };
      } },
      { title: "", node: (each) => {
        const one = button("replay", () => ({ dlq: listed, at: each.at }), { what: each.at, after: again });
        return { node: one, update: (now) => (one.hidden = now.replayed) };
      } },
    ],
    keyOf: (each) => `${listed}/${each.at}/${each.written}`,
    empty: (text) => text,
  });
  const take = (said) => {
    if (said.refused) return lines.update([], said.refused);
    listed = said.result.dlq;
    all.hidden = said.result.newest.every((each) => each.replayed);
    return lines.update(said.result.newest, `${listed} has no letter of this group.`);
  };
  const list = button("letters", () => ({ dlq: chosen() }), { after: take, quiet: true });
  const again = (said) => {
    if (!said.refused) list.click();
  };
  const all = button("replay", () => ({ dlq: listed }), { label: "Replay all", after: again });
  all.hidden = true;
  lines.update([], "The letters are in Kafka, not in this process. The instance reads them on request, which needs the token.");
  return { list, all, node: lines.node };
}

export function screen(root) {
  const topics = table({
    caption: "Dead-letter topics",
    columns: [
      { title: "Of topic", text: (each) => each.topic },
      { title: "Letters go to", text: (each) => each.letters },
      { title: "Answers of the broker", text: (each) => each.answers },
    ],
    keyOf: (each) => each.topic,
    empty: "There is no dead-letter topic (dlq). After its last attempt a record blocks its key or is dropped (on_exhausted).",
  });
  const waiting = table({
    caption: "Letters in flight",
    columns: [
      { title: "Record", text: place },
      { title: "State", text: (each) => each.state },
      { title: "For", number: true, text: (each) => seconds(each.seconds) },
      { title: "Records behind", number: true, text: (each) => count(each.waiting) },
      { title: "Error", text: (each) => each.error },
    ],
    keyOf: (each) => `${each.subscription}/${place(each)}`,
    empty: "No letter is in flight.",
  });
  const commands = h("pre", { class: "commands", tabindex: "0", "aria-label": "Commands" });
  const which = h("select", { id: "letters-of" });
  let keysShown = false;
  const letters = newest(() => which.value, () => keysShown);
  const chosen = h("span", { class: "bar-part" }, h("label", { for: "letters-of" }, "Of"), " ", which);
  const first = panel("Dead-letter topics", topics.node);
  const second = panel("On their way", waiting.node);
  const third = panel("In Kafka",
    h("div", { class: "bar" }, chosen, letters.list, letters.all),
    letters.node, note("letters", "replay"));
  root.append(first.node, second.node, third.node, panel("On the command line", h("p", { class: "note" }, "The command line selects letters by key, error and time, shows their payloads and exports them. A replay prints its plan first; --execute sends the letters."), commands).node);
  return {
    update(snapshot) {
      const { dlq } = snapshot;
      keysShown = snapshot.keys_shown;
      const names = Object.entries(dlq.topics);
      topics.update(names.map(([topic, letters]) => ({
        topic,
        letters,
        answers: Object.entries(dlq.answers[letters] ?? dlq.answers[topic] ?? {}).filter(([, number]) => number > 0).map(([answer, number]) => `${count(number)} ${WORDS[answer] ?? answer}`).join(", ") || "none yet",
      })));
      waiting.update(snapshot.stuck.filter((each) => ["dead_lettering", "archiving", "diverting"].includes(each.state)));
      say(first.beside, many(snapshot.totals.dead_letters, "record"));
      say(second.beside, dlq.refused ? `${many(dlq.refused, "letter")} refused before` : "");
      const own = [...new Set(names.map(([, letters]) => letters))];
      third.node.hidden = own.length === 0;
      chosen.hidden = own.length < 2;
      if (which.options.length !== own.length) which.replaceChildren(...own.map((each) => h("option", { value: each }, each)));
      const at = snapshot.settings.find((each) => each.name === "bootstrap")?.value ?? "BROKER:9092";
      const lines = own.flatMap((letters) => ["ls", "replay"].map((verb) => `keyshared dlq ${verb} -b ${at} --dlq ${letters}`));
      say(commands, lines.length ? lines.join("\n") : "# set dlq, and letters can be listed and replayed");
    },
  };
}
