// Operate: storage and cleanup, files, settings and the audit trail; the other sections have files of their own.

import { ask, fetchJson, post, save } from "./api.js";
import { Assistants } from "./assistants.js";
import { Crons } from "./crons.js";
import { Component, html } from "./html.js";
import { Items } from "./items.js";
import { Keys } from "./keys.js";
import { Action, Loaded } from "./loaded.js";
import { Metrics } from "./metrics.js";
import { Queue } from "./queue.js";
import { toOperate, toThread } from "./routes.js";
import { Bars, Table, When } from "./table.js";
import { named, plural, size } from "./words.js";

const PAGE = 100;
const PROGRESS_SECONDS = 2;

export function Operate({ model }) {
  const { section, filter } = model.state.route;
  const Section = VIEWS[section];
  return html`<header class="head"><h1>Operate</h1></header>
    <nav class="tabs" aria-label="Sections">
      ${model.sections.map((name) => html`<a key=${name} href=${toOperate(name, filter)} aria-current=${name === section ? "page" : null}>${named(name)}</a>`)}
    </nav>
    <div class="panel" tabindex="0" role="region" aria-label=${named(section)} key=${`${section}/${model.state.entered}`}><${Section} model=${model} /></div>`;
}

function Storage({ model }) {
  return html`<${Loaded} model=${model} load=${() => fetchJson("api/threads/usage")}>
    ${(usage, again) => html`
      <dl class="figures">
        <div><dt>Threads</dt><dd>${usage.threads}</dd></div>
        <div><dt>Events</dt><dd>${usage.events}</dd></div>
        <div><dt>Due for cleanup</dt><dd>${usage.due}</dd></div>
        <div><dt>In the trash</dt><dd>${usage.deleted}</dd></div>
        ${usage.bytes != null && html`<div><dt>Database</dt><dd>${size(usage.bytes)}</dd></div>`}
      </dl>
      <${Bars} title="Threads by status" counts=${usage.byStatus} />
      <${Bars} title="Threads by graph" counts=${usage.byGraph} />
      ${usage.tables && html`<${Bars} title="Bytes by table" counts=${usage.tables} written=${size} most=${12} />`}
      <${CleanUp} model=${model} done=${again} />
      ${usage.deleted > 0 && html`<${Trash} key=${usage.deleted} model=${model} done=${again} />`}`}
  <//>`;
}

class CleanUp extends Component {
  state = { days: "", isSoft: true, found: null, left: null };

  componentWillUnmount() {
    clearTimeout(this.timer);
  }

  async #ask(isDry) {
    const { days, isSoft } = this.state;
    const query = new URLSearchParams({ soft: isSoft, dry_run: isDry, ...(days && { days_old: days }) });
    return post(`api/threads/cleanup?${query}`);
  }

  async #run(isDry) {
    const found = await this.#ask(isDry);
    this.setState({ found: { ...found, isDry }, left: found.more ? found.due : null });
    if (isDry) return;
    this.props.done();
    if (found.more) this.#follow();
  }

  // The rest is deleted in the background: how much is left is asked until nothing is.
  #follow() {
    this.timer = setTimeout(async () => {
      const { due } = await this.#ask(true).catch(() => ({ due: this.state.left }));
      this.setState({ left: due });
      this.props.done();
      if (due > 0) this.#follow();
    }, PROGRESS_SECONDS * 1000);
  }

  async #export() {
    for (const id of this.state.found.threadIds) await save(`api/threads/${encodeURIComponent(id)}/export`, `thread-${id}.zip`);
  }

  render({ model }, { days, isSoft, found, left }) {
    const what = days ? `all threads not accessed for ${plural(Number(days), "day")}` : "all expired threads";
    const total = found ? found.deleted + found.due : 0;
    return html`<section><h2>Cleanup</h2>
      <div class="bar-of-tools">
        <label>Not accessed for <input type="number" min="1" max="365" placeholder="expired" value=${days} onInput=${(event) => this.setState({ days: event.target.value, found: null })} /> days</label>
        <label class="check"><input type="checkbox" checked=${isSoft} onChange=${(event) => this.setState({ isSoft: event.target.checked })} /> Keep in the trash for seven days</label>
        <${Action} model=${model} act=${() => this.#run(true)}>Dry run<//>
        <${Action} model=${model} look="danger" sure=${`Delete ${what}${isSoft ? "" : " permanently"}?`} act=${() => this.#run(false)}>Clean up<//>
      </div>
      ${found && html`<p role="status">${found.isDry ? `A cleanup would delete ${plural(found.due || found.deleted, "thread")}.` : `Deleted ${plural(left === null ? found.deleted : total - left, "thread")}, kept ${found.preserved}.`}
        ${found.errors > 0 && ` ${plural(found.errors, "thread")} could not be deleted.`} ${left > 0 && `The other ${left} are deleted in the background.`}</p>`}
      ${left > 0 && html`<progress max=${total} value=${total - left} aria-label="Progress of the cleanup"></progress>`}
      ${found?.isDry && found.threadIds.length > 0 && html`<div class="buttons"><${Action} model=${model} act=${() => this.#export()}>Export ${found.threadIds.length === 1 ? "it" : `these ${found.threadIds.length}`} first<//></div>`}
    </section>`;
  }
}

function Trash({ model, done }) {
  const restore = (id) => async () => {
    await post(`api/threads/${encodeURIComponent(id)}/undelete`);
    done();
    model.loadThreads();
  };
  return html`<${Loaded} model=${model} load=${() => fetchJson(`api/threads/deleted?limit=${PAGE}`)}>
    ${({ threads }) => threads.length > 0 && html`<section><h2>Trash</h2>
      <${Table} head=${["Thread", "Graph", "Deleted for good", ""]} rows=${threads.map((one) => [
        one.name || "Untitled", one.graph, html`<${When} at=${one.goneAt} />`,
        html`<${Action} model=${model} act=${restore(one.id)}>Restore<//>`,
      ])} /></section>`}
  <//>`;
}

