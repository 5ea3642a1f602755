// Assistants: their configuration, versions, the difference between two, and edits.

import { ask, fetchJson, post } from "./api.js";
import { Component, html } from "./html.js";
import { Action, Loaded } from "./loaded.js";
import { Difference } from "./state.js";
import { Json, Table, When } from "./table.js";
import { exactly } from "./words.js";

const PAGE = 100;
// What a version is made of.
const PARTS = ["name", "description", "config", "context", "metadata"];

function content(assistant) {
  return Object.fromEntries(PARTS.filter((part) => assistant[part] != null).map((part) => [part, assistant[part]]));
}

export class Assistants extends Component {
  state = { chosen: "", isNew: false };

  render({ model }, { chosen, isNew }) {
    const open = (id) => this.setState({ chosen: id, isNew: false });
    return html`<${Loaded} model=${model} load=${() => post("assistants/search", { limit: PAGE })}>
      ${(found, again) => {
        const one = found.find(({ assistant_id: id }) => id === chosen);
        const saved = (made) => {
          again();
          open(made.assistant_id);
        };
        if (one) return html`<${Assistant} key=${one.assistant_id} model=${model} assistant=${one} again=${again} back=${() => open("")} />`;
        if (isNew) return html`<${Editor} model=${model} graphs=${model.state.graphs.map(({ name }) => name)} text=${exactly({ name: "", config: {}, context: {}, metadata: {} })} save=${(body, graph) => post("assistants", { ...body, graph_id: graph })} done=${saved} cancel=${() => open("")} />`;
        return html`<div class="buttons"><button onClick=${() => this.setState({ isNew: true })}>New assistant</button></div>
          <${Table} label="Assistants" head=${["Name", "Graph", "Version", "Changed", "Configuration", ""]} rows=${found.map((each) => [
            each.name, each.graph_id, each.version, html`<${When} at=${each.updated_at} />`, html`<${Json} value=${{ config: each.config, context: each.context, metadata: each.metadata }} />`,
            html`<button aria-label=${`Open ${each.name}`} onClick=${() => open(each.assistant_id)}>Open</button>`,
          ])} />`;
      }}
    <//>`;
  }
}

class Assistant extends Component {
  state = { isEdited: false, old: null, now: null };

  render({ model, assistant, again, back }, { isEdited, old, now }) {
    const path = `assistants/${assistant.assistant_id}`;
    const isMade = assistant.metadata?.created_by !== "system";
    const remove = async () => {
      await ask(path, { method: "DELETE" });
      back();
      again();
    };
    const save = (body) => fetchJson(path, { method: "PATCH", json: body });
    const saved = () => {
      this.setState({ isEdited: false });
      again();
    };
    return html`<section><h2>${assistant.name} <span class="facts">${assistant.graph_id} · version ${assistant.version}</span></h2>
      <div class="buttons"><button onClick=${back}>All assistants</button>
        ${isMade && html`<button onClick=${() => this.setState({ isEdited: true })}>Edit</button>
        <${Action} model=${model} look="danger" sure=${`Delete ${assistant.name} with all its versions?`} act=${remove}>Delete<//>`}</div>
      ${isEdited ? html`<${Editor} model=${model} text=${exactly(content(assistant))} save=${save} done=${saved} cancel=${() => this.setState({ isEdited: false })} />` : html`<pre tabindex="0">${exactly(content(assistant))}</pre>`}
    </section>
    ${isMade && html`<section><h2>Versions</h2>
      <${Loaded} key=${assistant.version + assistant.updated_at} model=${model} load=${() => post(`${path}/versions`, { limit: PAGE })}>
        ${(versions) => {
          const pick = (version) => versions.find((one) => one.version === Number(version));
          const [before, after] = [pick(old ?? versions[1]?.version ?? versions[0].version), pick(now ?? versions[0].version)];
          const choice = (label, chosen, name) => html`<label>${label} <select value=${chosen.version} onChange=${(event) => this.setState({ [name]: event.target.value })}>
            ${versions.map(({ version }) => html`<option key=${version} value=${version} selected=${version === chosen.version}>${version}</option>`)}</select></label>`;
          return html`
            <${Table} label="Versions" head=${["Version", "Created", "Configuration", ""]} rows=${versions.map((one) => [
              one.version, html`<${When} at=${one.created_at} />`, html`<${Json} value=${content(one)} />`,
              one.version === assistant.version ? "in use" : html`<${Action} model=${model} label=${`Use version ${one.version}`} act=${() => post(`${path}/latest`, { version: one.version }).then(again)}>Use this version<//>`,
            ])} />
            ${versions.length > 1 && html`<div class="bar-of-tools">${choice("Compare", before, "old")} ${choice("with", after, "now")}</div>
              <${Difference} old=${content(before)} now=${content(after)} />`}`;
        }}
      <//></section>`}`;
  }
}

class Editor extends Component {
  state = { text: this.props.text, graph: this.props.graphs?.[0] ?? "" };

  render({ model, graphs, save, done, cancel }, { text, graph }) {
    return html`${graphs && html`<label class="field"><span>Graph</span><select value=${graph} onChange=${(event) => this.setState({ graph: event.target.value })}>
        ${graphs.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}</select></label>`}
      <label class="field"><span>Assistant as JSON</span>
        <textarea class="code" rows="14" spellcheck=${false} value=${text} onInput=${(event) => this.setState({ text: event.target.value })}></textarea></label>
      <div class="buttons"><${Action} model=${model} look="main" act=${async () => done(await save(JSON.parse(text), graph))}>Save<//> <button onClick=${cancel}>Cancel</button></div>`;
  }
}
