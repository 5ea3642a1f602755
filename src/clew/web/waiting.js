// Pending calls of a thread: approvals with the exact arguments, questions, calls in doubt.

import { Component, html } from "./html.js";
import { ago, exactly, moment } from "./words.js";

const ASKS = ["message", "question", "prompt", "text", "description", "title", "plan"];

export function Waiting({ model, calls }) {
  return calls.map((call) => html`<${Card} key=${call.id} model=${model} call=${call} />`);
}

class Card extends Component {
  state = { text: "", isJson: false, isSending: false, problem: "" };

  render({ call }, { isSending, problem }) {
    const id = `call-${call.id}`;
    return html`<section class="waiting" aria-labelledby=${id}>
      <h3 id=${id}>${title(call)}</h3>
      ${call.deadline && html`<p class="hint">
        Answer <time datetime=${call.deadline} title=${moment(call.deadline)}>${ago(call.deadline)}</time>; after that the thread continues without an answer.
      </p>`}
      <${Asked} call=${call} />
      <form onSubmit=${(event) => event.preventDefault()}>
        <fieldset disabled=${isSending}>${this.#controls(call)}</fieldset>
      </form>
      ${problem && html`<p class="problem" role="alert">${problem}</p>`}
    </section>`;
  }

  #controls(call) {
    if (call.kind === "approval") return this.#approval();
    if (call.kind === "in_doubt") return this.#doubt();
    return this.#question(call);
  }

  #approval() {
    const feedback = this.state.text.trim();
    return html`
      ${this.#text("Comment, if any")}
      <div class="buttons">
        <button class="main" onClick=${() => this.#send({ approved: true, feedback })}>Approve</button>
        <button onClick=${() => this.#send({ approved: false, feedback })}>Reject</button>
      </div>`;
  }

  #doubt() {
    return html`
      ${this.#text("Its result, if it happened")}
      <div class="buttons">
        <button class="main" disabled=${!this.state.text.trim()} onClick=${() => this.#reply()}>It happened</button>
        <button onClick=${() => this.#send({ retry: true })}>It did not happen: run it again</button>
      </div>`;
  }

  #question(call) {
    const choices = call.prompt?.options ?? call.prompt?.choices ?? [];
    const offered = Array.isArray(choices) ? choices.filter((one) => typeof one === "string") : [];
    return html`
      ${offered.length > 0 && html`<div class="buttons">
        ${offered.map((choice) => html`<button onClick=${() => this.#send({ answer: choice })}>${choice}</button>`)}
      </div>`}
      ${this.#text("Your answer")}
      <div class="buttons">
        <button class="main" disabled=${!this.state.text.trim()} onClick=${() => this.#reply()}>Answer</button>
        <label class="check">
          <input type="checkbox" checked=${this.state.isJson} onChange=${(event) => this.setState({ isJson: event.target.checked })} />
          as JSON
        </label>
      </div>`;
  }

  #text(label) {
    return html`<label class="field"><span>${label}</span>
      <textarea rows="2" dir="auto" value=${this.state.text} onInput=${(event) => this.setState({ text: event.target.value })}></textarea>
    </label>`;
  }

  #reply() {
    const { text, isJson } = this.state;
    try {
      this.#send({ answer: isJson ? JSON.parse(text) : text });
    } catch (error) {
      this.setState({ problem: `This is not JSON: ${error.message}` });
    }
  }

  async #send(body) {
    this.setState({ isSending: true, problem: "" });
    try {
      await this.props.model.answer(this.props.call, body);
      this.setState({ isSending: false, text: "" }); // the next question of a node may have the same id
    } catch (error) {
      this.setState({ isSending: false, problem: error.message });
    }
  }
}

function Asked({ call: { name, args, prompt } }) {
  const text = question(prompt);
  return html`
    ${text && html`<p class="question" dir="auto">${text}</p>`}
    ${name && html`<figure><figcaption>Exact arguments</figcaption><pre>${exactly(args)}</pre></figure>`}
    ${!name && !text && prompt !== null && html`<pre>${exactly(prompt)}</pre>`}
    ${!name && text && rest(prompt) && html`<details class="value"><summary>The whole question</summary><pre>${exactly(prompt)}</pre></details>`}`;
}

function title({ kind, name }) {
  if (kind === "approval") return name ? `Allow the tool ${name} to run?` : "Your approval is needed";
  if (kind === "in_doubt") return `Did ${name || "this"} happen?`;
  if (kind === "client_exec") return `${name || "A tool"} must be run by a client`;
  return "A question for you";
}

function question(prompt) {
  if (typeof prompt === "string") return prompt;
  const field = ASKS.find((ask) => typeof prompt?.[ask] === "string" && prompt[ask]);
  return field ? prompt[field] : "";
}

function rest(prompt) {
  return typeof prompt === "object" && Object.keys(prompt).some((name) => name !== "kind" && !ASKS.includes(name));
}
