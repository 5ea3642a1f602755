// Dialogs: the API key, and confirmations of deletions.

import { save } from "./api.js";
import { Component, createRef, html } from "./html.js";
import { Action } from "./loaded.js";
import { excerpt, fileName } from "./words.js";

export class Dialog extends Component {
  #dialog = createRef();
  #isAnswered = false;

  componentDidMount() {
    this.#dialog.current.showModal();
  }

  // Closed, not only taken away, it gives the focus back to where it was.
  componentWillUnmount() {
    this.#isAnswered = true;
    this.#dialog.current.close();
  }

  render({ label, onClose, children }) {
    return html`<dialog ref=${this.#dialog} aria-label=${label} onClose=${() => this.#isAnswered || onClose()}>${children}</dialog>`;
  }
}

export function DeleteDialog({ model, asked }) {
  const { thread } = asked;
  const keep = () => model.leaveDeletion(asked);
  return html`<${Dialog} label="Delete this thread" onClose=${keep}>
    <h2>Delete “${thread.name || "Untitled"}”?</h2>
    <p>This permanently deletes its messages and documents.</p>
    <div class="buttons">
      <${Action} model=${model} act=${() => save(`api/threads/${encodeURIComponent(thread.id)}/export`, `thread-${thread.id}.zip`)}>Export first<//>
      <button autofocus onClick=${keep}>Keep it</button>
      <button class="danger" onClick=${() => model.delete(thread)}>Delete</button>
    </div>
  <//>`;
}

export class RedactDialog extends Component {
  state = { isSending: false, problem: "" };

  async #delete() {
    this.setState({ isSending: true, problem: "" });
    try {
      await this.props.model.redact(this.props.what);
    } catch (error) {
      this.setState({ isSending: false, problem: error.message });
    }
  }

  render({ model, what }, { isSending, problem }) {
    const { message, document } = what;
    const keep = () => model.leaveRedaction(what);
    return html`<${Dialog} label=${document ? "Delete this file" : "Delete this message"} onClose=${keep}>
      <h2>Delete “${document ? fileName(document) : excerpt(message.text)}”?</h2>
      <p>${document ? OF_A_FILE : OF_A_MESSAGE}</p>
      ${problem && html`<p class="problem" role="alert">${problem}</p>`}
      <div class="buttons">
        <button autofocus onClick=${keep}>Keep it</button>
        <button class="danger" disabled=${isSending} onClick=${() => this.#delete()}>${isSending ? "Deleting" : "Delete"}</button>
      </div>
    <//>`;
  }
}

const OF_A_MESSAGE = "The message and its own documents are no longer shown, and later rounds do not use them. Answers to it stay.";
const OF_A_FILE = "The file is no longer shown with this message. Later rounds do not use it, unless another message has it.";

export class KeyDialog extends Component {
  state = { text: "" };

  render({ model }, { text }) {
    const use = (event) => {
      event.preventDefault();
      model.useKey(text.trim());
    };
    const isTried = model.state.key === "tried";
    return html`<${Dialog} label="API key" onClose=${() => model.withholdKey()}>
      <h2>API key</h2>
      <p role="status">${model.state.key === "wrong" ? "The server rejected this key." : "This server needs an API key."} It is kept in this tab only.</p>
      <p class="hint">The operator creates one on the server: <code>clew keys create --name page</code></p>
      <form onSubmit=${use}>
        <label class="field"><span>Key</span>
          <input type="password" autocomplete="off" spellcheck="false" autofocus pattern="\\s*[!-~]+\\s*" value=${text}
            onInput=${(event) => this.setState({ text: event.target.value })} />
        </label>
        <div class="buttons"><button class="main" disabled=${isTried || !text.trim()}>Use it</button></div>
      </form>
    <//>`;
  }
}
