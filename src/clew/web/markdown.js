// The little of Markdown that answers are written in, as elements: headings, lists, tables, code, bold. The rest is text.

import { html } from "./html.js";

const INLINE = /(`[^`\n]+`|\*\*[^*\n]+\*\*)/;

export function Markdown({ text }) {
  return html`<div class="prose" dir="auto">${blocks(text).map(show)}</div>`;
}

function blocks(text) {
  const found = [];
  const fences = text.split(/^```[^\n]*\n([\s\S]*?)(?:^```[ \t]*$|$(?![\s\S]))/m);
  fences.forEach((part, number) => {
    if (number % 2) found.push({ kind: "code", text: part.replace(/\n$/, "") });
    else found.push(...part.split(/\n{2,}/).flatMap(paragraphs));
  });
  return found;
}

// Lines of one kind that stand together, within what blank lines set apart.
function paragraphs(part) {
  const found = [];
  for (const line of part.split("\n")) {
    if (!line.trim()) continue;
    const kind = kindOf(line);
    if (found.at(-1)?.kind !== kind || kind === "heading") found.push({ kind, lines: [] });
    found.at(-1).lines.push(line);
  }
  return found;
}

function kindOf(line) {
  if (/^#{1,6} /.test(line)) return "heading";
  if (/^\s*[-*•] /.test(line)) return "list";
  if (/^\s*\d+[.)] /.test(line)) return "steps";
  if (/^\s*\|.*\|\s*$/.test(line)) return "table";
  return "text";
}

function show({ kind, lines, text }) {
  switch (kind) {
    case "code":
      return html`<pre><code>${text}</code></pre>`;
    case "heading":
      return html`<p class="heading">${inline(lines[0].replace(/^#+ /, ""))}</p>`;
    case "list":
      return html`<ul>${lines.map((line) => html`<li>${inline(line.replace(/^\s*[-*•] /, ""))}</li>`)}</ul>`;
    case "steps":
      return html`<ol start=${parseInt(lines[0], 10)}>
        ${lines.map((line) => html`<li>${inline(line.replace(/^\s*\d+[.)] /, ""))}</li>`)}
      </ol>`;
    case "table":
      return table(lines.filter((line) => !/^[\s|:-]+$/.test(line)).map(cells));
    default:
      return html`<p>${inline(lines.join("\n"))}</p>`;
  }
}

function table([head = [], ...rows]) {
  return html`<div class="wide"><table>
    <thead><tr>${head.map((cell) => html`<th>${inline(cell)}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr>${row.map((cell) => html`<td>${inline(cell)}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}

function cells(line) {
  return line.trim().slice(1, -1).split("|").map((cell) => cell.trim());
}

function inline(text) {
  return text.split(INLINE).map((part) => {
    if (/^`[^`]+`$/.test(part)) return html`<code>${part.slice(1, -1)}</code>`;
    if (/^\*\*[^*]+\*\*$/.test(part)) return html`<strong>${part.slice(2, -2)}</strong>`;
    return part;
  });
}
