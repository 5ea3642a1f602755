// Waiting for you: the open approvals and questions of all threads.

import { fetchJson } from "./api.js";
import { Component, html } from "./html.js";
import { Loaded } from "./loaded.js";
import { toThread } from "./routes.js";
import { Card } from "./waiting.js";
import { ago, moment } from "./words.js";

const PAGE = 25;
const MOST = 200;

export class Inbox extends Component {
  state = { limit: PAGE };
  #known = new Map(); // the calls of each thread, as of its last event

  render({ model }, { limit }) {
    return html`<header class="head"><h1>Waiting for you</h1></header>
    <div class="reading" tabindex="0" role="region" aria-label="Waiting for you">
      <${Loaded} key=${`${limit}/${model.state.entered}`} model=${model} load=${() => this.#load(limit)} every=${5}>
        ${({ threads, next }, again) => html`
          ${!threads.length && html`<p class="gone">Nothing waits for you.</p>`}
          ${threads.map((one) => html`<${Item} key=${one.thread.id} model=${model} one=${one} again=${again} />`)}
          ${next && limit < MOST && html`<button class="quiet" onClick=${() => this.setState({ limit: Math.min(MOST, limit * 2) })}>Show more</button>`}
          ${next && limit >= MOST && html`<p class="hint">These are the ${MOST} newest. Answered ones make room for the others.</p>`}`}
      <//>
    </div>`;
  }

  async #load(limit) {
    const { threads, next } = await fetchJson(`api/threads?status=blocked&limit=${limit}`);
    const calls = await Promise.all(threads.map((thread) => this.#callsOf(thread)));
    return { threads: threads.map((thread, place) => ({ thread, calls: calls[place] })).filter((one) => one.calls.length), next };
  }

  // Asked for again only when the thread has a new event. One that was answered or deleted meanwhile has none.
  async #callsOf({ id, lastSeq }) {
    const known = this.#known.get(id);
    if (known?.lastSeq === lastSeq) return known.calls;
    try {
      const { toolCalls: calls } = await fetchJson(`api/workflows/${encodeURIComponent(id)}/tool-calls`);
      this.#known.set(id, { lastSeq, calls });
      return calls;
    } catch (error) {
      if (error.status === 401) throw error;
      return [];
    }
  }
}

function Item({ model, one: { thread, calls }, again }) {
  const { filter } = model.state.route;
  return html`<article class="inbox" aria-label=${thread.name || "Untitled"}>
    <h2><a href=${toThread(thread.id, filter)} dir="auto">${thread.name || "Untitled"}</a>
      <span class="facts">${thread.graph} · <time datetime=${thread.lastActiveAt} title=${moment(thread.lastActiveAt)}>${ago(thread.lastActiveAt)}</time></span></h2>
    ${calls.map((call) => html`<${Card} key=${call.id} model=${model} call=${call} onAnswered=${again} />`)}
  </article>`;
}
