// What the server answers to one question: asked when the view opens, again every few seconds, and after a change.

import { Component, html } from "./html.js";
import { backoff } from "./stream.js";

// `load` asks; `every` is in seconds; the child is a function of the answer and of a way to ask again.
export class Loaded extends Component {
  state = { value: undefined, error: null };
  #turn = 0;
  #failures = 0;
  #timer = null;

  componentDidMount() {
    document.addEventListener("visibilitychange", this.#seen);
    this.#ask();
  }

  componentWillUnmount() {
    document.removeEventListener("visibilitychange", this.#seen);
    clearTimeout(this.#timer);
    this.#turn = -1;
  }

  // Who comes back to the page sees what is true now.
  #seen = () => this.props.every && !document.hidden && this.#ask();

  // An answer that comes after a later question was asked is not shown.
  async #ask() {
    const turn = ++this.#turn;
    clearTimeout(this.#timer);
    let wait = (this.props.every ?? 0) * 1000;
    try {
      const value = await this.props.load();
      if (turn !== this.#turn) return;
      this.#failures = 0;
      this.setState({ value, error: null });
    } catch (error) {
      this.props.model.noteRefusal(error);
      if (turn !== this.#turn) return;
      if (error.passes) wait = backoff(this.#failures++);
      this.setState({ error });
    }
    if (wait) this.#askIn(wait);
  }

  // Not while the page is hidden.
  #askIn(wait) {
    this.#timer = setTimeout(() => (document.hidden ? this.#askIn(wait) : this.#ask()), wait);
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
