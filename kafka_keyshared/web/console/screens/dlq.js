// Dead letters: where they go, how many were written, and how to read and replay them.

import { h, panel, say, table } from "../dom.js";
import { count, many, place, seconds } from "../format.js";

const WORDS = { ok: "written", error: "refused" };

export function screen(root) {
  const topics = table({
    caption: "Dead-letter topics",
    columns: [
      { title: "Of topic", text: (each) => each.topic },
      { title: "Letters go to", text: (each) => each.letters },
      { title: "Answers of the broker", text: (each) => each.answers },
    ],
    keyOf: (each) => each.topic,
    empty: "There is no dead-letter topic (dlq): a record whose attempts are used up blocks its key, or is dropped, as poison says.",
  });
  const waiting = table({
    caption: "Letters on their way",
    columns: [
      { title: "Record", text: place },
      { title: "State", text: (each) => each.state },
      { title: "For", number: true, text: (each) => seconds(each.seconds) },
      { title: "Behind it", number: true, text: (each) => count(each.waiting) },
      { title: "Error", text: (each) => each.error },
    ],
    keyOf: (each) => `${each.subscription}/${place(each)}`,
    empty: "No letter waits to be written.",
  });
  const commands = h("pre", { tabindex: "0", "aria-label": "Commands" });
  const first = panel("Where they go", topics.node);
  const second = panel("On their way", waiting.node);
  root.append(first.node, second.node, panel("Read and replay them", h("p", { class: "note" }, "Letters are in Kafka, not in this process: the command line reads and replays them, in the order of their keys. Replay says what it would do, and does it with --execute."), commands).node);
  return {
    update(snapshot) {
      const { dlq } = snapshot;
      const names = Object.entries(dlq.topics);
      topics.update(names.map(([topic, letters]) => ({
        topic,
        letters,
        answers: Object.entries(dlq.answers[letters] ?? dlq.answers[topic] ?? {}).map(([answer, number]) => `${count(number)} ${WORDS[answer] ?? answer}`).join(", ") || "none yet",
      })));
      waiting.update(snapshot.stuck.filter((each) => ["dead_lettering", "archiving", "diverting"].includes(each.state)));
      say(first.beside, many(snapshot.totals.dead_letters, "record"));
      say(second.beside, dlq.refused ? `${many(dlq.refused, "letter")} refused before` : "");
      const at = snapshot.settings.find((each) => each.name === "bootstrap")?.value ?? "BROKER:9092";
      const lines = names.flatMap(([, letters]) => ["ls", "replay"].map((verb) => `keyshared dlq ${verb} -b ${at} --dlq ${letters}`));
      say(commands, lines.length ? [...new Set(lines)].join("\n") : "# set dlq, and letters can be listed and replayed");
    },
  };
}
