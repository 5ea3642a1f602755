// The public API, called as any client would: relative to this page, and with a key if one was given.

const STORED = "clew.key";
const home = new URL("./", document.baseURI);

export class Refused extends Error {
  constructor(status, { code = "", message = "", field = "" } = {}) {
    super(field && message ? `${field}: ${message}` : message || `The server answered ${status}.`);
    this.status = status;
    this.code = code;
  }

  // Whether asking again may help.
  get passes() {
    return this.status >= 500 || this.status === 408 || this.status === 429;
  }
}

export class Unreachable extends Error {
  get passes() {
    return true;
  }
}

export function at(path) {
  return new URL(path, home).href;
}

// Kept for this tab only, and never put into an address.
export const key = {
  get: () => sessionStorage.getItem(STORED) ?? "",
  set: (text) => (text ? sessionStorage.setItem(STORED, text) : sessionStorage.removeItem(STORED)),
};

export async function ask(path, { method = "GET", json, body, headers = {}, signal } = {}) {
  const shown = new Headers(headers);
  if (key.get()) shown.set("Authorization", `Bearer ${key.get()}`);
  if (json !== undefined) shown.set("Content-Type", "application/json");
  let answer;
  try {
    answer = await fetch(at(path), {
      method,
      headers: shown,
      body: json === undefined ? body : JSON.stringify(json),
      signal,
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Unreachable("The server cannot be reached.");
  }
  if (!answer.ok) throw await refusal(answer);
  return answer;
}

export async function fetchJson(path, options) {
  return (await ask(path, options)).json();
}

export function post(path, json, headers) {
  return fetchJson(path, { method: "POST", json, headers });
}

async function refusal(answer) {
  try {
    return new Refused(answer.status, (await answer.json()).error);
  } catch {
    return new Refused(answer.status);
  }
}

// A browser follows a link without our header, so with a key the bytes are fetched here and handed over.
export async function save(path, name) {
  const bytes = await (await ask(path)).blob();
  const link = document.createElement("a");
  link.href = URL.createObjectURL(bytes);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
