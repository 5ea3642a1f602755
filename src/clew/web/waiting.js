// Pending calls of a thread: approvals with the exact arguments, questions, calls in doubt.

import { fetchJson } from "./api.js";
import { Diff } from "./diff.js";
import { Fields, schemaOf, textsOf, valuesOf } from "./form.js";
import { Component, createRef, html } from "./html.js";
import { Loaded } from "./loaded.js";
import { Markdown } from "./markdown.js";
import { exactly, left, moment, named } from "./words.js";

const NOTHING = new Set();
const ASKS = ["message", "question", "prompt", "text", "description", "title", "plan"];

// `said`: texts that are shown above already.
export function Waiting({ model, calls, said }) {
  return calls.map((call) => html`<${Card} key=${call.id} model=${model} call=${call} said=${said} />`);
}

export class Card extends Component {
  state = { text: "", isJson: false, isSending: false, problem: "" };
  #card = createRef();

  // What is asked is reached with few keys, and takes the focus from nothing that is used.
  componentDidMount() {
    if ([document.body, document.getElementById("main")].includes(document.activeElement)) this.#card.current.focus({ preventScroll: true });
  }

  render({ model, call, said = NOTHING }, { isSending, problem }) {
    const id = `call-${call.workflowId}-${call.id}`;
    return html`<div class="waiting" role="group" aria-labelledby=${id} tabindex="-1" ref=${this.#card}>
      <h2 id=${id}>${title(call)}</h2>
      ${call.deadline && html`<${Deadline} at=${call.deadline} />`}
      ${isReview(call.prompt) || isGate(call) ? null : html`<${Asked} call=${call} />`}
      ${isGate(call) && html`<${Gate} model=${model} call=${call} said=${said} />`}
      <form onSubmit=${(event) => event.preventDefault()}>
        <fieldset disabled=${isSending}>${this.#controls(call)}</fieldset>
      </form>
      ${problem && html`<p class="problem" role="alert">${problem}</p>`}
    </div>`;
  }

