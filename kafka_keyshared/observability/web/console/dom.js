// Elements. All data of the instance (keys, errors, names) enters the page here, as text: this console
// has no innerHTML.

import { UNKNOWN } from "./format.js";

/** Make an element. Children are nodes or text; null and false are left out. */
export function h(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") made.className = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false));
  return made;
}

/** Set the text of an element only if it differs, which keeps a selection of the reader. */
export function say(element, text) {
  const wanted = String(text);
  if (element.textContent !== wanted) element.textContent = wanted;
  return element;
}

/** Set or remove an attribute, only if it differs. */
export function mark(element, name, value) {
  if (value === null || value === undefined || value === false) {
    if (element.hasAttribute(name)) element.removeAttribute(name);
  } else if (element.getAttribute(name) !== String(value)) {
    element.setAttribute(name, String(value));
  }
}

/**
 * Keep the children of an element in step with rows: one child a row, made once by its key.
 * `make(row)` returns {node, update(row)}.
 */
export function keyed(parent, keyOf, make) {
  const kept = new Map();
  return (rows) => {
    const seen = new Set();
    let at = parent.firstChild;
    for (const row of rows) {
      const key = keyOf(row);
      if (seen.has(key)) continue;
      seen.add(key);
      if (!kept.has(key)) kept.set(key, make(row));
      const each = kept.get(key);
      each.update(row);
      if (each.node === at) at = at.nextSibling;
      else parent.insertBefore(each.node, at);
    }
    for (const [key, each] of kept) {
      if (seen.has(key)) continue;
      each.node.remove();
      kept.delete(key);
    }
  };
}

/**
 * A table that is updated in place. A column is {title, text(row), number?, brief?, node?(row), none?(row), hint?, spare?(row)}:
 * `text` fills a cell each time; `node` makes {node, update(row)} once for a cell of its own. What is
 * `brief`, or a number, is never broken. A column that is `spare` in every row is hidden. On a narrow page each row is a card under its first
 * cell (`narrow`: "pairs", a name and its value; "lines", a name and a sentence below it), without the
 * cells that have nothing (`none`), so roles are said and not left to the layout.
 */
export function table({ caption, columns, keyOf, empty, narrow = null }) {
  const head = h("tr", { role: "row" });
  for (const each of columns) {
    head.append(
      h(
        "th",
        { scope: "col", role: "columnheader", class: each.number ? "number" : null, title: each.hint },
        each.title,
      ),
    );
  }
  const body = h("tbody", { role: "rowgroup" });
  const shown = h(
    "table",
    { role: "table", class: narrow },
    h("caption", { class: "unseen" }, caption),
    h("thead", { role: "rowgroup" }, head),
    body,
  );
  const nothing = h("p", { class: "empty", hidden: true });
  const update = keyed(body, keyOf, (first) => {
    const cells = columns.map((column) => {
      const own = column.node?.(first);
      const cell = h(
        "td",
        { role: "cell", class: column.number ? "number" : column.brief ? "brief" : column.spare ? "spare" : null, "data-label": column.title },
        own?.node,
      );
      return { column, own, cell };
    });
    return {
      node: h("tr", { role: "row" }, ...cells.map((each) => each.cell)),
      update(row) {
        for (const { column, own, cell } of cells) {
          if (own) own.update(row);
          else say(cell, column.text(row));
          mark(cell, "data-none", column.none ? column.none(row) : cell.textContent.trim() === UNKNOWN);
        }
      },
    };
  });
  const node = h("div", { class: "table" }, shown, nothing);
  return {
    node,
    update(rows, context) {
      update(rows);
      for (const [at, column] of columns.entries()) {
        if (!column.spare) continue;
        const none = rows.every((row) => column.spare(row));
        for (const line of [head, ...body.children]) line.children[at].hidden = none;
      }
      shown.hidden = rows.length === 0;
      nothing.hidden = rows.length > 0;
      if (rows.length === 0) say(nothing, typeof empty === "function" ? empty(context) : empty);
      // What is wider than its place can be scrolled to by keyboard, too.
      const wide = node.scrollWidth > node.clientWidth;
      mark(node, "tabindex", wide ? "0" : null);
      mark(node, "role", wide ? "group" : null);
      mark(node, "aria-label", wide ? caption : null);
    },
  };
}

/** A part of a screen, with a heading. */
export function panel(title, ...children) {
  const beside = h("span", { class: "beside" });
  const node = h("section", { class: "panel" }, h("h2", {}, title, beside), ...children);
  return { node, beside };
}

/** A state in symbol and word: never in colour alone. */
export function badge(kind = "") {
  const symbol = h("span", { "aria-hidden": "true", class: "symbol" });
  const word = h("span");
  const node = h("span", { class: `badge ${kind}` }, symbol, word);
  return {
    node,
    update(kind, text) {
      mark(node, "data-kind", kind);
      say(symbol, SYMBOLS[kind] ?? "");
      say(word, text);
    },
  };
}

export const SYMBOLS = { ok: "✓", fail: "✕", warn: "▲", busy: "▶", idle: "–", info: "○" };

/** Calls, errors: text that keeps its lines, folded by default. */
export function folded(title) {
  const text = h("pre", { tabindex: "0" });
  const copy = h(
    "button",
    {
      type: "button",
      class: "quiet",
      onclick: async () => {
        try {
          await navigator.clipboard.writeText(text.textContent);
          say(copy, "Copied");
        } catch {
          say(copy, "Select it and copy"); // the browser does not allow access to the clipboard
        }
        setTimeout(() => say(copy, "Copy"), 2000);
      },
    },
    "Copy",
  );
  const node = h("details", {}, h("summary", {}, title), text, copy);
  return {
    node,
    update(value) {
      node.hidden = !value;
      say(text, value || "");
    },
  };
}
