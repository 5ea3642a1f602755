// What the page knows, and everything that can be done here. Views read `state` and call these methods; nothing else.

import { fetchJson, key, post, Refused } from "./api.js";
import { backoff, follow, pause } from "./stream.js";
import { Timeline } from "./timeline.js";
import { Uploads } from "./uploads.js";

const LIST_SECONDS = 5;
const LIST_PAGE = 50;
const LIST_MOST = 200;
// Of a long thread only the newest events are shown, until the user asks for earlier ones.
const NEWEST = 2_000;

const CALLS_CHANGE = new Set(["suspension", "approval_required", "resolution", "workflow_stopped", "workflow_failed"]);
const LIST_CHANGES = /^(workflow_|approval_|suspension|resolution|redacted)/;

export class Model {
  #paint;
  #painting = false;
  #opened = new AbortController();
  #documentsDue = null;

  constructor(paint) {
    this.#paint = paint;
    this.drafts = new Map();
    this.state = {
      key: key.get() ? "given" : "none", // or, while the server wants one: "asked", "tried", "wrong", "withheld"
      graphs: [],
      graph: "",
      fields: {}, // what a start needs beside a prompt, by graph
      threads: [],
      hasMore: false,
      isLoaded: false,
      current: null,
      // What the user is asked about; a new object each time, which is a new question.
      deleting: null,
      redacting: null,
      isDrawerOpen: false,
    };
  }

  get id() {
    return this.state.current?.id ?? "";
  }

  // What is being written, for each thread apart and for a new one.
  get draft() {
    if (!this.drafts.has(this.id)) {
      this.drafts.set(this.id, { text: "", fields: {}, uploads: new Uploads(() => this.paint()), isSending: false, problem: "", once: "" });
    }
    return this.drafts.get(this.id);
  }

  change(part) {
    Object.assign(this.state, part);
    this.paint();
  }

