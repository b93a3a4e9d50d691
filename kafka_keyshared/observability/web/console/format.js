// Formats of numbers, times and places. An unknown value is a dash, never a zero.

export const UNKNOWN = "–";

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/** 12,345 */
export function count(value) {
  return value === null || value === undefined ? UNKNOWN : whole.format(value);
}

const compact = new Intl.NumberFormat("en-US", { notation: "compact" });

/** A number in at most four characters: 987, 12K, 1.2M */
export function short(value) {
  return compact.format(value);
}

/** A rate: 0.4, 12.3, 4,321 */
export function rate(value) {
  if (value === null || value === undefined) return UNKNOWN;
  return value < 100 ? value.toFixed(1) : whole.format(value);
}

/** 25.4 % */
export function percent(share) {
  return share === null || share === undefined ? UNKNOWN : `${(share * 100).toFixed(1)} %`;
}

/** A duration in a suitable unit: 250 µs, 3.2 ms, 1.4 s, 3 min 20 s, 2 h 5 min */
export function seconds(value) {
  if (value === null || value === undefined) return UNKNOWN;
  if (value === 0) return "0 s";
  if (value < 0.001) return `${Math.round(value * 1e6)} µs`;
  if (value < 1) return `${(value * 1000).toFixed(value < 0.01 ? 1 : 0)} ms`;
  if (value < 60) return `${value.toFixed(1)} s`;
  if (value < 3600) return `${Math.floor(value / 60)} min ${Math.floor(value % 60)} s`;
  if (value < 86400) return `${Math.floor(value / 3600)} h ${Math.floor((value % 3600) / 60)} min`;
  return `${Math.floor(value / 86400)} d ${Math.floor((value % 86400) / 3600)} h`;
}

/** 12.3 MiB */
export function bytes(value) {
  if (value === null || value === undefined) return UNKNOWN;
  const units = ["B", "KiB", "MiB", "GiB"];
  let at = 0;
  let size = value;
  while (size >= 1024 && at < units.length - 1) {
    size /= 1024;
    at += 1;
  }
  return `${at === 0 ? size : size.toFixed(1)} ${units[at]}`;
}

/** A local time of day: 14:03:09 */
export function clock(epoch) {
  return new Date(epoch * 1000).toLocaleTimeString("en-GB");
}

/** Local day and time. */
export function moment(epoch) {
  const day = new Date(epoch * 1000);
  const today = day.toDateString() === new Date().toDateString();
  return today ? clock(epoch) : `${day.toLocaleDateString("en-CA")} ${clock(epoch)}`;
}

/** 0x3f2a */
export function slot(value) {
  return value === null || value === undefined ? UNKNOWN : `0x${value.toString(16).padStart(4, "0")}`;
}

/** orders-3 */
export function partition(each) {
  return `${each.topic}-${each.partition}`;
}

/** orders-3@12345: the name of a record in the log, the diagnosis and the command line. */
export function place(each) {
  return each.offset === null || each.offset < 0 ? partition(each) : `${partition(each)}@${each.offset}`;
}

/** A key as text; a note if it is hidden or missing. */
export function key(value, slotOf, shown) {
  if (value !== null && value !== undefined) return value === "" ? "(empty key)" : value;
  if (slotOf === null || slotOf === undefined) return "(no key)";
  return shown ? UNKNOWN : "hidden";
}

/** The text of the key of a dead letter, {text}, {json} or {hex}; null for a null key. */
export function textOf(told) {
  if (told === null || told === undefined) return null;
  const [[form, value]] = Object.entries(told);
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return ["text", "json", "avro"].includes(form) ? text : `${form}:${text}`;
}

/** 1 record, 2 records */
export function many(number, one, more = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : more}`;
}
