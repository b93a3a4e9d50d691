// Dialogs and toasts: questions, the token, help, and the results of orders.

import { SYMBOLS, h } from "./dom.js";
import { auth } from "./stream.js";

const box = () => document.getElementById("dialog");

/** Show a dialog with a title and children; null children are skipped. Resolve with the answer ("" for Escape). */
export function show(title, ...children) {
  const dialog = box();
  dialog.replaceChildren(h("h2", { id: "dialog-title" }, title), ...children.filter((each) => each !== null));
  if (dialog.open) dialog.close("");
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue), { once: true });
  });
}

/** Close the dialog with an answer. */
export function close(answer = "") {
  box().close(answer);
}

/** Ask for confirmation. The button of an irreversible action does not have the focus. */
export async function confirm(title, question, hard = false) {
  const yes = h("button", { type: "button", class: hard ? "hard" : "primary", onclick: () => close("yes") }, title);
  const no = h("button", { type: "button", autofocus: hard, onclick: () => close() }, "Cancel");
  return (await show(title, h("p", {}, question), h("div", { class: "buttons" }, yes, no))) === "yes";
}

/** Ask for the token; resolve with true if one was entered. */
export async function askToken(why) {
  const field = h("input", { type: "password", id: "token", autocomplete: "off", autofocus: true, value: auth.token });
  const form = h(
    "form",
    {
      onsubmit: (event) => {
        event.preventDefault();
        if (!field.value) return;
        auth.token = field.value;
        close("given");
      },
    },
    h("label", { for: "token" }, "Token"),
    field,
    h("div", { class: "buttons" }, h("button", { type: "submit", class: "primary" }, "Continue"), h("button", { type: "button", onclick: () => close() }, "Cancel")),
  );
  const text = "The token is in the file of the setting http_token_file. It stays in this tab and is sent only to this instance.";
  const given = await show("This instance needs its token", why ? h("p", { class: "wrong" }, why) : null, h("p", {}, text), form);
  return given === "given";
}

/** Show a result. It disappears by itself; a failure stays longer. */
export function toast(kind, text) {
  const made = h(
    "div",
    { class: "toast", "data-kind": kind },
    h("span", { "aria-hidden": "true", class: "symbol" }, SYMBOLS[kind]),
    h("span", {}, text),
    h("button", { type: "button", class: "quiet", "aria-label": "Dismiss", onclick: () => made.remove() }, "×"),
  );
  document.getElementById("toasts").append(made);
  setTimeout(() => made.remove(), kind === "fail" ? 20_000 : 6_000);
}
