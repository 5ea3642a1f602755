// What the server answers to one question: asked when the view opens, again every few seconds, and after a change.

import { Component, html } from "./html.js";

// `load` asks; `every` is in seconds; the child is a function of the answer and of a way to ask again.
export class Loaded extends Component {
  state = { value: undefined, error: null };
  #turn = 0;
  #timer = null;

  componentDidMount() {
    this.#ask();
    const { every } = this.props;
    if (every) this.#timer = setInterval(() => document.hidden || this.#ask(), every * 1000);
  }

  componentWillUnmount() {
    clearInterval(this.#timer);
    this.#turn = -1;
  }

  // An answer that comes after a later question was asked is not shown.
  async #ask() {
    const turn = ++this.#turn;
    try {
      const value = await this.props.load();
      if (turn === this.#turn) this.setState({ value, error: null });
    } catch (error) {
      this.props.model.noteRefusal(error);
      if (turn === this.#turn) this.setState({ error });
    }
  }

  render({ children }, { value, error }) {
    const again = () => this.#ask();
    const problem = error && html`<p class="problem" role="alert">
      ${error.status === 403 ? "Your key does not allow this." : error.message} ${error.passes && html`<button class="quiet" onClick=${again}>Try again</button>`}
    </p>`;
    if (value === undefined) return problem ?? html`<p class="empty" role="status">Loading</p>`;
    return html`${problem}${[children].flat()[0](value, again)}`;
  }
}

// A button that asks the server to do something, and says beside itself why that failed.
export class Action extends Component {
  state = { isSending: false, problem: "" };

  async #act() {
    const { act, sure, model } = this.props;
    if (sure && !confirm(sure)) return;
    this.setState({ isSending: true, problem: "" });
    try {
      await act();
      this.setState({ isSending: false });
    } catch (error) {
      model.noteRefusal(error);
      this.setState({ isSending: false, problem: error.message });
    }
  }

  render({ children, look = "", label, disabled }, { isSending, problem }) {
    return html`<button class=${look} aria-label=${label} disabled=${isSending || disabled} onClick=${() => this.#act()}>${children}</button>
      ${problem && html`<span class="problem" role="alert">${problem}</span>`}`;
  }
}