  // Many events may come at once; they are painted together.
  paint() {
    if (this.#painting) return;
    this.#painting = true;
    setTimeout(() => {
      this.#painting = false;
      this.#paint();
    }, 16);
  }

  start() {
    addEventListener("hashchange", () => this.#route());
    document.addEventListener("visibilitychange", () => document.hidden || this.loadThreads());
    setInterval(() => document.hidden || this.loadThreads(), LIST_SECONDS * 1000);
    this.#enter();
  }

  async useKey(text) {
    key.set(text);
    this.change({ key: "tried" });
    try {
      await fetchJson("api/threads?limit=1");
    } catch (error) {
      if (error.status === 401) return this.change({ key: "wrong" });
    }
    this.change({ key: "given" });
    return this.#enter();
  }

  // What it opened is not left on the screen.
  forgetKey() {
    key.set("");
    location.hash = "#/";
    this.drafts.clear();
    this.change({ key: "asked", threads: [], isLoaded: false });
  }

  askForKey() {
    this.change({ key: "asked" });
  }

  withholdKey() {
    this.change({ key: "withheld" });
  }

  get isLockedOut() {
    return this.state.key !== "given" && this.state.key !== "none";
  }

  #enter() {
    this.loadThreads();
    this.#loadGraphs();
    this.#route();
  }

  #route() {
    const id = decodeURIComponent(/^#\/threads\/(.+)$/.exec(location.hash)?.[1] ?? "");
    this.change({ isDrawerOpen: false });
    if (id) this.#open(id);
    else this.#close();
  }

  async #loadGraphs() {
    await this.#quietly(async () => {
      const { graphs } = await fetchJson("api/graphs");
      const chosen = this.state.graph || graphs.find((graph) => graph.isDefault)?.name || graphs[0]?.name;
      const fields = Object.fromEntries(graphs.map((graph) => [graph.name, graph.fields]));
      this.change({ graphs: graphs.map((graph) => graph.name), graph: chosen, fields });
    });
  }

  async loadThreads(more = 0) {
    if (this.isLockedOut) return;
    const limit = Math.min(LIST_MOST, Math.max(LIST_PAGE, this.state.threads.length) + more);
    await this.#quietly(async () => {
      const { threads, next } = await fetchJson(`api/threads?limit=${limit}`);
      this.change({ threads, hasMore: next !== null && limit < LIST_MOST, isLoaded: true });
    });
  }

  #close() {
    this.#opened.abort();
    this.change({ current: null });
  }

  // `newest`: how many events of its log are shown.
  async #open(id, newest = NEWEST) {
    this.#opened.abort();
    const opened = (this.#opened = new AbortController());
    const current = { id, thread: null, timeline: null, documents: [], calls: [], connection: "connecting", problem: "", newest };
    this.change({ current });
    try {
      current.thread = await this.#persist(`api/threads/${encodeURIComponent(id)}`, current, opened.signal);
      current.timeline = new Timeline(Math.max(0, current.thread.lastSeq - newest));
      current.timeline.status = current.thread.status;
      await follow(`${this.path(id)}/events?since=${current.timeline.after}`, {
        after: current.timeline.after,
        signal: opened.signal,
        onEvent: (event) => this.#take(current, event),
        onGap: () => this.#open(id, newest),
        onState: (state) => this.#connected(current, state),
      });
    } catch (error) {
      if (opened.signal.aborted) return;
      this.#noteRefusal(error);
      current.connection = "ended";
      current.problem = error.status === 404 ? "This thread does not exist, or was deleted." : error.message;
      this.paint();
    }
  }

  #connected(current, state) {
    current.connection = state;
    if (state === "open") {
      this.loadDocuments(current);
      this.loadCalls(current);
    }
    this.paint();
  }

  showEarlier() {
    this.#open(this.id, this.state.current.newest * 4);
  }

  #take(current, event) {
    const { timeline, thread } = current;
    if (!timeline.add(event)) return;
    if (timeline.isDeleted) {
      this.#opened.abort();
      Object.assign(current, { connection: "ended", problem: "This thread was deleted." });
    }
    if (timeline.last >= thread.lastSeq) this.#react(current, event);
  }

  // Not while the past is being read, of which only the end counts.
  #react(current, { eventType, data, sequence }) {
    this.paint();
    if (sequence === current.thread.lastSeq) return;
    if (CALLS_CHANGE.has(eventType)) this.loadCalls(current);
    if (eventType === "document_added" || eventType === "redacted" || data.documents?.length) this.loadDocuments(current);
    if (eventType === "redacted" && data.unnames) current.thread.name = "";
    if (LIST_CHANGES.test(eventType)) this.loadThreads();
  }

  async loadCalls(current) {
    const turn = (current.turn = (current.turn ?? 0) + 1);
    await this.#quietly(async () => {
      const { toolCalls } = await fetchJson(`${this.path(current.id)}/tool-calls`);
      if (turn !== current.turn) return; // asked again since: that answer is the newer one
      current.calls = toolCalls;
      this.paint();
    });
  }

  loadDocuments(current) {
    const look = (current.look = (current.look ?? 0) + 1);
    clearTimeout(this.#documentsDue);
    this.#documentsDue = setTimeout(
      () =>
        this.#quietly(async () => {
          const { documents } = await fetchJson(`${this.path(current.id)}/documents`);
          if (look !== current.look) return; // asked again since: what this one shows may be deleted
          current.documents = documents;
          this.paint();
        }),
      50,
    );
  }

  path(id) {
    return `api/workflows/${encodeURIComponent(id)}`;
  }

  write(text) {
    Object.assign(this.draft, { text, once: "", problem: "" });
    this.paint();
  }

  fill(name, value) {
    Object.assign(this.draft, { fields: { ...this.draft.fields, [name]: value }, once: "", problem: "" });
    this.paint();
  }

  attach(files) {
    Object.assign(this.draft, { once: "", problem: "" });
    this.draft.uploads.add(files);
  }

  detach(upload) {
    this.draft.once = "";
    this.draft.uploads.remove(upload);
  }

  async send() {
    const { id, draft } = this;
    if (!draft.text.trim() || draft.isSending) return;
    Object.assign(draft, { isSending: true, problem: "" });
    this.paint();
    try {
      await draft.uploads.arrived();
      // Sent again after a lost answer, it is the same request: one round, not two.
      draft.once ||= [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
      const body = { prompt: draft.text, listFileId: draft.uploads.ids };
      const path = id ? `api/workflows/start?id=${encodeURIComponent(id)}` : "api/workflows/start";
      // Until the graphs are known, the server's choice.
      const wanted = this.state.fields[this.state.graph] ?? [];
      const given = Object.fromEntries(wanted.map((name) => [name, draft.fields[name]?.trim()]));
      const more = id ? {} : { graph: this.state.graph || undefined, verbose: true, ...given };
      const begun = await post(path, { ...body, ...more }, { "Idempotency-Key": draft.once });
      this.drafts.delete(id);
      if (!id && !this.id) location.hash = `#/threads/${encodeURIComponent(begun.id)}`;
      this.loadThreads();
    } catch (error) {
      this.#noteRefusal(error);
      draft.problem = error instanceof Refused ? error.message : `${error.message} Your text is kept; send it again.`;
    } finally {
      draft.isSending = false;
      this.paint();
    }
  }

  stop() {
    return this.#act("stop");
  }

  resume() {
    return this.#act("resume");
  }

  begin() {
    return this.#act("begin");
  }

  // Throws what went wrong, so that the caller shows it where the user asked.
  async answer(call, body) {
    const current = this.state.current;
    try {
      await post(`${this.path(current.id)}/tool-calls/${encodeURIComponent(call.id)}/resolve`, body);
    } finally {
      await this.loadCalls(current);
    }
  }

  confirmDeletion(thread) {
    this.change({ deleting: thread && { thread } });
  }

  async delete(thread) {
    this.change({ deleting: null });
    try {
      await fetchJson(this.path(thread.id), { method: "DELETE" });
    } catch (error) {
      if (error.status !== 404) return this.#show(error);
    }
    this.drafts.delete(thread.id);
    if (this.id === thread.id) location.hash = "#/";
    return this.loadThreads();
  }

  confirmRedaction(message, document = null) {
    this.change({ redacting: { thread: this.id, message, document } });
  }

  leaveRedaction() {
    this.change({ redacting: null });
  }

  // Throws what went wrong while the question is there to show it. Of what is gone the log tells.
  async redact(what) {
    const { thread, message, document } = what;
    const file = document ? `/files/${encodeURIComponent(document.id)}` : "";
    try {
      await fetchJson(`${this.path(thread)}/messages/${encodeURIComponent(message.id)}${file}`, { method: "DELETE" });
    } catch (error) {
      if (error.status !== 404) {
        if (this.state.redacting !== what) return this.#show(error);
        this.#noteRefusal(error);
        throw error;
      }
    }
    if (this.state.redacting === what) this.leaveRedaction();
  }

  async #act(verb) {
    try {
      await post(`${this.path(this.id)}/${verb}`);
    } catch (error) {
      this.#show(error);
    }
  }

  #show(error) {
    this.#noteRefusal(error);
    this.draft.problem = error.message;
    this.paint();
  }

  // The list and the like are asked for again soon anyway: losing one answer is nothing to speak of.
  async #quietly(work) {
    try {
      await work();
    } catch (error) {
      this.#noteRefusal(error);
    }
  }

  #noteRefusal(error) {
    if (error.status === 401 && !this.isLockedOut) this.change({ key: key.get() ? "wrong" : "asked" });
  }

  async #persist(path, current, signal) {
    for (let failures = 0; ; failures++) {
      try {
        return await fetchJson(path, { signal });
      } catch (error) {
        if (signal.aborted || !error.passes) throw error;
        current.connection = "lost";
        this.paint();
        await pause(backoff(failures), signal);
      }
    }
  }
}
