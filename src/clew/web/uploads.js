// Files on their way to the server: each is sent when it is chosen, so that sending the prompt need not wait.

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

  get isBusy() {
    return this.all.some((upload) => !upload.id && !upload.problem);
  }

  add(files) {
    for (const file of files) {
      const upload = { name: file.name, size: file.size, id: "", problem: "" };
      this.all.push(upload);
      this.#send(upload, file);
    }
    this.#changed();
  }

  remove(upload) {
    this.all = this.all.filter((one) => one !== upload);
    this.#changed();
    // Nobody will ask for it; if this is lost, it is only a file too many.
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
