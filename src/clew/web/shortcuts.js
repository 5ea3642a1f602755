// Keyboard shortcuts. None acts while the user writes, and none decides anything without a question.

import { html } from "./html.js";
import { Dialog } from "./dialogs.js";
import { parse, toStart, toThread, toWaiting } from "./routes.js";

const SHORTCUTS = [
  ["j / k", "Open the next or the previous thread of the list"],
  ["/", "Search in messages and names"],
  ["n", "New thread"],
  ["w", "Waiting for you"],
  ["a", "Approve the first approval on the screen, after a question"],
  ["?", "Show this list"],
];

export function listen(model) {
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) return;
    const act = { j: () => step(model, 1), k: () => step(model, -1), n: () => go(toStart, model), w: () => go(toWaiting, model), a: approve, "/": () => document.getElementById("search").focus(), "?": () => model.change({ isHelpOpen: true }) }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
}

function go(write, model) {
  location.hash = write(model.state.route.filter);
}

function step(model, by) {
  const { threads, route } = model.state;
  const { id: open } = parse(location.hash); // the model hears of a new address a moment later, maybe after the next key
  const place = threads.findIndex(({ id }) => id === open);
  const next = threads[place < 0 ? 0 : place + by];
  if (next) location.hash = toThread(next.id, route.filter, route.tab);
}

function approve() {
  const card = [...document.querySelectorAll(".waiting")].find((one) => one.querySelector("[data-approve]"));
  if (card && confirm(`${card.querySelector("h2").textContent}\n\nApprove?`)) card.querySelector("[data-approve]").click();
}

export function Help({ model }) {
  const close = () => model.change({ isHelpOpen: false });
  return html`<${Dialog} label="Keyboard shortcuts" onClose=${close}>
    <h2>Keyboard shortcuts</h2>
    <dl class="shortcuts">${SHORTCUTS.map(([key, what]) => html`<dt><kbd>${key}</kbd></dt><dd>${what}</dd>`)}</dl>
    <div class="buttons"><button class="main" autofocus onClick=${close}>Close</button></div>
  <//>`;
}
