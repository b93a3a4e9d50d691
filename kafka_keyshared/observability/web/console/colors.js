// Colours: those of the style sheet, and one for each worker.

const probe = () => getComputedStyle(document.documentElement);

/** The value of a custom property of the style sheet. */
export function css(name) {
  return probe().getPropertyValue(`--${name}`).trim();
}

/** Whether the page is dark. */
export function dark() {
  return css("dark") === "1";
}

/**
 * The colour of the worker at a place: neighbours are far apart, and the lightness changes too, so
 * that they differ for those who do not see the hue. A worker is always named beside its colour.
 */
export function workerColor(at) {
  const hue = (255 + at * 137.508) % 360;
  const step = (at % 3) * 0.07;
  return dark() ? `oklch(${0.66 + step} 0.11 ${hue})` : `oklch(${0.5 + step} 0.13 ${hue})`;
}
