// The list of threads, newest first, with the number of threads in each status and a filter.

import { fetchJson, post, save } from "./api.js";
import { Component, html } from "./html.js";
import { Action } from "./loaded.js";
import { toOperate, toStart, toThread, toWaiting } from "./routes.js";
import { ago, moment, STATUS } from "./words.js";

export function Threads({ model }) {
  const { threads, cursor, isLoaded, current, route, waiting } = model.state;
  const { filter } = route;
  const isFiltered = Object.values(filter).some(Boolean);
  const here = (view) => (route.view === view ? "page" : null);
  return html`<nav class="threads" id="threads" aria-label="Threads">
    <a class="new" href=${toStart(filter)} aria-current=${here("start")} onClick=${() => model.change({ isDrawerOpen: false })}>New thread</a>
    <div class="places">
      <a href=${toWaiting(filter)} aria-current=${here("waiting")}>Waiting for you ${waiting > 0 && html`<span class="badge">${waiting}</span>`}</a>
      <a href=${toOperate("storage", filter)} aria-current=${here("operate")}>Operate</a>
    </div>
    <${Search} model=${model} />
    <${Filter} model=${model} />
    ${threads.length > 0 && html`<${Chosen} model=${model} />`}
    ${isLoaded && !threads.length && html`<p class="empty">${isFiltered ? "No thread matches this filter." : "Threads you start appear here."}</p>`}
    <ul>
      ${threads.map((thread) => html`<li key=${thread.id}><${Row} model=${model} thread=${thread} filter=${filter} isOpen=${thread.id === current?.id} /></li>`)}
    </ul>
    ${cursor && html`<button class="quiet" onClick=${() => model.loadMoreThreads()}>Show more</button>`}
  </nav>`;
}

// Searches while the user writes; the address gets the words once they rest.
const REST = 250;

function Search({ model }) {
  const { route, threads, isLoaded } = model.state;
  return html`<div class="search" role="search">
    <${Written} type="search" id="search" aria-label="Search in messages and names" placeholder="Search messages" maxlength="500" value=${route.filter.q} rest=${REST} save=${(q) => model.filter({ q })} />
    ${route.filter.q && isLoaded && html`<span class="hint" role="status">${threads.length === 1 ? "1 thread" : `${threads.length} threads`} with these words, the most recently active first</span>`}
  </div>`;
}

// A field of the filter. The address gets its text at the end, or after a rest; until then no paint takes a letter away.
class Written extends Component {
  state = { text: this.props.value };
  #timer = null;

