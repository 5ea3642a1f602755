// The state of a thread's graph: its values, its checkpoints, the difference between two, a fork, and an edit.

import { fetchJson, post } from "./api.js";
import { Component, html } from "./html.js";
import { Action, Loaded } from "./loaded.js";
import { exactly, timeWithSeconds } from "./words.js";

const PAGE = 50;
// Longer values are compared as a whole: a difference of so many lines is not read anyway.
const MOST_LINES = 2_000;

export function State({ model, current }) {
  const load = () => fetchJson(`threads/${encodeURIComponent(current.id)}/history?limit=${PAGE}`);
  return html`<div class="panel">
    <${Loaded} key=${`${current.id}/${current.timeline.status}`} model=${model} load=${load}>
      ${(states, again) => (states.length
        ? html`<${History} model=${model} current=${current} states=${states} again=${again} />`
        : html`<p class="empty">This thread has no checkpoint yet.</p>`)}
    <//>
  </div>`;
}

class History extends Component {
  state = { chosen: 0, against: -1, edited: null };

  render({ model, current, states, again }, { chosen, against, edited }) {
    const shown = states[Math.min(chosen, states.length - 1)];
    const path = `threads/${encodeURIComponent(current.id)}`;
    return html`<div class="history">
      <ol class="checkpoints" aria-label="Checkpoints">
        ${states.map((one, place) => html`<li key=${one.checkpoint?.checkpoint_id ?? place}>
          <button class=${place === chosen ? "chosen" : "quiet"} aria-pressed=${place === chosen} onClick=${() => this.setState({ chosen: place, against: -1, edited: null })}>
            <span>Step ${one.metadata?.step ?? "?"} · ${one.next?.length ? `next: ${one.next.join(", ")}` : "end"}</span>
            <time datetime=${one.created_at}>${timeWithSeconds(one.created_at)}</time>
          </button>
        </li>`)}
      </ol>
      <div class="values">
        <div class="bar-of-tools">
          <label>Compare with <select value=${against} onChange=${(event) => this.setState({ against: Number(event.target.value) })}>
            <option value="-1">nothing</option>
            ${states.map((one, place) => place !== chosen && html`<option key=${place} value=${place}>step ${one.metadata?.step ?? "?"}, ${timeWithSeconds(one.created_at)}</option>`)}
          </select></label>
          ${current.timeline.isOver && html`<${Action} model=${model} sure="Start a new run from this checkpoint?" act=${() => this.#fork(path, shown)}>Run from here<//>`}
          ${!["running", "pending"].includes(current.timeline.status) && edited === null && html`<button onClick=${() => this.setState({ edited: exactly(shown.values) })}>Edit</button>`}
        </div>
        ${shown.error && html`<p class="problem">${shown.error}</p>`}
        ${edited !== null ? this.#editor(path, shown, again) : against >= 0 ? html`<${Difference} old=${states[against].values} now=${shown.values} />` : html`<pre tabindex="0">${exactly(shown.values)}</pre>`}
      </div>
    </div>`;
  }

  #editor(path, shown, again) {
    const { model } = this.props;
    const save = async () => {
      const values = JSON.parse(this.state.edited);
      await post(`${path}/state`, { values, checkpoint: { checkpoint_id: shown.checkpoint.checkpoint_id } });
      this.setState({ edited: null, chosen: 0 });
      again();
    };
    return html`<label class="field"><span>Values to write. Fields with a reducer are merged by it.</span>
        <textarea class="code" rows="16" spellcheck=${false} value=${this.state.edited} onInput=${(event) => this.setState({ edited: event.target.value })}></textarea>
      </label>
      <div class="buttons"><${Action} model=${model} look="main" act=${save}>Write<//> <button onClick=${() => this.setState({ edited: null })}>Cancel</button></div>`;
  }

  async #fork(path, { checkpoint }) {
    await post(`${path}/runs`, { assistant_id: this.props.current.thread.graph, input: null, checkpoint: { checkpoint_id: checkpoint.checkpoint_id } });
  }
}

export function Difference({ old, now }) {
  const lines = difference(exactly(old).split("\n"), exactly(now).split("\n"));
  if (!lines) return html`<p class="empty">These values are too long to compare line by line.</p><pre tabindex="0">${exactly(now)}</pre>`;
  if (lines.every(([mark]) => mark === " ")) return html`<p class="empty">The values are the same.</p>`;
  return html`<pre class="difference" tabindex="0">${lines.map(([mark, line]) => html`<span class=${mark === "+" ? "added" : mark === "-" ? "removed" : ""}>${`${mark} ${line}\n`}</span>`)}</pre>`;
}

// The longest common subsequence of lines; what only the old text has is removed, what only the new one has is added.
export function difference(old, now) {
  if (old.length > MOST_LINES || now.length > MOST_LINES) return null;
  const common = Array.from({ length: old.length + 1 }, () => new Uint16Array(now.length + 1));
  for (let i = old.length - 1; i >= 0; i--) {
    for (let j = now.length - 1; j >= 0; j--) {
      common[i][j] = old[i] === now[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
    }
  }
  const lines = [];
  for (let i = 0, j = 0; i < old.length || j < now.length; ) {
    if (i < old.length && j < now.length && old[i] === now[j]) lines.push([" ", old[(j++, i++)]]);
    else if (j >= now.length || (i < old.length && common[i + 1][j] >= common[i][j + 1])) lines.push(["-", old[i++]]);
    else lines.push(["+", now[j++]]);
  }
  return lines;
}
