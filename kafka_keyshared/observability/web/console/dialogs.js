// Dialogs and toasts: a question, the token, help, and what became of an order.

import { SYMBOLS, h } from "./dom.js";
import { auth } from "./stream.js";

const box = () => document.getElementById("dialog");

/** Show a dialog with a title and children, where null is none; resolve with what it is closed with ("" for Escape). */
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

/** Ask whether something is to be done. What takes something away does not have the focus. */
export async function confirm(title, question, hard = false) {
  const yes = h("button", { type: "button", class: hard ? "hard" : "primary", onclick: () => close("yes") }, title);
  const no = h("button", { type: "button", autofocus: hard, onclick: () => close() }, "Cancel");
  return (await show(title, h("p", {}, question), h("div", { class: "buttons" }, yes, no))) === "yes";
}

/** Ask for the token; resolve with whether one was given. */
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
    h("div", { class: "buttons" }, h("button", { type: "submit", class: "primary" }, "Go on"), h("button", { type: "button", onclick: () => close() }, "Cancel")),
  );
  const text = "It is in the file that the setting http_token_file names. It stays in this tab, and is sent to this instance only.";
  const given = await show("This instance asks for its token", why ? h("p", { class: "wrong" }, why) : null, h("p", {}, text), form);
  return given === "given";
}

/** Say what became of something; it goes by itself, what has failed stays longer. */
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
