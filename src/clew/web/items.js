// The store: items by namespace, with search, edits and deletion.

import { ask, post } from "./api.js";
import { Component, html } from "./html.js";
import { Action, Loaded } from "./loaded.js";
import { Json, Table, When } from "./table.js";
import { exactly } from "./words.js";

const PAGE = 100;
const NAMESPACES = 200;

export class Items extends Component {
  state = { prefix: "", query: "", edited: null };

  // A namespace whose last labels are still being written finds nothing wrong: it finds what begins so far.
  get labels() {
    return this.state.prefix.split(".").filter(Boolean);
  }

  render({ model }, { prefix, query, edited }) {
    const load = () => post("store/items/search", { namespace_prefix: this.labels, limit: PAGE, refresh_ttl: false, ...(query && { query }) });
    return html`<div class="bar-of-tools">
        <label>Namespace <input value=${prefix} placeholder="all" onInput=${(event) => this.setState({ prefix: event.target.value })} /></label>
        <label>Search <input type="search" value=${query} placeholder="by meaning, if the store has an index" onInput=${(event) => this.setState({ query: event.target.value })} /></label>
        <button onClick=${() => this.setState({ edited: { namespace: this.labels.join("."), key: "", text: "{}", isNew: true } })}>New item</button>
      </div>
      ${edited && this.#editor(model, edited)}
      <${Loaded} key=${`names/${this.saves ?? 0}`} model=${model} load=${() => post("store/namespaces", { limit: NAMESPACES })}>
        ${({ namespaces }) => namespaces.length > 0 && html`<ul class="chips" aria-label="Namespaces">${namespaces.map((labels) => labels.join(".")).map((name) => html`<li key=${name}>
          <button class="chip status" aria-pressed=${name === prefix} onClick=${() => this.setState({ prefix: name === prefix ? "" : name })}>${name}</button></li>`)}</ul>`}
      <//>
      <${Loaded} key=${`${prefix}/${query}/${this.saves ?? 0}`} model=${model} load=${load}>
        ${({ items }, again) => (items.length ? html`<${Table} label="Items" head=${["Namespace", "Key", "Changed", "Value", "", ""]} rows=${items.map((item) => this.#row(model, item, again))} />` : html`<p class="empty">No item in this namespace.</p>`)}
      <//>`;
  }

  #row(model, item, again) {
    const remove = async () => {
      await ask("store/items", { method: "DELETE", json: { namespace: item.namespace, key: item.key } });
      again();
    };
    const edit = () => this.setState({ edited: { namespace: item.namespace.join("."), key: item.key, text: exactly(item.value), labels: item.namespace } });
    return [
      item.namespace.join("."), item.key, html`<${When} at=${item.updated_at} />`, html`<${Json} value=${item.value} />`,
      html`<button aria-label=${`Edit ${item.key}`} onClick=${edit}>Edit</button>`,
      html`<${Action} model=${model} label=${`Delete ${item.key}`} sure=${`Delete ${item.key}?`} act=${remove}>Delete<//>`,
    ];
  }

  #editor(model, edited) {
    const write = (field) => (event) => this.setState({ edited: { ...edited, [field]: event.target.value } });
    const save = async () => {
      const namespace = edited.labels ?? edited.namespace.split(".").filter(Boolean);
      await ask("store/items", { method: "PUT", json: { namespace, key: edited.key, value: JSON.parse(edited.text) } });
      this.saves = (this.saves ?? 0) + 1;
      this.setState({ edited: null });
    };
    return html`<section><h2>${edited.isNew ? "New item" : `${edited.namespace} / ${edited.key}`}</h2>
      ${edited.isNew && html`<div class="bar-of-tools">
        <label>Its namespace <input value=${edited.namespace} placeholder="users.ann" onInput=${write("namespace")} /></label>
        <label>Key <input value=${edited.key} onInput=${write("key")} /></label></div>`}
      <label class="field"><span>Value as JSON</span><textarea class="code" rows="8" spellcheck=${false} value=${edited.text} onInput=${write("text")}></textarea></label>
      <div class="buttons"><${Action} model=${model} look="main" disabled=${!edited.key || !edited.namespace} act=${save}>Save<//> <button onClick=${() => this.setState({ edited: null })}>Cancel</button></div>
    </section>`;
  }
}
