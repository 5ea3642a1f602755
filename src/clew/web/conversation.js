// One thread: what was said in its rounds, what it waits for, how far it got.

import { Activity, newest } from "./activity.js";
import { Composer } from "./composer.js";
import { Changes } from "./diff.js";
import { Documents, DocumentLink, DocumentsOf } from "./documents.js";
import { Graph } from "./graph.js";
import { Component, createRef, html } from "./html.js";
import { EventLog } from "./log.js";
import { Markdown } from "./markdown.js";
import { TABS, toThread } from "./routes.js";
import { Run } from "./run.js";
import { State } from "./state.js";
import { Status } from "./threads.js";
import { Waiting } from "./waiting.js";
import { excerpt, moment, named, plural, timeWithSeconds } from "./words.js";

// A user who has scrolled this near to the end stays at the end.
const NEAR = 120;

export const READ_ONLY = "Your key may read threads but not start or continue them: it lacks the scope write.";

const VIEWS = { run: Run, graph: Graph, state: State, documents: Documents, log: EventLog };

export function Conversation({ model, current }) {
  const { tab } = model.state.route;
  const { thread, timeline, problem } = current;
  const isRead = timeline && timeline.last >= thread.lastSeq;
  const View = VIEWS[tab];
  return html`
    <${Head} model=${model} current=${current} path=${model.path(current.id)} />
    ${thread && html`<${Tabs} model=${model} id=${current.id} tab=${tab} />`}
    ${!View && html`<${Chat} model=${model} current=${current} isRead=${isRead} />`}
    ${View && problem && html`<p class="gone">${problem}</p>`}
    ${View && isRead && html`<${View} key=${current.id} model=${model} current=${current} />`}`;
}

function Tabs({ model, id, tab }) {
  const { filter } = model.state.route;
  return html`<nav class="tabs" aria-label="Views of this thread">
    ${TABS.map((name) => html`<a key=${name} href=${toThread(id, filter, name)} aria-current=${name === tab ? "page" : null}>${named(name)}</a>`)}
  </nav>`;
}

class Chat extends Component {
  #log = createRef();

  getSnapshotBeforeUpdate() {
    const log = this.#log.current;
    return log && log.scrollHeight - log.scrollTop - log.clientHeight < NEAR;
  }

  componentDidMount() {
    this.#log.current.scrollTop = this.#log.current.scrollHeight;
  }

  componentDidUpdate(before, _, wasNear) {
    const moved = before.current.id !== this.props.current.id;
    if (wasNear || moved) this.#log.current.scrollTop = this.#log.current.scrollHeight;
  }

  render({ model, current, isRead }) {
    const { id, timeline, calls, problem } = current;
    const path = model.path(id);
    return html`
      <div class="reading" ref=${this.#log} role="log" aria-label="Conversation" aria-busy=${!isRead && !problem} tabindex="0">
        ${problem && html`<p class="gone">${problem}</p>`}
        ${isRead && timeline.after > 0 && html`<button class="quiet" onClick=${() => model.showEarlier()}>Show earlier events</button>`}
        ${isRead && timeline.rounds.map((round) => html`<${Round} key=${round.number} model=${model} round=${round} current=${current} path=${path} />`)}
        ${isRead && [...timeline.drafts.values()].map((draft) => html`<${Said} key=${draft.id} role="assistant" agent=${draft.agent} text=${draft.text} isDraft />`)}
        ${isRead && model.worksInFiles(current.thread.graph) && html`<${Changes} model=${model} current=${current} />`}
        ${isRead && html`<${Waiting} model=${model} calls=${calls} said=${timeline.texts} />`}
      </div>
      ${timeline && html`<${Foot} model=${model} current=${current} />`}`;
  }
}

function Head({ model, current: { thread, timeline, documents }, path }) {
  return html`<header class="head">
    <button class="quiet drawer" aria-controls="threads" aria-expanded=${model.state.isDrawerOpen} onClick=${() => model.change({ isDrawerOpen: true })}>Threads</button>
    ${thread && html`
      <h1 dir="auto">${thread.name || "Untitled"}</h1>
      <${Status} status=${timeline.status} />
      ${documents.length > 0 && html`<details class="menu">
        <summary>${plural(documents.length, "document")}</summary>
        <ul class="files">
          ${documents.map((one) => html`<li key=${one.id}><${DocumentLink} path=${path} document=${one} /></li>`)}
        </ul>
      </details>`}
      ${model.may("write") && html`<button class="quiet" onClick=${() => model.confirmDeletion(thread)}>Delete</button>`}`}
  </header>`;
}

