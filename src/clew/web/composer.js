// Where one writes: a prompt, files, and for a new thread the graph and what that needs.

import { fetchJson } from "./api.js";
import { Fields } from "./form.js";
import { Component, createRef, html } from "./html.js";
import { Loaded } from "./loaded.js";
import { size } from "./words.js";

// What graphs need beside a prompt: its label, and what it looks like.
const FIELDS = {
  issueId: ["Issue", "SHOP-7"],
  worktreePath: ["Worktree", "/home/ann/code/shop"],
};
// How the input of a graph is written.
const MODES = { message: "Message", form: "Form", json: "JSON" };

export class Composer extends Component {
  state = { isOver: false };
  #field = createRef();
  #inside = 0; // a drag enters and leaves every element it passes

  componentDidMount() {
    for (const [name, act] of this.#drags) addEventListener(name, act);
    this.#takeFocus();
  }

  componentDidUpdate(before) {
    if (before.place !== this.props.place) this.#takeFocus();
  }

  // Of an open thread only where nothing else has it: who goes through the list by keys is not stopped by a field.
  #takeFocus() {
    if (this.props.isNew || document.activeElement === document.body) this.#field.current?.focus();
  }

  componentWillUnmount() {
    for (const [name, act] of this.#drags) removeEventListener(name, act);
  }

  // Files may be dropped anywhere on the page: beside the field the browser would open them instead.
  #drags = [
    ["dragenter", (event) => hasFiles(event) && this.setState({ isOver: ++this.#inside > 0 })],
    ["dragleave", (event) => hasFiles(event) && this.setState({ isOver: --this.#inside > 0 })],
    ["dragover", (event) => hasFiles(event) && event.preventDefault()],
    ["drop", (event) => this.#drop(event)],
  ];

  #drop(event) {
    this.#inside = 0;
    this.setState({ isOver: false });
    if (!hasFiles(event)) return;
    event.preventDefault();
    this.props.model.attach(event.dataTransfer.files);
  }

  #paste(event) {
    if (!event.clipboardData.files.length) return;
    event.preventDefault();
    this.props.model.attach(event.clipboardData.files);
  }

  #press(event) {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    this.props.model.send();
  }

  #choose(event) {
    this.props.model.attach(event.target.files);
    event.target.value = ""; // or the same file could not be chosen again
  }

  render({ model, label, isNew }, { isOver }) {
    const { draft, state } = model;
    const { uploads, isSending } = draft;
    const mode = isNew ? draft.mode : "message";
    const submit = (event) => {
      event.preventDefault();
      model.send();
    };
    return html`<form class="composer ${isOver ? "over" : ""}" onSubmit=${submit}>
      ${mode === "message" ? this.#message(model, label) : html`<${Input} key=${state.graph} model=${model} mode=${mode} />`}
      ${isNew && mode === "message" && (state.fields[state.graph] ?? []).map((name) => html`<label class="field" key=${name}>${FIELDS[name]?.[0] ?? name}
        <input required placeholder=${FIELDS[name]?.[1] ?? ""} value=${draft.fields[name] ?? ""} spellcheck=${false}
          onInput=${(event) => model.fill(name, event.target.value)} />
      </label>`)}
      ${uploads.all.length > 0 && html`<ul class="files" aria-label="Files to send">
        ${uploads.all.map((upload) => html`<li><${Attached} model=${model} upload=${upload} /></li>`)}
      </ul>`}
      ${draft.problem && html`<p class="problem" role="alert">${draft.problem}</p>`}
      <div class="tools">
        ${mode === "message" && html`<label class="button">Add files
          <input class="hidden" type="file" multiple onChange=${(event) => this.#choose(event)} />
        </label>
        <span class="hint">${isOver ? "Drop them here" : "or drop them anywhere"}</span>`}
        ${isNew && html`<${Choices} model=${model} mode=${mode} />`}
        <button class="main" disabled=${isSending || !model.canSend}>${isSending ? "Sending" : "Send"}</button>
      </div>
    </form>`;
  }

  #message(model, label) {
    return html`<textarea ref=${this.#field} rows="2" dir="auto" aria-label=${label} placeholder=${label} value=${model.draft.text}
        onInput=${(event) => model.write(event.target.value)}
        onKeyDown=${(event) => this.#press(event)} onPaste=${(event) => this.#paste(event)}></textarea>`;
  }
}

// What a new thread is started with: the graph, its assistant and profile, and how its input is written.
function Choices({ model, mode }) {
  const { state, draft } = model;
  const graph = state.graphs.find(({ name }) => name === state.graph);
  const choose = (part) => Object.assign(draft, part, { once: "", problem: "" }) && model.paint();
  const [own, others] = [true, false].map((isOwn) => state.graphs.filter((one) => one.isOwn === isOwn));
  const options = (graphs) => graphs.map(({ name }) => html`<option key=${name} value=${name} selected=${name === state.graph}>${name}</option>`);
  return html`
    ${state.graphs.length > 1 && html`<label class="graph">Graph
      <select value=${state.graph} onChange=${(event) => model.chooseGraph(event.target.value)}>
        ${own.length > 0 && others.length > 0 ? html`<optgroup label="Yours">${options(own)}</optgroup><optgroup label="Part of Clew">${options(others)}</optgroup>` : options(state.graphs)}
      </select>
    </label>`}
    ${state.assistants.length > 1 && html`<label class="graph">Assistant
      <select value=${draft.assistant} onChange=${(event) => choose({ assistant: event.target.value })}>
        <option value="">${state.graph}</option>
        ${state.assistants.filter((one) => one.metadata?.created_by !== "system").map((one) => html`<option key=${one.assistant_id} value=${one.assistant_id} selected=${one.assistant_id === draft.assistant}>${one.name}, version ${one.version}</option>`)}
      </select>
    </label>`}
    ${graph?.usesProfiles && state.profiles.length > 1 && html`<label class="graph">Profile
      <select value=${draft.profile} onChange=${(event) => choose({ profile: event.target.value })}>
        <option value="">server's choice</option>${state.profiles.map((name) => html`<option key=${name} value=${name} selected=${name === draft.profile}>${name}</option>`)}
      </select>
    </label>`}
    <label class="graph">Input
      <select value=${mode} onChange=${(event) => choose({ mode: event.target.value })}>
        ${Object.entries(MODES).map(([value, text]) => html`<option key=${value} value=${value} selected=${value === mode}>${text}</option>`)}
      </select>
    </label>`;
}

// The input as the graph's schema names it, or as one writes it.
function Input({ model, mode }) {
  const { draft, state } = model;
  const write = (part) => Object.assign(draft, part, { once: "", problem: "" }) && model.paint();
  if (mode === "json") {
    return html`<label class="field"><span>Input as JSON</span>
      <textarea class="code" rows="8" spellcheck=${false} placeholder="{ }" value=${draft.json} onInput=${(event) => write({ json: event.target.value })}></textarea></label>`;
  }
  const load = async () => {
    const { input_schema: schema } = await fetchJson(`assistants/${encodeURIComponent(state.graph)}/schemas`);
    draft.schema = schema;
    return schema;
  };
  return html`<${Loaded} key=${state.graph} model=${model} load=${load}>
    ${(schema) => (Object.keys(schema?.properties ?? {}).length
      ? html`<div class="input-form"><${Fields} schema=${schema} texts=${draft.texts} write=${(name, text) => write({ texts: { ...draft.texts, [name]: text } })} /></div>`
      : html`<p class="empty">This graph does not say what its input is. Write it as JSON.</p>`)}
  <//>`;
}

function Attached({ model, upload }) {
  const state = upload.problem || (upload.id ? size(upload.size) : "uploading");
  return html`<span class="file ${upload.problem ? "failed" : ""}">
    <span class="kind" aria-hidden="true">${(/\.(\w{1,4})\w*$/.exec(upload.name)?.[1] ?? "file")}</span>
    <span class="name">${upload.name}</span>
    <span class="size" role="status">${state}</span>
    <button type="button" class="remove" aria-label=${`Remove ${upload.name}`} onClick=${() => model.detach(upload)}>×</button>
  </span>`;
}

function hasFiles(event) {
  return event.dataTransfer?.types.includes("Files");
}
