// Crons: schedules with their next runs; run now, pause, delete.

import { ask, fetchJson, post } from "./api.js";
import { Component, html } from "./html.js";
import { Action, Loaded } from "./loaded.js";
import { toThread } from "./routes.js";
import { Json, Table, When } from "./table.js";

const PAGE = 100;
// What a run takes of the cron it belongs to.
const OF_A_RUN = ["assistant_id", "input", "config", "context", "metadata", "webhook", "interrupt_before", "interrupt_after"];

export class Crons extends Component {
  state = { begun: null };

  render({ model }, { begun }) {
    return html`
      ${begun && html`<p role="status">Started: <a href=${toThread(begun)}>${begun}</a></p>`}
      <${Loaded} model=${model} load=${load} every=${10}>
      ${({ found, names }, again) => (found.length ? html`<${Table} label="Crons" head=${["Schedule", "Next run", "Assistant", "Thread", "Input", "", "", ""]} rows=${found.map((cron) => this.#row(model, cron, names, again))} />` : html`<p class="empty">No cron. A client creates one with POST /runs/crons.</p>`)}
    <//>`;
  }

  #row(model, cron, names, again) {
    const isOn = cron.enabled !== false;
    const path = `runs/crons/${cron.cron_id}`;
    const switched = async () => {
      await fetchJson(path, { method: "PATCH", json: { enabled: !isOn } });
      again();
    };
    const remove = async () => {
      await ask(path, { method: "DELETE" });
      again();
    };
    return [
      html`<code>${cron.schedule}</code> ${cron.timezone ?? "UTC"}${cron.end_time && html`<br /><span class="hint">until <${When} at=${cron.end_time} /></span>`}`,
      !isOn ? "paused" : cron.next_run_date ? html`<${When} at=${cron.next_run_date} />` : "none",
      names.get(cron.assistant_id) ?? cron.assistant_id,
      cron.thread_id ? html`<a href=${toThread(cron.thread_id)}>${cron.thread_id.slice(0, 8)}</a>` : "a new one each time",
      html`<${Json} value=${cron.payload?.input ?? null} />`,
      html`<${Action} model=${model} act=${() => this.#run(cron)}>Run now<//>`,
      html`<${Action} model=${model} act=${switched}>${isOn ? "Pause" : "Enable"}<//>`,
      html`<${Action} model=${model} sure="Delete this cron? Runs that were started continue." act=${remove}>Delete<//>`,
    ];
  }

  async #run({ thread_id: thread, payload }) {
    const given = OF_A_RUN.filter((name) => payload[name] != null && payload[name] !== "" && !(Array.isArray(payload[name]) && !payload[name].length));
    const body = Object.fromEntries(given.map((name) => [name, payload[name]]));
    const run = thread
      ? await post(`threads/${encodeURIComponent(thread)}/runs`, { ...body, multitask_strategy: "enqueue" })
      : await post("runs", { ...body, on_completion: "keep" });
    this.setState({ begun: run.thread_id });
  }
}

async function load() {
  const [found, assistants] = await Promise.all([post("runs/crons/search", { limit: PAGE }), post("assistants/search", { limit: PAGE })]);
  return { found, names: new Map(assistants.map((one) => [one.assistant_id, one.name])) };
}
