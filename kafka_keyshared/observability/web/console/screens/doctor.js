// Doctor and settings: the checks of the instance in order, and its settings.

import { badge, h, panel, say, table } from "../dom.js";
import { bytes, count, many, moment, percent, seconds } from "../format.js";
import { button, note } from "../verbs.js";

/** The answers of the broker to commits. */
const COMMITS = { accepted: "accepted", retry: "tried again", too_large: "too large", lost: "lost", denied: "denied" };

/** Each check: its name, and its result: [ok | warn | fail | info, text]. */
const CHECKS = [
  ["The control loop turns", ({ status }) => (status.silent_seconds > 2 ? ["fail", `silent for ${seconds(status.silent_seconds)}`] : ["ok", "yes"])],
  ["Brokers answer", ({ status }) => {
    if (status.brokers_away_seconds !== null) return ["fail", `none for ${seconds(status.brokers_away_seconds)}. ${status.client_error}`];
    const trips = Object.entries(status.client?.round_trip_seconds ?? {});
    return ["ok", trips.length ? trips.map(([broker, each]) => `${broker} in ${seconds(each)}`).join(", ") : "no error"];
  }],
  ["The group's coordinator", ({ status }) => {
    const { client } = status;
    if (!client?.coordinator) return ["info", "not known yet: the client has told no statistics"];
    return [client.coordinator === "up" ? "ok" : "warn", `${client.coordinator}, for ${seconds(client.coordinator_seconds)}`];
  }],
  ["Partitions are assigned", ({ status }) => {
    if (status.rebalance_seconds !== null) return ["warn", `a rebalance has been in progress for ${seconds(status.rebalance_seconds)}`];
    if (!status.joined) return ["info", "not joined yet"];
    return [status.partitions.length ? "ok" : "warn", `${count(status.partitions.length)} of ${Object.keys(status.fetched).join(", ")}`];
  }],
  ["Polled in time", ({ status }) => [status.poll_used > 0.8 ? "fail" : status.poll_used > 0.5 ? "warn" : "ok", `${percent(status.poll_used)} of max.poll.interval.ms at most`]],
  ["Commits are accepted", ({ status }) => {
    if (status.commit_failures) return ["fail", `${count(status.commit_failures)} refused in a row: ${status.commit_error}`];
    if (status.commit_waiting_seconds > 5) return ["warn", `one has been waiting for ${seconds(status.commit_waiting_seconds)}`];
    return ["ok", Object.entries(status.commits).filter(([, number]) => number > 0).map(([answer, number]) => `${count(number)} ${COMMITS[answer] ?? answer}`).join(", ") || "none was needed yet"];
  }],
  ["The window has room", ({ totals }) => [totals.held >= totals.held_max ? "warn" : "ok", `${count(totals.held)} of ${count(totals.held_max)} records, ${bytes(totals.bytes)}`]],
  ["Workers are alive", ({ status, totals }) => {
    const gone = status.subscriptions.flatMap((sub) => sub.workers.filter((each) => each.state === "gone"));
    const left = gone.length ? `; gone after a resize: ${gone.map((each) => each.name).join(", ")}` : "";
    return [totals.stuck ? "warn" : "ok", `${count(totals.workers - gone.length)} alive, ${many(totals.stuck, "record")} stuck${left}`];
  }],
  ["Declared workers are present", ({ status }) => {
    const missing = status.subscriptions.flatMap((sub) => sub.missing);
    return [missing.length ? "fail" : "ok", missing.length ? `missing: ${missing.join(", ")}` : "none is missing"];
  }],
  ["Dead letters are accepted", ({ dlq }) => (dlq.refused ? ["fail", `${count(dlq.refused)} refused`] : [Object.keys(dlq.topics).length ? "ok" : "info", Object.keys(dlq.topics).length ? "none is refused" : "there is no dead-letter topic"])],
  ["Partitions deliver", ({ status }) => {
    const stalls = Object.values(status.stalls).reduce((sum, each) => sum + each, 0);
    return [stalls ? "warn" : "ok", stalls ? `${count(stalls)} read again after 30 s of silence` : "none had to be read again"];
  }],
];

function written(value) {
  if (value === null) return "not set";
  return typeof value === "string" ? value : JSON.stringify(value);
}

export function screen(root) {
  let wanted = "";
  let now = null;
  const checks = table({
    caption: "Checks",
    columns: [
      { title: "Check", text: (each) => each.name },
      { title: "Finding", node: () => {
        const made = badge();
        return { node: made.node, update: (each) => made.update(each.kind, each.text) };
      } },
    ],
    keyOf: (each) => each.name,
    empty: "",
    narrow: "lines",
  });
  const settings = table({
    caption: "Settings",
    columns: [
      { title: "Setting", node: () => {
        const name = h("code");
        return { node: name, update: (each) => say(name, each.name) };
      } },
      { title: "Value", text: (each) => written(each.value) },
      { title: "From", text: (each) => each.origin, none: (each) => each.origin === "default" },
    ],
    keyOf: (each) => each.name,
    empty: () => (wanted ? `No setting${own.checked ? " that was set" : ""} has “${wanted}” in its name, value or origin.` : "No setting was set: all have their defaults."),
    narrow: "pairs",
  });
  const about = table({
    caption: "Process",
    columns: [{ title: "What", text: (each) => each[0] }, { title: "Which", text: (each) => each[1] }],
    keyOf: (each) => each[0],
    empty: "",
    narrow: "pairs",
  });
  const filter = h("input", { type: "search", id: "settings", autocomplete: "off", spellcheck: "false" });
  const own = h("input", { type: "checkbox", id: "own" });
  const level = h("select", { id: "level" }, ...["debug", "info", "warning", "error"].map((each) => h("option", { selected: each === "info" }, each)));
  const found = panel("Settings", h("p", { class: "bar" }, h("label", { for: "settings" }, "Filter"), filter, h("span", {}, own, " ", h("label", { for: "own" }, "only what was set"))), settings.node);
  own.addEventListener("change", () => now && screenOf.update(now));
  filter.addEventListener("input", () => {
    wanted = filter.value.trim().toLowerCase();
    if (now) screenOf.update(now);
  });
  root.append(
    panel("Checks, in order of repair", checks.node, h("p", { class: "note" }, "These checks use the state of this instance. keyshared doctor also checks from outside: topics, rights, the group and versions.")).node,
    h("div", { class: "two" }, panel("Process", about.node).node, panel("Log", h("div", { class: "buttons" }, h("label", { for: "level" }, "Level"), level, button("log-level", () => ({ level: level.value }))), note("log-level")).node),
    found.node,
  );
  const screenOf = {
    update(snapshot) {
      now = snapshot;
      checks.update(CHECKS.map(([name, find]) => {
        const [kind, text] = find(snapshot);
        return { name, kind, text };
      }));
      const shown = snapshot.settings.filter((each) => (!own.checked || each.origin !== "default") && (!wanted || `${each.name} ${written(each.value)} ${each.origin}`.toLowerCase().includes(wanted)));
      settings.update(shown);
      say(found.beside, `${count(shown.length)} of ${count(snapshot.settings.length)}`);
      const { about: it, status } = snapshot;
      about.update([
        ["host, process", `${it.host}, ${it.pid}`],
        ["kafka-keyshared", it.version],
        ["Python, librdkafka", `${it.python}, ${it.librdkafka}`],
        ["started", moment(status.started_at)],
        ["group", status.group],
        ["topics", it.topics.join(", ")],
        ["keys", snapshot.keys_shown ? "shown (show_keys)" : "hidden; show_keys shows them"],
      ]);
    },
  };
  return screenOf;
}
