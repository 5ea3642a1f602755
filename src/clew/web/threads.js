// The list of threads, newest first.

import { html } from "./html.js";
import { ago, moment, STATUS } from "./words.js";

export function Threads({ model }) {
  const { threads, hasMore, isLoaded, current } = model.state;
  return html`<nav class="threads" id="threads" aria-label="Threads">
    <a class="new" href="#/" aria-current=${current ? null : "page"}>New thread</a>
    ${isLoaded && !threads.length && html`<p class="empty">Threads you start appear here.</p>`}
    <ul>
      ${threads.map((thread) => html`<li key=${thread.id}><${Row} thread=${thread} isOpen=${thread.id === current?.id} /></li>`)}
    </ul>
    ${hasMore && html`<button class="quiet" onClick=${() => model.loadThreads(50)}>Show more</button>`}
  </nav>`;
}

function Row({ thread, isOpen }) {
  return html`<a class="thread" href=${`#/threads/${encodeURIComponent(thread.id)}`} aria-current=${isOpen ? "page" : null}>
    <span class="name" dir="auto">${thread.name || "Untitled"}</span>
    <span class="about">
      <${Status} status=${thread.status} />
      <span>${thread.graph}</span>
      <time datetime=${thread.lastActiveAt} title=${moment(thread.lastActiveAt)}>${ago(thread.lastActiveAt)}</time>
    </span>
  </a>`;
}

export function Status({ status }) {
  return html`<span class="status ${status}">${STATUS[status] ?? status}</span>`;
}
