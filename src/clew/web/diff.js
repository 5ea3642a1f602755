// A unified diff, file by file, with its hunks and line numbers.

import { fetchJson } from "./api.js";
import { html } from "./html.js";
import { Loaded } from "./loaded.js";
import { plural } from "./words.js";

// What a workflow has changed in its work tree so far: asked again while it works, open at its end.
export function Changes({ model, current }) {
  const { status } = current.timeline;
  // Before there is a plan, or once the work tree is gone, there is nothing to show.
  const load = () => fetchJson(`${model.path(current.id)}/diff`).catch((error) => {
    if (error.status !== 409 && error.status !== 400) throw error;
    return { files: [], diff: "", isCut: false };
  });
  return html`<${Loaded} key=${`${current.id}/${status}`} model=${model} load=${load} every=${status === "running" ? 3 : 0}>
    ${({ files, diff, isCut }) => files.length > 0 && html`<details class="changes" open=${status !== "running"}>
      <summary>Changes in the work tree <span class="facts">${plural(files.length, "file")}</span></summary>
      <${Diff} text=${diff} />
      ${isCut && html`<p class="hint">The diff is longer than what is shown.</p>`}
    </details>`}
  <//>`;
}

// Beyond this a file is closed at first.
const LONG = 400;

export function Diff({ text }) {
  const files = parseDiff(text);
  if (!files.length) return html`<p class="empty">No file was changed.</p>`;
  const count = (mark) => files.reduce((sum, file) => sum + file.lines.filter((line) => line.mark === mark).length, 0);
  return html`<div class="diff" role="group" aria-label="Diff">
    <p class="facts">${plural(files.length, "file")} changed, ${count("+")} added, ${count("-")} removed</p>
    ${files.map((file) => html`<details key=${file.name} open=${file.lines.length <= LONG}>
      <summary><code>${file.name}</code> <span class="facts">${file.note}</span></summary>
      <div class="wide" tabindex="0" role="group" aria-label=${file.name}><table class="lines"><tbody>
        ${file.lines.map((line, place) => (line.mark === "@" ? html`<tr key=${place} class="hunk"><td colspan="3">${line.text}</td></tr>` : html`<tr key=${place} class=${line.mark === "+" ? "added" : line.mark === "-" ? "removed" : ""}>
          <td class="number">${line.old ?? ""}</td><td class="number">${line.now ?? ""}</td><td><pre>${line.mark} ${line.text}</pre></td></tr>`))}
      </tbody></table></div>
    </details>`)}
  </div>`;
}

// What `git diff` and `diff -u` write. A line that belongs to no hunk describes the file: new, deleted, renamed, binary.
export function parseDiff(text) {
  const files = [];
  let [file, old, now, left] = [null, 0, 0, { old: 0, now: 0 }];
  const open = (name) => files.push((file = { name, note: "", lines: [] }));
  for (const line of text.replace(/\n$/, "").split("\n")) {
    const hunk = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@/.exec(line);
    const isInside = left.old > 0 || left.now > 0;
    if (isInside && /^[ +-]/.test(line)) {
      const mark = line[0];
      file.lines.push({ mark, text: line.slice(1), old: mark === "+" ? null : old++, now: mark === "-" ? null : now++ });
      if (mark !== "+") left.old--;
      if (mark !== "-") left.now--;
    } else if (line.startsWith("diff --git ")) {
      open(line.replace(/^diff --git (?:a\/)?/, "").replace(/ b\/.*$/, ""));
      left = { old: 0, now: 0 };
    } else if (line.startsWith("--- ")) {
      if (!file || file.lines.length) open(nameIn(line));
    } else if (line.startsWith("+++ ")) {
      if (nameIn(line) !== "/dev/null") file.name = nameIn(line);
    } else if (hunk && file) {
      [old, now] = [Number(hunk[1]), Number(hunk[3])];
      left = { old: Number(hunk[2] ?? 1), now: Number(hunk[4] ?? 1) };
      file.lines.push({ mark: "@", text: line });
    } else if (file && /^(new file|deleted file|rename to|Binary files)/.test(line)) {
      file.note = line;
    }
  }
  return files;
}

function nameIn(line) {
  return line.slice(4).split("\t")[0].replace(/^[ab]\//, "");
}
