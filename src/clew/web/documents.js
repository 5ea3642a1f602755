// Documents as links that save them.

import { at, key, save } from "./api.js";
import { html } from "./html.js";
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
  return found.length > 0 && html`<ul class="files" aria-label="Documents">
    ${found.map((one) => html`<li key=${one.id}>
      <${DocumentLink} path=${path} document=${one} />
      ${onDelete && html`<button class="quiet remove" aria-label=${`Delete the file ${fileName(one)}`} onClick=${() => onDelete(one)}>×</button>`}
    </li>`)}
  </ul>`;
}
