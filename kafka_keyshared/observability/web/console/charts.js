// Charts over time. Each has a title with its unit, and its last value as text.

import { css } from "./colors.js";
import { h, say } from "./dom.js";
import { UNKNOWN } from "./format.js";

const HEIGHT = 150;

/** Minimum distance of the times below a chart, so that no two of them read alike. */
const SECONDS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600];

/** A chart: `lines` are {label, color (of the style sheet), dash?, read(history)}. */
export function chart({ title, unit, lines, format, ticks = format }) {
  const legend = h("div", { class: "legend" });
  const values = lines.map((line) => {
    const value = h("b", { class: "figure" }, UNKNOWN);
    const swatch = h("i", { class: `swatch ${line.dash ? "dashed" : ""}`, "aria-hidden": "true" });
    swatch.style.setProperty("--swatch", `var(--${line.color})`);
    legend.append(h("span", {}, swatch, `${line.label} `, value));
    return value;
  });
  const canvas = h("div", { class: "plot", role: "img" });
  const none = h("p", { class: "empty" }, "Waiting for a second snapshot; one arrives per second.");
  const node = h("figure", { class: "chart" }, h("figcaption", {}, title, h("span", { class: "unit" }, unit)), none, canvas, legend);
  let plot = null;
  let drawn = "";

  const make = (data) => {
    plot?.destroy();
    const axis = { stroke: css("muted"), font: "11px system-ui, sans-serif", ticks: { show: false } };
    const grid = { stroke: css("line"), width: 1 };
    plot = new window.uPlot(
      {
        width: Math.max(200, canvas.clientWidth),
        height: HEIGHT,
        legend: { show: false },
        // On the right half a time of day: the last one stands at the very edge while snapshots are few.
        padding: [10, 27, 0, 0],
        cursor: { show: false },
        scales: { y: { range: (_, low, high) => [0, high > 0 ? high * 1.15 : 1] } },
        axes: [
          { ...axis, grid: { show: false }, size: 26, space: 90, incrs: SECONDS, values: (_, at) => at.map((each) => new Date(each * 1000).toLocaleTimeString("en-GB")) },
          { ...axis, grid, size: 52, space: 34, values: (_, at) => at.map((each) => ticks(each)) },
        ],
        series: [
          {},
          ...lines.map((line) => ({
            label: line.label,
            stroke: css(line.color),
            width: 1.75,
            dash: line.dash ? [4, 3] : undefined,
            points: { show: false },
          })),
        ],
      },
      data,
      canvas,
    );
  };

  return {
    node,
    update(history) {
      if (!window.uPlot || !canvas.isConnected) return;
      canvas.hidden = history.samples.length < 2;
      none.hidden = !canvas.hidden;
      const data = [history.samples.map((each) => each.at), ...lines.map((line) => line.read(history))];
      const look = `${css("bg")} ${canvas.clientWidth}`;
      if (canvas.hidden) drawn = "";
      else if (look !== drawn) {
        drawn = look;
        make(data);
      } else plot.setData(data);
      const told = lines.map((line, at) => {
        const last = data[at + 1].at(-1);
        const text = last === null || last === undefined ? UNKNOWN : format(last);
        say(values[at], text);
        return `${line.label} ${text}`;
      });
      canvas.setAttribute("aria-label", `${title}, ${unit}: ${told.join(", ")}`);
    },
  };
}
