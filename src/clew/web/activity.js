// What a round did, line by line: stages, log lines, tools, answers.

import { html } from "./html.js";
import { exactly, lasted, named, plural, timeWithSeconds } from "./words.js";

const LONGEST = 20_000;

export function Activity({ round }) {
  const steps = round.activity.filter(({ kind }) => kind !== "wait"); // those are the cards, and the tab Run has them
  if (!steps.length) return null;
  const facts = [plural(steps.length, "step")];
  if (round.ended && round.began) facts.push(lasted(round.began, round.ended));
  return html`<details class="activity">
    <summary>Activity <span class="facts">${facts.join(" · ")}</span></summary>
    <ol>${steps.map((one) => html`<${Line} key=${`${one.kind}/${one.id}`} ...${one} />`)}</ol>
  </details>`;
}

// The newest line to show while the round runs.
export function newest(round) {
  const line = round?.activity.findLast((one) => one.kind === "log") ?? round?.activity.findLast((one) => one.kind !== "wait");
  return line?.text ?? "";
}

function Line({ kind, text, at, level, agent, args, ok, result, output, answer, by }) {
  return html`<li class="${kind} ${level ?? ""}">
    <time datetime=${at}>${timeWithSeconds(at)}</time>
    <div>
      <span class="text" dir="auto">${kind === "answer" ? told(text, answer, by) : text}</span>
      ${agent && html`<span class="agent">${named(agent)}</span>`}
      ${kind === "call" && html`<${Value} name="arguments" value=${args} />`}
      ${ok !== undefined && html`<${Value} name=${ok ? "result" : "error"} value=${result} />`}
      ${isSomething(output) && html`<${Value} name="result" value=${output} />`}
    </div>
  </li>`;
}

function Value({ name, value }) {
  const text = exactly(value);
  const shown = text.length > LONGEST ? `${text.slice(0, LONGEST)}\n… ${text.length - LONGEST} characters more` : text;
  return html`<details class="value"><summary>${name}</summary><pre>${shown}</pre></details>`;
}

function told(outcome, answer, by) {
  const who = by ? ` by ${by}` : "";
  if (outcome !== "answered") return `Question ${outcome}`;
  if (answer?.approved === true) return `Approved${who}`;
  if (answer?.approved === false) return `Rejected${who}${answer.feedback ? `: ${answer.feedback}` : ""}`;
  return `Answered${who}`;
}

function isSomething(value) {
  return value !== undefined && value !== null && (typeof value !== "object" || Object.keys(value).length > 0);
}
