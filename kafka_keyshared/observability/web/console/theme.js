// The theme, set before the first paint: "auto" follows the system. A classic script, so that
// nothing is painted before it has run.
"use strict";
window.keysharedTheme = (() => {
  const NAMES = ["auto", "light", "dark"];
  const kept = () => {
    try {
      const found = localStorage.getItem("keyshared-theme");
      return NAMES.includes(found) ? found : "auto";
    } catch {
      return "auto"; // a browser that keeps nothing for pages
    }
  };
  const system = matchMedia("(prefers-color-scheme: dark)");
  let name = kept();
  const apply = () => {
    document.documentElement.dataset.theme = name === "auto" ? (system.matches ? "dark" : "light") : name;
  };
  apply();
  system.addEventListener("change", apply);
  return {
    get name() {
      return name;
    },
    next() {
      name = NAMES[(NAMES.indexOf(name) + 1) % NAMES.length];
      try {
        localStorage.setItem("keyshared-theme", name);
      } catch {
        // It holds for this page only.
      }
      apply();
      return name;
    },
  };
})();
