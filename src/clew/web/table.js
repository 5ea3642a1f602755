// Tables, bars and values as the operator's sections show them.

import { html } from "./html.js";
import { ago, exactly, moment } from "./words.js";

export function Table({ head, rows, label = "Table" }) {
  return html`<div class="wide" tabindex="0" role="group" aria-label=${label}><table>
    <thead><tr>${head.map((name) => html`<th scope="col">${name || html`<span class="hidden">Action</span>`}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr>${row.map((cell) => html`<td>${cell}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}

export function Json({ value, label = "show" }) {
  return html`<details class="value"><summary>${label}</summary><pre tabindex="0">${exactly(value)}</pre></details>`;
}

export function When({ at }) {
  return at ? html`<time datetime=${at} title=${moment(at)}>${ago(at)}</time>` : "never";
}

export function Bars({ title, counts, written = String, most = 50 }) {
  const rows = Object.entries(counts).sort(([, one], [, other]) => other - one).slice(0, most);
  if (!rows.length) return null;
  const largest = rows[0][1] || 1;
  return html`<section><h2>${title}</h2>
    <ul class="bars">${rows.map(([name, count]) => html`<li key=${name}>
      <span class="name">${name}</span><span class="track" aria-hidden="true"><span class="bar" style=${{ width: `${(count / largest) * 100}%` }}></span></span><span class="took">${written(count)}</span>
    </li>`)}</ul>
  </section>`;
}
