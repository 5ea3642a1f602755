// The queue: what waits for a slot and in which order, what runs, and the processes that run it.

import { fetchJson, post } from "./api.js";
import { html } from "./html.js";
import { Action, Loaded } from "./loaded.js";
import { toThread } from "./routes.js";
import { Table, When } from "./table.js";
import { plural } from "./words.js";

const NEXT = 50;
const MOST_GRAPHS = 5;

export function Queue({ model }) {
  const isOperator = model.may("operator");
  const whose = isOperator ? "?tenant=*" : "";
  const load = () => fetchJson(`api/queue?${new URLSearchParams({ limit: NEXT, ...(isOperator && { tenant: "*" }) })}`);
  return html`<${Loaded} model=${model} load=${load} every=${3}>
    ${(queue, again) => html`
      <dl class="figures">
        <div><dt>Waiting</dt><dd>${queue.waiting}</dd></div>
        <div><dt>Running</dt><dd>${queue.running}</dd></div>
        <div><dt>Behind a run of their thread</dt><dd>${queue.queuedBehind}</dd></div>
        <div><dt>Longest wait</dt><dd>${seconds(queue.oldestWaitSeconds)}</dd></div>
      </dl>
      <section><h2>Processes</h2>
        <${Table} label="Processes" head=${["Host", "Role", "Slots", "Graphs", "Version", "Started", "Last sign of life"]} rows=${queue.processes.map((one) => [
          html`${one.host}<br /><span class="hint">${one.name}</span>`, one.role, `${one.running} of ${one.slots}`, one.graphs.length > MOST_GRAPHS ? plural(one.graphs.length, "graph") : one.graphs.join(", ") || "all", one.version, html`<${When} at=${one.startedAt} />`,
          html`<span class=${one.isAlive ? "" : "problem"}>${one.isAlive ? "" : "dead, "}${seconds(one.silentSeconds)} ago</span>`,
        ])} />
      </section>
      ${queue.loads.length > 0 && html`<section><h2>By graph and tenant</h2>
        <${Table} label="By graph and tenant" head=${["Graph", "Tenant", "Waiting", "Running", "Longest wait"]} rows=${queue.loads.map((one) => [one.graph, one.tenant, one.waiting, one.running, seconds(one.oldestWaitSeconds)])} />
      </section>`}
      <section><h2>Next</h2>
        ${queue.next.length ? html`<${Table} label="Next" head=${["Thread", "Graph", "Tenant", "Priority", "Waits for", "", ""]} rows=${queue.next.map((one) => [
          html`<a href=${toThread(one.threadId)}>${one.threadId.slice(0, 13)}</a>`, one.graph, one.tenant, one.isFirst ? "first" : one.priority, seconds(one.waitedSeconds),
          isOperator && !one.isFirst && html`<${Action} model=${model} label=${`Start ${one.threadId} first`} act=${act(one, `front${whose}`, again)}>Start first<//>`,
          html`<${Action} model=${model} label=${`Cancel ${one.threadId}`} sure="Stop this run before it starts?" act=${act(one, `cancel${whose}`, again)}>Cancel<//>`,
        ])} />` : html`<p class="empty">Nothing waits for a slot.</p>`}
      </section>`}
  <//>`;
}

function act({ threadId }, verb, again) {
  return async () => {
    await post(`api/queue/${encodeURIComponent(threadId)}/${verb}`);
    again();
  };
}

function seconds(value) {
  if (value === null || value === undefined) return "–";
  return value < 60 ? `${value.toFixed(1)} s` : `${Math.round(value / 60)} min`;
}