function Files({ model }) {
  const remove = (file, again) => async () => {
    await ask(`api/files/${file.id}`, { method: "DELETE" });
    again();
  };
  return html`<${Loaded} model=${model} load=${() => fetchJson(`api/files?limit=${PAGE}`)}>
    ${({ files }, again) => (files.length ? html`<${Table} head=${["Name", "Size", "Type", "Uploaded", "", ""]} rows=${files.map((file) => [
      file.name, size(file.size), file.mimeType ?? "", html`<${When} at=${file.createdAt} />`,
      html`<${Action} model=${model} act=${() => save(`api/files/${file.id}/content`, file.name)}>Save<//>`,
      html`<${Action} model=${model} sure=${`Delete ${file.name}?`} act=${remove(file, again)}>Delete<//>`,
    ])} />` : html`<p class="empty">No file was uploaded.</p>`)}
  <//>`;
}

function Audit({ model }) {
  return html`<${Loaded} model=${model} load=${() => fetchJson(`api/audit?limit=${PAGE}`)} every=${10}>
    ${({ entries }) => (entries.length ? html`<${Table} head=${["When", "Who", "Action", "Status", "Of what"]} rows=${entries.map((one) => [
      html`<${When} at=${one.at} />`, one.user || one.actor, one.action, one.status, one.threadId ? html`<a href=${toThread(one.threadId)}>${one.threadId}</a>` : `${one.method} ${one.path}`,
    ])} />` : html`<p class="empty">No entry yet. Requests are recorded once the server has an API key.</p>`)}
  <//>`;
}

function Settings({ model }) {
  return html`<p class="hint">As the server read them at its start. Change them in <code>clew.yaml</code> or the environment, and restart it.</p>
  <${Loaded} model=${model} load=${() => fetchJson("api/settings")}>
    ${({ settings }) => html`<${Table} label="Settings" head=${["Setting", "Value", "From"]} rows=${settings.map((one) => [html`<code>${one.key}</code>`, one.value, one.source])} />`}
  <//>`;
}

function Webhooks({ model }) {
  const whose = model.may("operator") ? "tenant=*" : "";
  const path = (one) => `api/webhooks/${encodeURIComponent(one.runId)}`;
  return html`<p class="hint">Webhooks of runs that no call could deliver. They are kept until you dismiss them or their thread is deleted.</p>
  <${Loaded} model=${model} load=${() => fetchJson(`api/webhooks/failed?${whose}`)} every=${10}>
    ${({ webhooks }, again) => (webhooks.length ? html`<${Table} label="Failed webhooks" head=${["Given up", "Address", "Thread", "Calls", "Reason", "", ""]} rows=${webhooks.map((one) => [
      html`<${When} at=${one.failedAt} />`, one.url, html`<a href=${toThread(one.threadId)}>${one.threadId.slice(0, 13)}</a>`, one.attempts, one.reason,
      html`<${Action} model=${model} label=${`Call the webhook of ${one.runId} again`} act=${() => post(`${path(one)}/retry?${whose}`).then(again)}>Call again<//>`,
      html`<${Action} model=${model} label=${`Dismiss the webhook of ${one.runId}`} act=${() => ask(`${path(one)}?${whose}`, { method: "DELETE" }).then(again)}>Dismiss<//>`,
    ])} />` : html`<p class="empty">No webhook was given up.</p>`)}
  <//>`;
}

const VIEWS = { storage: Storage, queue: Queue, metrics: Metrics, crons: Crons, assistants: Assistants, webhooks: Webhooks, store: Items, files: Files, keys: Keys, settings: Settings, audit: Audit };
