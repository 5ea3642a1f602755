// The raw event log of a thread, newest page first, as the API has it.

import { fetchJson } from "./api.js";
import { Component, html } from "./html.js";
import { timeWithSeconds } from "./words.js";

const PAGE = 200;

export class EventLog extends Component {
  state = { events: [], isFirst: false, problem: "", filter: "", copied: "" };

  componentDidMount() {
    this.#load();
  }

  // Events that came since are read when the thread has them.
  componentDidUpdate() {
    const { timeline } = this.props.current;
    const last = this.state.events.at(-1)?.seq ?? 0;
    if (last && timeline.last > last && !this.#isLoading) this.#load({ after: last });
  }

  #isLoading = false;

  async #load({ before, after } = {}) {
    this.#isLoading = true;
    const { model, current } = this.props;
    const range = before ? `&before=${before}` : after ? `&after=${after}` : "";
    try {
      const { events } = await fetchJson(`api/threads/${encodeURIComponent(current.id)}/events?limit=${PAGE}${range}`);
      const known = this.state.events;
      const all = before ? [...events, ...known] : [...known, ...events.filter(({ seq }) => !known.length || seq > known.at(-1).seq)];
      this.setState({ events: all, isFirst: (all[0]?.seq ?? 1) === 1, problem: "" });
    } catch (error) {
      model.noteRefusal(error);
      this.setState({ problem: error.message });
    } finally {
      this.#isLoading = false;
    }
  }

  async #copy(event) {
    await navigator.clipboard.writeText(JSON.stringify(event, null, 2));
    this.setState({ copied: event.id });
  }

  render(_, { events, isFirst, problem, filter, copied }) {
    const types = [...new Set(events.map(({ type }) => type))].sort();
    const shown = events.filter(({ type }) => !filter || type === filter);
    return html`<div class="panel">
      <div class="bar-of-tools">
        <label>Type <select value=${filter} onChange=${(event) => this.setState({ filter: event.target.value })}>
          <option value="">All</option>${types.map((type) => html`<option key=${type} value=${type}>${type}</option>`)}
        </select></label>
      </div>
      ${problem && html`<p class="problem" role="alert">${problem}</p>`}
      ${events.length > 0 && !isFirst && html`<button class="quiet" onClick=${() => this.#load({ before: events[0].seq })}>Show earlier events</button>`}
      <ol class="events">
        ${shown.map((event) => html`<li key=${event.seq}>
          <details>
            <summary><span class="seq">${event.seq}</span><span class="type">${event.type}</span><time datetime=${event.at}>${timeWithSeconds(event.at)}</time></summary>
            <pre>${JSON.stringify(event.content, null, 2)}</pre>
            <button class="quiet" onClick=${() => this.#copy(event)}>${copied === event.id ? "Copied" : "Copy"}</button>
          </details>
        </li>`)}
      </ol>
    </div>`;
  }
}
