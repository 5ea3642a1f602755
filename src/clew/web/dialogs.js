// The two questions this page asks itself: for a key, and whether something shall really go.

import { Component, createRef, html } from "./html.js";

class Dialog extends Component {
  #dialog = createRef();

  componentDidMount() {
    this.#dialog.current.showModal();
  }

  render({ label, onClose, children }) {
    return html`<dialog ref=${this.#dialog} aria-label=${label} onClose=${onClose}>${children}</dialog>`;
  }
}

export function DeleteDialog({ model, thread }) {
  const keep = () => model.confirmDeletion(null);
  return html`<${Dialog} label="Delete this thread" onClose=${keep}>
    <h2>Delete “${thread.name || "Untitled"}”?</h2>
    <p>Its messages and documents go with it, for good.</p>
    <div class="buttons">
      <button autofocus onClick=${keep}>Keep it</button>
      <button class="danger" onClick=${() => model.delete(thread)}>Delete</button>
    </div>
  <//>`;
}

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
      <p role="status">${model.state.key === "wrong" ? "The server does not take this key." : "This server asks for a key."} It is kept in this tab only.</p>
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