  // The address may change without the field: by a link, or the way back.
  componentDidUpdate({ value: before }) {
    const { value } = this.props;
    if (before !== value && this.#timer === null && this.state.text.trim() !== value) this.setState({ text: value });
  }

  #save(text) {
    clearTimeout(this.#timer);
    this.#timer = null;
    if (text.trim() !== this.props.value) this.props.save(text.trim());
  }

  #write(text) {
    this.setState({ text });
    clearTimeout(this.#timer);
    const { rest } = this.props;
    if (rest) this.#timer = setTimeout(() => this.#save(text), rest);
  }

  render({ value: _, rest: __, save: ___, ...others }, { text }) {
    return html`<input ...${others} value=${text} onInput=${(event) => this.#write(event.target.value)} onChange=${(event) => this.#save(event.target.value)} />`;
  }
}

function Filter({ model }) {
  const { route, counts, graphs } = model.state;
  const { filter } = route;
  const shown = Object.keys(STATUS).filter((status) => counts[status] || filter.status === status);
  if (!shown.length && !Object.values(filter).some(Boolean)) return null;
  return html`<div class="filter" role="group" aria-label="Filter the list">
    <div class="chips">
      ${shown.map((status) => html`<button class="chip status ${status}" key=${status} aria-pressed=${filter.status === status}
        onClick=${() => model.filter({ status: filter.status === status ? "" : status })}>${STATUS[status]} ${counts[status] ?? 0}</button>`)}
    </div>
    ${graphs.length > 1 && html`<select aria-label="Threads of this graph" value=${filter.graph} onChange=${(event) => model.filter({ graph: event.target.value })}>
      <option value="">All graphs</option>
      ${graphs.map(({ name }) => html`<option key=${name} value=${name} selected=${name === filter.graph}>${name}</option>`)}
    </select>`}
    <${More} model=${model} filter=${filter} />
  </div>`;
}

const TIMES = { "": "At any time", hour: "Active in the last hour", day: "Active in the last day", week: "Active in the last week", month: "Active in the last month" };
const ORDERS = { "": "Newest first", activity: "Recently active first" };

function More({ model, filter }) {
  const choice = (label, name, options) => html`<select aria-label=${label} value=${filter[name]} onChange=${(event) => model.filter({ [name]: event.target.value })}>
    ${Object.entries(options).map(([value, text]) => html`<option key=${value} value=${value} selected=${value === filter[name]}>${text}</option>`)}
  </select>`;
  return html`<details class="more" open=${Boolean(filter.since || filter.sort || filter.user || filter.tenant)}>
    <summary>Time, user, order</summary>
    ${choice("Time of the last activity", "since", TIMES)}
    ${choice("Order", "sort", ORDERS)}
    ${model.state.me?.scopes.includes("operator") && html`<${Written} aria-label="Threads of this tenant" placeholder="Tenant, * for all" maxlength="64" value=${filter.tenant} save=${(tenant) => model.filter({ tenant })} />`}
    ${model.state.me?.user === "" && html`<${Written} aria-label="Threads of this user" placeholder="User" maxlength="256" value=${filter.user} save=${(user) => model.filter({ user })} />`}
  </details>`;
}

// Several threads at once: stopped, exported, or put in the trash, from where they can be restored.
function Chosen({ model }) {
  const { chosen, threads } = model.state;
  if (!chosen) return html`<button class="quiet" onClick=${() => model.choose(new Set())}>Select threads</button>`;
  const path = (id) => `api/threads/${encodeURIComponent(id)}`;
  const all = (act) => () => model.actOnChosen(act);
  const disabled = !chosen.size;
  return html`<div class="chosen-tools" role="group" aria-label="Selected threads">
    <span role="status">${chosen.size} selected</span>
    <button class="quiet" onClick=${() => model.choose(new Set(threads.map(({ id }) => id)))}>All shown</button>
    <button class="quiet" onClick=${() => model.choose(null)}>Cancel</button>
    <${Action} model=${model} disabled=${disabled} act=${all((id) => post(`${model.path(id)}/stop`))}>Stop<//>
    <${Action} model=${model} disabled=${disabled} act=${all((id) => save(`${path(id)}/export`, `thread-${id}.zip`))}>Export<//>
    <${Action} model=${model} look="danger" disabled=${disabled} sure=${`Put ${chosen.size} threads in the trash? They can be restored for seven days.`}
      act=${all((id) => fetchJson(`${path(id)}?soft=true`, { method: "DELETE" }))}>Delete<//>
  </div>`;
}

function Mark({ model, thread }) {
  const { chosen } = model.state;
  const mark = (event) => {
    const marked = new Set(chosen);
    marked[event.target.checked ? "add" : "delete"](thread.id);
    model.choose(marked);
  };
  return html`<input type="checkbox" aria-label=${`Select ${thread.name || "Untitled"}`} checked=${chosen.has(thread.id)} onChange=${mark} />`;
}

function Row({ model, thread, filter, isOpen }) {
  return html`${model.state.chosen && html`<${Mark} model=${model} thread=${thread} />`}<a class="thread" href=${toThread(thread.id, filter)} aria-current=${isOpen ? "page" : null}>
    <span class="name" dir="auto">${thread.name || "Untitled"}</span>
    <span class="about">
      <${Status} status=${thread.status} />
      <span>${thread.graph}${filter.tenant && ` · ${thread.tenant}`}</span>
      <time datetime=${thread.lastActiveAt} title=${moment(thread.lastActiveAt)}>${ago(thread.lastActiveAt)}</time>
    </span>
    ${filter.q && thread.match && thread.match.role !== "name" && html`<span class="match" dir="auto">${thread.match.text}</span>`}
  </a>`;
}

export function Status({ status }) {
  return html`<span class="status ${status}">${STATUS[status] ?? status}</span>`;
}
