// The page: the list of threads on one side, and on the other the one that is open, or a new one.

import { Composer } from "./composer.js";
import { Conversation } from "./conversation.js";
import { DeleteDialog, KeyDialog, RedactDialog } from "./dialogs.js";
import { html, render } from "./html.js";
import { Model } from "./model.js";
import { Threads } from "./threads.js";

function App({ model }) {
  const { current, deleting, redacting, key, isDrawerOpen } = model.state;
  return html`
    <a class="skip" href="#main" onClick=${skip}>Skip to the conversation</a>
    <aside class=${isDrawerOpen ? "open" : ""} onKeyDown=${(event) => event.key === "Escape" && model.change({ isDrawerOpen: false })}>
      <div class="brand"><img src="web/icon.svg" alt="" width="28" height="28" />Clew</div>
      <${Threads} model=${model} />
      ${key === "given" && html`<button class="quiet" onClick=${() => model.forgetKey()}>Forget the key</button>`}
      ${key === "withheld" && html`<button onClick=${() => model.askForKey()}>Give a key</button>`}
    </aside>
    ${isDrawerOpen && html`<button class="veil" aria-label="Close the list" onClick=${() => model.change({ isDrawerOpen: false })}></button>`}
    <main id="main" tabindex="-1">
      ${current ? html`<${Conversation} model=${model} current=${current} />` : html`<${Start} model=${model} />`}
    </main>
    ${deleting && html`<${DeleteDialog} key=${deleting} model=${model} thread=${deleting.thread} />`}
    ${redacting && html`<${RedactDialog} key=${redacting} model=${model} what=${redacting} />`}
    ${model.isLockedOut && key !== "withheld" && html`<${KeyDialog} model=${model} />`}`;
}

function Start({ model }) {
  return html`<header class="head only-narrow">
      <button class="quiet drawer" aria-controls="threads" aria-expanded=${model.state.isDrawerOpen} onClick=${() => model.change({ isDrawerOpen: true })}>Threads</button>
    </header>
    <div class="start">
      <h1>What should I work on?</h1>
      <p>Describe the task and add its documents. You can close this page: the work continues, and you find it here when you return.</p>
      <${Composer} model=${model} place="" label="Describe the task" isNew />
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
  document.title = name ? `${name} · Clew` : "Clew";
  render(html`<${App} model=${model} />`, place);
});
model.start();
