// Documents: links that save them, and a list with previews.

import { ask, at, key, save } from "./api.js";
import { highlighted } from "./highlight.js";
import { Component, html } from "./html.js";
import { Markdown } from "./markdown.js";
import { fileName, size } from "./words.js";

export function DocumentLink({ path, document: { id, name, ext, size: bytes } }) {
  const full = fileName({ name, ext });
  const address = `${path}/documents/${encodeURIComponent(id)}`;
  const take = (event) => {
    if (!key.get()) return; // the browser does it better
    event.preventDefault();
    save(address, full);
  };
  return html`<a class="file" href=${at(address)} download=${full} onClick=${take}>
    <span class="kind" aria-hidden="true">${(ext || "file").slice(0, 4)}</span>
    <span class="name">${full}</span>
    <span class="size">${size(bytes)}</span>
  </a>`;
}

// Those of a message. It names documents, or the files they were made of; these may not have been read yet.
export function DocumentsOf({ message, documents, path, onDelete }) {
  const found = documents.filter((one) => message.documents.includes(one.id) || message.documents.includes(one.file));
  const pictures = message.role === "assistant" ? found.filter(isPicture) : [];
  return found.length > 0 && html`${pictures.map((one) => html`<${Preview} key=${one.id} path=${path} document=${one} />`)}<ul class="files" aria-label="Documents">
    ${found.map((one) => html`<li key=${one.id}>
      <${DocumentLink} path=${path} document=${one} />
      ${onDelete && html`<button class="quiet remove" aria-label=${`Delete the file ${fileName(one)}`} onClick=${() => onDelete(one)}>×</button>`}
    </li>`)}
  </ul>`;
}

export function Documents({ model, current }) {
  const path = model.path(current.id);
  if (!current.documents.length) return html`<div class="panel"><p class="empty">This thread has no document.</p></div>`;
  return html`<div class="panel"><ul class="previews">
    ${current.documents.map((one) => html`<li key=${one.id}><${DocumentLink} path=${path} document=${one} /><${Preview} path=${path} document=${one} /></li>`)}
  </ul></div>`;
}

const PICTURES = new Set(["png", "jpg", "jpeg", "gif", "webp"]);
const TEXTS = new Set(["csv", "txt", "md", "json", "html", "xml", "log", "tsv", "py", "js", "ts", "sql", "sh", "yaml", "yml", "toml", "css", "diff", "patch"]);
const MOST_BYTES = 5_000_000;
const MOST_ROWS = 50;
const MOST_TEXT = 5_000;

function isPicture({ ext }) {
  return PICTURES.has((ext ?? "").toLowerCase());
}

// A picture as it is, a table as a table, a text as its beginning. Nothing of a document is ever run as markup.
export class Preview extends Component {
  state = { picture: "", pdf: "", text: "" };

  async componentDidMount() {
    const { path, document } = this.props;
    const ext = (document.ext ?? "").toLowerCase();
    if (document.size > MOST_BYTES || !(isPicture(document) || TEXTS.has(ext) || (ext === "pdf" && navigator.pdfViewerEnabled))) return;
    try {
      const bytes = await (await ask(`${path}/documents/${encodeURIComponent(document.id)}`)).blob();
      if (this.isGone) return;
      if (TEXTS.has(ext)) this.setState({ text: await bytes.text() });
      else if (ext === "pdf") this.setState({ pdf: URL.createObjectURL(new Blob([bytes], { type: "application/pdf" })) });
      else this.setState({ picture: URL.createObjectURL(new Blob([bytes], { type: `image/${ext === "jpg" ? "jpeg" : ext}` })) });
    } catch {
      return; // the link beside it says why, when it is followed
    }
  }

  componentWillUnmount() {
    this.isGone = true;
    URL.revokeObjectURL(this.state.picture || this.state.pdf);
  }

  render({ document }, { picture, pdf, text }) {
    if (pdf) return html`<iframe class="preview pdf" src=${`${pdf}#navpanes=0&view=FitH`} title=${`Preview of ${fileName(document)}`}></iframe>`;
    if (picture) return html`<img class="preview" src=${picture} alt=${`Preview of ${fileName(document)}`} />`;
    if (!text) return null;
    if (["csv", "tsv"].includes(document.ext)) return html`<${Rows} text=${text} />`;
    if (document.ext === "md") return html`<div class="preview text"><${Markdown} text=${text.slice(0, MOST_TEXT)} /></div>`;
    return html`<pre class="preview" tabindex="0">${highlighted(text.slice(0, MOST_TEXT), document.ext)}${text.length > MOST_TEXT && "\n…"}</pre>`;
  }
}

function Rows({ text }) {
  const separator = [",", ";", "\t"].sort((one, other) => text.split(other).length - text.split(one).length)[0];
  const [head, ...rows] = parseCsv(text, separator, MOST_ROWS + 1);
  return html`<div class="wide" tabindex="0" role="group" aria-label="Table"><table>
    <thead><tr>${head.map((cell) => html`<th scope="col">${cell}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr>${row.map((cell) => html`<td>${cell}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}

// Quoted cells may hold separators, line ends, and quotes written twice.
export function parseCsv(text, separator, most) {
  const rows = [[""]];
  let isQuoted = false;
  for (let place = 0; place < text.length; place++) {
    const row = rows.at(-1);
    const sign = text[place];
    if (sign === '"' && isQuoted && text[place + 1] === '"') row[row.length - 1] += text[++place];
    else if (sign === '"') isQuoted = !isQuoted;
    else if (sign === separator && !isQuoted) row.push("");
    else if (sign === "\n" && !isQuoted) {
      if (rows.length >= most) break;
      rows.push([""]);
    } else if (sign !== "\r") row[row.length - 1] += sign;
  }
  return rows.filter((row) => row.length > 1 || row[0]);
}