function Round({ model, round, current, path }) {
  const [asked, said] = [true, false].map((isUser) => round.messages.filter((one) => (one.role === "user") === isUser));
  const show = (message) => {
    // What a round works on stays while it runs.
    const onDelete = message.role === "user" && current.timeline.isOver && model.may("write") && ((file) => model.confirmRedaction(message, file));
    return html`<${Said} key=${message.id} ...${message} onDelete=${onDelete}>
      <${DocumentsOf} message=${message} documents=${current.documents} path=${path} onDelete=${onDelete} />
    <//>`;
  };
  return html`<section class="round" aria-label=${`Round ${round.number}`}>
    ${asked.map(show)}
    <${Activity} round=${round} />
    ${said.map(show)}
    ${round.status === "failed" && html`<p class="outcome failed">Failed${round.reason && `: ${round.reason}`}</p>`}
    ${round.status === "stopped" && html`<p class="outcome">Stopped${round.reason && `: ${round.reason}`}</p>`}
  </section>`;
}

function Said({ role, agent, marker, text, at, isDraft, onDelete, children }) {
  return html`<article class="said ${role} ${marker ?? ""} ${isDraft ? "draft" : ""}">
    <header><span class="who">${role === "user" ? "You" : named(agent) || "Assistant"}</span>
      ${at && html`<time datetime=${at} title=${moment(at)}>${timeWithSeconds(at)}</time>`}
      ${onDelete && html`<button class="quiet" aria-label=${`Delete the message ${excerpt(text)}`} onClick=${() => onDelete()}>Delete</button>`}
    </header>
    ${role === "user" ? html`<p class="text" dir="auto">${text}</p>` : isData(text, isDraft) ? html`<${Data} text=${text} isDraft=${isDraft} />` : html`<${Markdown} text=${text} />`}
    ${children}
  </article>`;
}

// A model that plans in JSON writes for the program, not for the reader.
function isData(text, isDraft) {
  const begun = text.trimStart();
  if (!/^(```json\s*)?[{[]\s*(["{[\]}]|$)/.test(begun)) return false;
  if (isDraft) return true;
  try {
    return typeof JSON.parse(begun.replace(/^```json\s*|\s*```\s*$/g, "")) === "object";
  } catch {
    return false;
  }
}

function Data({ text, isDraft }) {
  return html`<details class="value"><summary>${isDraft ? "Writing data" : "Data"}</summary><pre tabindex="0">${text}</pre></details>`;
}

function Foot({ model, current: { timeline, connection } }) {
  const { status, round, isOver } = timeline;
  const isMeasured = typeof round?.progress === "number";
  const mayWrite = model.may("write");
  return html`<footer class="foot">
    ${connection === "lost" && html`<p class="lost" role="status">Connection lost. Trying again.</p>`}
    ${!isOver && html`<div class="working">
      <div class="now" role="status">
        <${Status} status=${status} />
        ${status === "running" && html`<span class="text">${newest(round)}</span>`}
        ${isMeasured && html`<span class="percent">${round.progress} %</span>`}
      </div>
      ${mayWrite && status === "pending" && html`<button class="main" onClick=${() => model.begin()}>Begin</button>`}
      ${mayWrite && html`<button onClick=${() => model.stop()}>Stop</button>`}
    </div>`}
    ${status === "running" && html`<progress max="100" value=${isMeasured ? round.progress : null} aria-label="Progress"></progress>`}
    ${!isOver && model.draft.problem && html`<p class="problem" role="alert">${model.draft.problem}</p>`}
    ${status === "failed" && mayWrite && html`<${Again} model=${model} round=${round} />`}
    ${isOver && (mayWrite ? html`<${Composer} model=${model} place=${model.id} label="Continue: what should I work on next?" />` : html`<p class="hint">${READ_ONLY}</p>`)}
  </footer>`;
}

function Again({ model, round }) {
  if (round?.lacksInput) return html`<p class="again">The message it began with was deleted, so it cannot be resumed.</p>`;
  return html`<div class="again"><span>It can be resumed where it stopped.</span> <button onClick=${() => model.resume()}>Try again</button></div>`;
}
