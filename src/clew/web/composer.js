// Where one writes: a prompt, files, and for a new thread the graph and what that needs.

import { Component, createRef, html } from "./html.js";
import { size } from "./words.js";

// What graphs need beside a prompt: its label, and what it looks like.
const FIELDS = {
  issueId: ["Issue", "SHOP-7"],
  worktreePath: ["Worktree", "/home/ann/code/shop"],
};

export class Composer extends Component {
  state = { isOver: false };
  #field = createRef();
  #inside = 0; // a drag enters and leaves every element it passes

  componentDidMount() {
    for (const [name, act] of this.#drags) addEventListener(name, act);
    this.#field.current.focus();
  }

  componentDidUpdate(before) {
    if (before.place !== this.props.place) this.#field.current.focus();
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
    const { uploads, isSending, text } = draft;
    const submit = (event) => {
      event.preventDefault();
      model.send();
    };
    return html`<form class="composer ${isOver ? "over" : ""}" onSubmit=${submit}>
      <textarea ref=${this.#field} rows="2" dir="auto" aria-label=${label} placeholder=${label} value=${text}
        onInput=${(event) => model.write(event.target.value)}
        onKeyDown=${(event) => this.#press(event)} onPaste=${(event) => this.#paste(event)}></textarea>
      ${isNew && (state.fields[state.graph] ?? []).map((name) => html`<label class="field" key=${name}>${FIELDS[name]?.[0] ?? name}
        <input required placeholder=${FIELDS[name]?.[1] ?? ""} value=${draft.fields[name] ?? ""} spellcheck=${false}
          onInput=${(event) => model.fill(name, event.target.value)} />
      </label>`)}
      ${uploads.all.length > 0 && html`<ul class="files" aria-label="Files to send">
        ${uploads.all.map((upload) => html`<li><${Attached} model=${model} upload=${upload} /></li>`)}
      </ul>`}
      ${draft.problem && html`<p class="problem" role="alert">${draft.problem}</p>`}
      <div class="tools">
        <label class="button">Add files
          <input class="hidden" type="file" multiple onChange=${(event) => this.#choose(event)} />
        </label>
        <span class="hint">${isOver ? "Drop them here" : "or drop them anywhere"}</span>
        ${isNew && state.graphs.length > 1 && html`<label class="graph">Graph
          <select value=${state.graph} onChange=${(event) => model.change({ graph: event.target.value })}>
            ${state.graphs.map((name) => html`<option key=${name} value=${name} selected=${name === state.graph}>${name}</option>`)}
          </select>
        </label>`}
        <button class="main" disabled=${isSending || !text.trim()}>${isSending ? "Sending" : "Send"}</button>
      </div>
    </form>`;
  }
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