  #controls(call) {
    if (!this.props.model.may(call.kind === "approval" || call.kind === "in_doubt" ? "approve" : "write")) return html`<p class="hint">Your key may see this but not answer it: it lacks the scope ${call.kind === "approval" || call.kind === "in_doubt" ? "approve" : "write"}.</p>`;
    if (isReview(call.prompt)) return html`<${Review} prompt=${call.prompt} send=${(body) => this.#send(body)} />`;
    if (call.kind === "approval") return this.#approval(call.prompt?.plan);
    if (call.kind === "in_doubt") return this.#doubt();
    return this.#question(call);
  }

  // A plan may be changed by who approves it.
  #approval(plan) {
    const feedback = this.state.text.trim();
    const { plan: edited = plan } = this.state;
    const changed = edited === plan ? {} : { plan: edited };
    return html`
      ${typeof plan === "string" && html`<details class="value"><summary>Edit the plan</summary>
        <textarea aria-label="Plan" rows="12" value=${edited} onInput=${({ target }) => this.setState({ plan: target.value })}></textarea></details>`}
      ${this.#text("Comment, if any")}
      <div class="buttons">
        <button class="main" data-approve onClick=${() => this.#send({ approved: true, feedback, ...changed })}>Approve</button>
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
      this.setState({ isSending: false, text: "", plan: undefined }); // the next question of a node may have the same id
      this.props.onAnswered?.();
    } catch (error) {
      this.setState({ isSending: false, problem: error.message });
      // Answered by another: the card goes away, and what it was answered with must be seen.
      if (error.status === 409) this.props.model.notify(error.message);
      if (error.status === 409) this.props.onAnswered?.();
    }
  }
}

// Counts down, each second.
class Deadline extends Component {
  componentDidMount() {
    this.timer = setInterval(() => this.forceUpdate(), 1000);
  }

  componentWillUnmount() {
    clearInterval(this.timer);
  }

  render({ at }) {
    return html`<p class="hint">Answer within <time class="countdown" datetime=${at} title=${moment(at)}>${left(at)}</time>; after that the thread continues without an answer.</p>`;
  }
}

// Tool calls that LangChain's middleware holds for a person: each is approved, changed or rejected, as its tool allows.
class Review extends Component {
  state = { decisions: this.props.prompt.action_requests.map((request) => ({ type: "", message: "", texts: textsOf(schemaOf(argsOf(request)), argsOf(request)), problem: "" })) };

  #change(place, part) {
    this.setState({ decisions: this.state.decisions.map((one, other) => (other === place ? { ...one, ...part, problem: "" } : one)) });
  }

  #send() {
    const { prompt, send } = this.props;
    const decisions = [];
    for (const [place, { type, message, texts }] of this.state.decisions.entries()) {
      const request = prompt.action_requests[place];
      try {
        const edited = type === "edit" && { edited_action: { name: request.name ?? request.action, args: valuesOf(schemaOf(argsOf(request)), texts) } };
        decisions.push({ type, ...(edited || (message && { message })) });
      } catch (error) {
        return this.setState({ decisions: this.state.decisions.map((one, other) => (other === place ? { ...one, problem: error.message } : one)) });
      }
    }
    return send({ answer: { decisions } });
  }

  render({ prompt }, { decisions }) {
    return html`${prompt.action_requests.map((request, place) => {
      const name = request.name ?? request.action;
      const decision = decisions[place];
      const allowed = prompt.review_configs?.find((one) => one.action_name === name)?.allowed_decisions ?? ["approve", "edit", "reject"];
      const schema = schemaOf(argsOf(request));
      return html`<fieldset key=${place} class="review"><legend>${name}</legend>
        ${request.description && html`<p class="question">${request.description}</p>`}
        ${decision.type === "edit"
          ? html`<${Fields} schema=${schema} texts=${decision.texts} write=${(field, text) => this.#change(place, { texts: { ...decision.texts, [field]: text } })} />`
          : html`<${Arguments} args=${argsOf(request)} />`}
        <div class="buttons" role="group" aria-label=${`Decision about ${name}`}>${allowed.map((type) => html`<button key=${type} aria-pressed=${decision.type === type} onClick=${() => this.#change(place, { type })}>${named(type)}</button>`)}</div>
        ${(decision.type === "reject" || decision.type === "respond") && html`<label class="field"><span>Message to the model</span><textarea rows="2" value=${decision.message} onInput=${(event) => this.#change(place, { message: event.target.value })}></textarea></label>`}
        ${decision.problem && html`<p class="problem" role="alert">${decision.problem}</p>`}
      </fieldset>`;
    })}
    <div class="buttons"><button class="main" disabled=${decisions.some(({ type }) => !type)} onClick=${() => this.#send()}>Send ${decisions.length > 1 ? "decisions" : "decision"}</button></div>`;
  }
}

// Each argument as a field of a form, and all of them as they are sent.
export function Arguments({ args }) {
  const isForm = args !== null && typeof args === "object" && !Array.isArray(args) && Object.keys(args).length > 0;
  if (!isForm) return html`<figure><figcaption>Exact arguments</figcaption><pre tabindex="0">${exactly(args)}</pre></figure>`;
  return html`<figure class="arguments"><figcaption>Exact arguments</figcaption>
    <dl>${Object.entries(args).map(([name, value]) => html`<dt key=${name}>${name}</dt><dd dir="auto">${exactly(value)}</dd>`)}</dl>
    <details class="value"><summary>As JSON</summary><pre tabindex="0">${exactly(args)}</pre></details>
  </figure>`;
}

function argsOf(request) {
  return request.args ?? request.arguments ?? {};
}

function isReview(prompt) {
  return Array.isArray(prompt?.action_requests) && prompt.action_requests.length > 0;
}

function Asked({ call: { name, args, prompt } }) {
  const text = question(prompt);
  return html`
    ${text && html`<p class="question" dir="auto">${text}</p>`}
    ${name && html`<${Arguments} args=${args} />`}
    ${!name && !text && prompt !== null && html`<pre>${exactly(prompt)}</pre>`}
    ${typeof prompt?.diff === "string" && html`<${Diff} text=${prompt.diff} />`}
    ${!name && text && rest(prompt) && html`<details class="value"><summary>The whole question</summary><pre>${exactly(prompt)}</pre></details>`}`;
}

// The state a breakpoint stops before: what an approval lets the graph go on with. A plan is read, a diff compared.
function Gate({ model, call, said }) {
  const { before: _, ...shown } = call.prompt;
  const load = () => fetchJson(`api/workflows/${encodeURIComponent(call.workflowId)}/state`);
  const whole = html`<${Loaded} key=${call.id} model=${model} load=${load}>${({ values }) => html`<pre tabindex="0">${exactly(values)}</pre>`}<//>`;
  if (!Object.keys(shown).length) return html`<figure><figcaption>State to approve</figcaption>${whole}</figure>`;
  return html`${Object.entries(shown).map(([name, value]) => said.has(value) ? html`<p key=${name} class="hint">${named(name)}: as it is written above.</p>` : html`<figure key=${name}><figcaption>${named(name)}</figcaption>
      ${name === "diff" && typeof value === "string" ? html`<${Diff} text=${value} />` : typeof value === "string" && value.includes("\n") ? html`<div class="document"><${Markdown} text=${value} /></div>` : html`<pre tabindex="0">${exactly(value)}</pre>`}
    </figure>`)}
    <details class="value"><summary>The whole state</summary>${whole}</details>`;
}

function title({ kind, name, prompt }) {
  if (kind === "approval" && name) return `Allow the tool ${name} to run?`;
  if (isReview(prompt)) return `Allow ${[...new Set(prompt.action_requests.map((one) => one.name ?? one.action))].join(", ")}?`;
  if (kind === "approval") return isGate({ kind, prompt }) ? `Continue with ${prompt.before.join(", ")}?` : "Your approval is needed";
  if (kind === "in_doubt") return `Did ${name || "this"} happen?`;
  if (kind === "client_exec") return `${name || "A tool"} must be run by a client`;
  return "A question for you";
}

// A breakpoint says where the graph stopped, and what of its state its app shows.
function isGate({ kind, prompt }) {
  return kind === "approval" && Array.isArray(prompt?.before);
}

function question(prompt) {
  if (typeof prompt === "string") return prompt;
  const field = ASKS.find((ask) => typeof prompt?.[ask] === "string" && prompt[ask]);
  return field ? prompt[field] : "";
}

function rest(prompt) {
  return typeof prompt === "object" && Object.keys(prompt).some((name) => name !== "kind" && !ASKS.includes(name));
}
