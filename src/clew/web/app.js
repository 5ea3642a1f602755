// The page: the list of threads on one side; on the other an open thread, a new one, the inbox or the operator's view.

import { Composer } from "./composer.js";
import { Conversation, READ_ONLY } from "./conversation.js";
import { DeleteDialog, KeyDialog, RedactDialog } from "./dialogs.js";
import { html, render } from "./html.js";
import { Inbox } from "./inbox.js";
import { Action } from "./loaded.js";
import { Model } from "./model.js";
import { Operate } from "./operate.js";
import { Help, listen } from "./shortcuts.js";
import { Threads } from "./threads.js";
import { plural } from "./words.js";

function App({ model }) {
  const { current, deleting, redacting, key, isDrawerOpen, isHelpOpen, notice } = model.state;
  return html`
    <a class="skip" href="#main" onClick=${skip}>Skip to the conversation</a>
    <aside class=${isDrawerOpen ? "open" : ""} onKeyDown=${(event) => event.key === "Escape" && model.change({ isDrawerOpen: false })}>
      <div class="brand"><img src="web/icon.svg" alt="" width="28" height="28" />Clew</div>
      <${Threads} model=${model} />
      <button class="quiet" onClick=${() => model.change({ isHelpOpen: true })}>Keyboard shortcuts</button>
      ${key === "given" && html`<button class="quiet" onClick=${() => model.forgetKey()}>Forget the key</button>`}
      ${key === "withheld" && html`<button onClick=${() => model.askForKey()}>Give a key</button>`}
    </aside>
    ${isDrawerOpen && html`<button class="veil" aria-label="Close the list" onClick=${() => model.change({ isDrawerOpen: false })}></button>`}
    <main id="main" tabindex="-1">
      <${View} model=${model} current=${current} />
    </main>
    <div class="notice" role="status">${notice && html`<p>${notice} <button class="quiet" onClick=${() => model.notify("")}>Close</button></p>`}</div>
    ${deleting && html`<${DeleteDialog} key=${deleting} model=${model} asked=${deleting} />`}
    ${redacting && html`<${RedactDialog} key=${redacting} model=${model} what=${redacting} />`}
    ${isHelpOpen && html`<${Help} model=${model} />`}
    ${model.isLockedOut && key !== "withheld" && html`<${KeyDialog} model=${model} />`}`;
}

function View({ model, current }) {
  if (current) return html`<${Conversation} model=${model} current=${current} />`;
  const Place = { waiting: Inbox, operate: Operate }[model.state.route.view] ?? Start;
  return html`<${Drawer} model=${model} /><${Place} model=${model} />`;
}

function Drawer({ model }) {
  return html`<header class="head only-narrow">
    <button class="quiet drawer" aria-controls="threads" aria-expanded=${model.state.isDrawerOpen} onClick=${() => model.change({ isDrawerOpen: true })}>Threads</button>
  </header>`;
}

function Start({ model }) {
  return html`
    <div class="start">
      <h1>What should I work on?</h1>
      <p>Describe the task and add its documents. You can close this page: the work continues, and you find it here when you return.</p>
      ${model.may("write") ? html`<${Composer} model=${model} place="" label="Describe the task" isNew /><${Examples} model=${model} />` : html`<p class="hint">${READ_ONLY}</p>`}
      ${model.state.broken.length > 0 && html`<details class="broken"><summary>${plural(model.state.broken.length, "graph")} could not be loaded</summary>
        <dl>${model.state.broken.map(({ name, reason }) => html`<dt>${name}</dt><dd>${reason}</dd>`)}</dl></details>`}
    </div>`;
}

// Prompts to try, with files that come with the page.
const EXAMPLES = [
  { graph: "chat", text: "Summarize the report and chart sales by region as report.docx", files: ["report.pdf", "sales.csv"] },
  { graph: "chat", text: "Make a table of sales by region and month", files: ["sales.csv"] },
  { graph: "interview", text: "Our plan: open a third store in Bremen.", files: [] },
];

function Examples({ model }) {
  const { graphs } = model.state;
  const offered = EXAMPLES.filter(({ graph }) => graphs.some(({ name, isOwn }) => name === graph && !isOwn));
  if (!offered.length || model.draft.text || model.draft.uploads.all.length) return null;
  return html`<div class="examples" role="group" aria-label="Examples">
    <p class="hint">Or try an example:</p>
    ${offered.map((one) => html`<${Action} key=${one.text} model=${model} act=${() => model.tryExample(one)}>${one.text}${one.files.length > 0 && html` <span class="hint">with ${one.files.join(" and ")}</span>`}<//>`)}
  </div>`;
}

// The address names the open thread, so a link into the page must not change it.
function skip(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

const place = document.getElementById("app");
place.replaceChildren();
const model = new Model(() => {
  const name = model.state.current?.thread?.name;
  const { waiting } = model.state;
  document.title = `${waiting ? `(${waiting}) ` : ""}${name ? `${name} · ` : ""}Clew`;
  render(html`<${App} model=${model} />`, place);
});
model.start();
listen(model);
