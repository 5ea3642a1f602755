// API keys: listed, created, revoked. The text of a new key is shown once.

import { fetchJson, key as own, post } from "./api.js";
import { Component, html } from "./html.js";
import { Action, Loaded } from "./loaded.js";
import { Table, When } from "./table.js";

const MEANINGS = {
  read: "see threads",
  write: "start, stop and delete threads",
  approve: "answer approvals",
  admin: "clean up, keys and audit of the tenant",
  operator: "settings, all tenants",
  metrics: "metrics",
};

export class Keys extends Component {
  state = { name: "", user: "", tenant: "", days: "", scopes: null, made: null };

  render({ model }, { made }) {
    const load = () => fetchJson(`api/keys${model.may("operator") ? "?tenant=*" : ""}`);
    return html`
      ${made && html`<section class="new-key" role="status"><h2>${made.name}</h2>
        <p>Copy the key now: it is shown only once.</p>
        <pre tabindex="0">${made.key}</pre>
        <div class="buttons"><button class="main" onClick=${() => navigator.clipboard.writeText(made.key)}>Copy</button>
        <button onClick=${() => this.setState({ made: null })}>Done</button></div>
      </section>`}
      <${Loaded} key=${made?.id ?? ""} model=${model} load=${load}>
        ${({ keys }, again) => html`
          ${keys.length > 0 ? html`<${Table} label="Keys" head=${["Name", "Tenant", "User", "Scopes", "Created", "Expires", "State", ""]} rows=${keys.map((one) => [
            html`${one.name}<br /><span class="hint">${one.id}</span>`, one.tenant, one.user || "all", one.scopes.join(", "),
            html`<${When} at=${one.createdAt} />`, html`<${When} at=${one.expiresAt} />`, one.state,
            one.state === "active" && html`<${Action} model=${model} label=${`Revoke ${one.name}`} sure=${`Revoke ${one.name} for good? Its clients stop working.${one.id === model.state.me?.keyId ? " This is the key this page uses." : ""}`} act=${() => this.#revoke(one, again)}>Revoke<//>`,
          ])} />` : html`<p class="empty">No key yet. The server accepts requests from this machine without one.</p>`}
          ${this.#form(model)}`}
      <//>`;
  }

  #form(model) {
    const { name, user, tenant, days } = this.state;
    const isOpen = model.state.me?.keyId === "" && !own.get();
    const mine = model.state.me?.scopes ?? [];
    const usual = isOpen ? mine : mine.filter((scope) => ["read", "write", "approve"].includes(scope));
    const scopes = this.state.scopes ?? usual;
    const toggle = (scope) => this.setState({ scopes: scopes.includes(scope) ? scopes.filter((one) => one !== scope) : [...scopes, scope] });
    const write = (field) => (event) => this.setState({ [field]: event.target.value });
    return html`<section><h2>New key</h2>
      <div class="bar-of-tools">
        <label>Name <input value=${name} maxlength="100" placeholder="deploy bot" onInput=${write("name")} /></label>
        <label>User <input value=${user} maxlength="256" placeholder="all of the tenant" onInput=${write("user")} /></label>
        ${model.may("operator") && html`<label>Tenant <input value=${tenant} maxlength="64" placeholder=${model.state.me.tenant} onInput=${write("tenant")} /></label>`}
        <label>Days <input type="number" min="1" max="3650" placeholder="no end" value=${days} onInput=${write("days")} /></label>
      </div>
      <div class="scopes" role="group" aria-label="Scopes">${Object.entries(MEANINGS).filter(([scope]) => mine.includes(scope)).map(([scope, what]) => html`<label class="check" key=${scope}>
        <input type="checkbox" checked=${scopes.includes(scope)} onChange=${() => toggle(scope)} /> <span>${scope} <span class="hint">${what}</span></span></label>`)}</div>
      ${isOpen && html`<p class="hint">This server needs no key from this machine so far. With the first key, every request needs one; this page will use the new key.</p>`}
      <div class="buttons"><${Action} model=${model} look="main" disabled=${!name.trim() || !scopes.length || (isOpen && !scopes.includes("read"))} act=${() => this.#create(scopes, isOpen)}>Create key<//></div>
    </section>`;
  }

  async #create(scopes, isOpen) {
    const { name, user, tenant, days } = this.state;
    const body = { name: name.trim(), scopes, ...(user && { user }), ...(tenant && { tenant }), ...(days && { expiresDays: Number(days) }) };
    const made = await post("api/keys", body);
    if (isOpen) await this.props.model.adoptKey(made.key);
    this.setState({ made, name: "", user: "", tenant: "", days: "", scopes: null });
  }

  async #revoke(one, again) {
    await fetchJson(`api/keys/${encodeURIComponent(one.id)}`, { method: "DELETE" });
    again();
  }
}
