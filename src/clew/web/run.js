// A round as a waterfall: stages, tool calls, model calls and waits, each a bar between its beginning and its end.

import { fetchJson } from "./api.js";
import { html } from "./html.js";
import { Loaded } from "./loaded.js";
import { exactly, lasted, named, plural, size, STATUS, timeWithSeconds } from "./words.js";

const LONGEST = 20_000;
const KINDS = { stage: "Stage", call: "Tool", wait: "Wait", model: "Model", log: "Retry", recovery: "Recovery" };

export function Run({ model, current }) {
  const load = () => fetchJson(`api/threads/${encodeURIComponent(current.id)}/model-calls?limit=200`);
  return html`<div class="panel">
    <${Loaded} key=${current.id} model=${model} load=${load} every=${5}>
      ${({ modelCalls }) => current.timeline.rounds.map((round) => html`<${Waterfall} key=${round.number} round=${round} status=${round === current.timeline.round ? current.timeline.status : round.status} calls=${modelCalls} />`)}
    <//>
  </div>`;
}

function Waterfall({ round, status, calls }) {
  const now = new Date().toISOString();
  const rows = [...spans(round), ...asked(round, calls)].sort((one, other) => Date.parse(one.at) - Date.parse(other.at));
  const began = round.began ?? rows[0]?.at;
  if (!began) return null;
  const ended = round.ended ?? now;
  const whole = Math.max(1, Date.parse(ended) - Date.parse(began));
  const place = (at) => Math.min(100, Math.max(0, ((Date.parse(at) - Date.parse(began)) / whole) * 100));
  return html`<section class="waterfall" aria-label=${`Round ${round.number}`}>
    <h2>Round ${round.number} <span class="facts">${[STATUS[status], timeWithSeconds(began), lasted(began, ended), plural(rows.length, "step"), ...used(round, rows)].join(" · ")}</span></h2>
    ${round.status === "failed" && html`<p class="outcome failed">Failed${round.reason && `: ${round.reason}`}</p>`}
    ${round.error && round.error !== round.reason && html`<pre class="error" tabindex="0">${round.error}</pre>`}
    <ol>${rows.map((row) => html`<${Span} key=${`${row.kind}/${row.id}`} row=${row} ended=${row.ended ?? ended} place=${place} isOpen=${!row.ended && !round.ended} />`)}</ol>
  </section>`;
}

function Span({ row, ended, place, isOpen }) {
  const start = place(row.at);
  return html`<li class="span ${row.kind} ${row.isBad ? "bad" : ""} ${isOpen ? "open" : ""}">
    <details>
      <summary>
        <span class="kind">${KINDS[row.kind]}</span>
        <span class="name">${row.text}</span>
        <span class="track" aria-hidden="true"><span class="bar" style=${{ left: `${start}%`, width: `max(3px, ${place(ended) - start}%)` }}></span></span>
        <span class="took">${row.kind === "log" || row.kind === "recovery" ? "" : isOpen ? (row.kind === "wait" ? "waiting" : "running") : lasted(row.at, ended)}</span>
      </summary>
      <dl>
        <dt>Began</dt><dd>${timeWithSeconds(row.at)}</dd>
        ${row.facts.map(([name, value]) => html`<dt>${name}</dt><dd>${shown(value)}</dd>`)}
      </dl>
    </details>
  </li>`;
}

// What the log says of a round; a log line only if it tells of a failed attempt.
function spans({ activity }) {
  return activity.flatMap((one) => {
    if (one.kind === "stage") return [{ ...one, facts: [["Result", one.output], ["Size", sizes({ result: one.output })]].filter(isSomething) }];
    if (one.kind === "call") {
      const facts = [["Arguments", one.args], [one.ok === false ? "Error" : "Result", one.result], ["Size", sizes(one)]].filter(isSomething);
      return [{ ...one, isBad: one.ok === false, facts }];
    }
    if (one.kind === "wait") return [{ ...one, facts: [["Asked", one.prompt], ["Outcome", one.outcome], ["By", one.by]].filter(isSomething) }];
    if (one.isRecovery) return [{ ...one, kind: "recovery", ended: one.at, facts: [] }];
    return one.attempt ? [{ ...one, isBad: true, ended: one.at, facts: [] }] : [];
  });
}

function asked(round, calls) {
  return calls
    .filter((call) => call.turnRef === round.number)
    .map((call) => {
      const ended = call.createdAt;
      const at = new Date(Date.parse(ended) - call.latencyMs).toISOString();
      const used = Object.entries(call.usage ?? {}).map(([name, value]) => [named(name), value]);
      return { kind: "model", id: call.id, text: call.model || "model", at, ended, cost: Number(call.usage?.cost ?? call.usage?.total_cost ?? 0), isBad: Boolean(call.error), facts: [...used, ["Error", call.error]].filter(isSomething) };
    });
}

// Tokens as the messages count them, and the cost where a provider or a gateway says it.
function used({ tokensIn, tokensOut }, rows) {
  const cost = rows.reduce((sum, { cost: one }) => sum + (one ?? 0), 0);
  return [tokensIn + tokensOut > 0 && `${tokensIn} tokens in, ${tokensOut} out`, cost > 0 && `cost ${cost.toFixed(4)}`].filter(Boolean);
}

function sizes({ args, result }) {
  const [given, got] = [args, result].map((value) => (value == null ? 0 : new Blob([exactly(value)]).size));
  return [given && `${size(given)} given`, got && `${size(got)} returned`].filter(Boolean).join(", ");
}

function isSomething([, value]) {
  return value !== undefined && value !== null && value !== "";
}

function shown(value) {
  if (typeof value === "number" || (typeof value === "string" && value.length < 200)) return value;
  const text = exactly(value);
  return html`<pre>${text.slice(0, LONGEST)}</pre>${text.length > LONGEST && html`<span class="hint">${size(text.length)} in all</span>`}`;
}
