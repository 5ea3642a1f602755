// Files on their way to the server: each is sent when it is chosen, so that sending the prompt waits as little as possible.

import { ask, fetchJson } from "./api.js";

export class Uploads {
  #changed;

  constructor(changed) {
    this.#changed = changed;
    this.all = [];
  }

  get ids() {
    return this.all.filter((upload) => upload.id).map((upload) => upload.id);
  }

  // When all are there. Throws if one of those that were still on their way does not arrive.
  async arrived() {
    const waited = this.all.filter((upload) => !upload.id && !upload.problem);
    await Promise.all(waited.map((upload) => upload.sending));
    const lost = waited.find((upload) => upload.problem && this.all.includes(upload));
    if (lost) throw new Error(`${lost.name} was not sent.`);
  }

  add(files) {
    for (const file of files) {
      const upload = { name: file.name, size: file.size, id: "", problem: "" };
      this.all.push(upload);
      upload.sending = this.#send(upload, file);
    }
    this.#changed();
  }

  remove(upload) {
    this.all = this.all.filter((one) => one !== upload);
    this.#changed();
    // The file is not needed any more; if this request fails, one unused file stays on the server.
    if (upload.id) ask(`api/files/${encodeURIComponent(upload.id)}`, { method: "DELETE" }).catch(() => {});
  }

  async #send(upload, file) {
    const body = new FormData();
    body.append("file", file, file.name);
    try {
      upload.id = (await fetchJson("api/files", { method: "POST", body })).id;
    } catch (error) {
      upload.problem = error.message;
    }
    this.#changed();
  }
}
