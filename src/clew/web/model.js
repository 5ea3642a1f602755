// What the page knows, and everything that can be done here. Views read `state` and call these methods; nothing else.

import { ask, fetchJson, key, post, Unreachable } from "./api.js";
import { valuesOf } from "./form.js";
import { parse, SECTIONS, toStart, toThread } from "./routes.js";
import { backoff, follow, pause } from "./stream.js";
import { Timeline } from "./timeline.js";
import { Uploads } from "./uploads.js";

const LIST_SECONDS = 5;
const LIST_PAGE = 50;
const SEARCH_PAGE = 100;
// The values of the filter by time, in seconds.
const SPANS = { hour: 3_600, day: 86_400, week: 7 * 86_400, month: 30 * 86_400 };
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
      entered: 0, // how often a key was accepted
      me: null, // the caller, with its scopes
      graphs: [],
      graph: "",
      profiles: [],
      broken: [], // graphs that cannot run, for operators
      assistants: [], // of the chosen graph
      fields: {}, // what a start needs beside a prompt, by graph
      threads: [],
      cursor: null, // of the first thread that is not in the list
      counts: {}, // threads by status
      waiting: 0, // threads that wait for this user
      route: parse(location.hash),
      isLoaded: false,
      current: null,
      // What the user is asked about; a new object each time, which is a new question.
      deleting: null,
      redacting: null,
      isDrawerOpen: false,
      isHelpOpen: false,
      notice: "", // what happened and is not shown where it did
      chosen: null, // threads marked for an action on all of them; null while none can be marked
    };
  }

  get id() {
    return this.state.current?.id ?? "";
  }

  // Until the scopes are known, and where the server does not tell them, everything is offered; the server refuses.
  may(scope) {
    return this.state.me === null || this.state.me.scopes.includes(scope);
  }

  // Whether threads of this graph change files of a work tree.
  worksInFiles(graph) {
    return (this.state.fields[graph] ?? []).includes("worktreePath");
  }

  get sections() {
    return Object.keys(SECTIONS).filter((name) => this.may(SECTIONS[name]));
  }

  // What is being written, for each thread apart and for a new one.
  get draft() {
    if (!this.drafts.has(this.id)) {
      this.drafts.set(this.id, { text: "", fields: {}, mode: "message", texts: {}, json: "", schema: null, assistant: "", profile: "", uploads: new Uploads(() => this.paint()), isSending: false, problem: "", once: "" });
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
    addEventListener("hashchange", () => {
      const { view, id } = this.state.route;
      this.#route();
      const now = this.state.route;
      // Not for a filter or a view of the same thread: the user is still where it was changed.
      if (now.view !== view || now.id !== id) document.getElementById("main")?.focus({ preventScroll: true });
    });
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

  // One that was made here: nothing has to be asked again.
  adoptKey(text) {
    key.set(text);
    this.change({ key: "given" });
    return this.#loadMe();
  }

  // What it opened is not left on the screen.
  forgetKey() {
    key.set("");
    location.hash = toStart(this.state.route.filter);
    this.drafts.clear();
    this.change({ key: "asked", threads: [], isLoaded: false, me: null });
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

  // With another key, what was refused is asked for again.
  #enter() {
    this.change({ entered: this.state.entered + 1 });
    if (this.state.current?.connection === "ended") this.#close();
    this.loadThreads();
    this.#loadMe();
    this.#loadGraphs();
    this.#route();
  }

  async #loadMe() {
    await this.#quietly(async () => this.change({ me: await fetchJson("api/me") }));
  }

  #route() {
    const { filter } = this.state.route;
    const route = parse(location.hash);
    this.change({ route, isDrawerOpen: false });
    if (JSON.stringify(filter) !== JSON.stringify(route.filter)) {
      this.change({ threads: [], cursor: null, isLoaded: false });
      this.loadThreads();
    }
    if (route.view !== "thread") this.#close();
    else if (route.id !== this.id) this.#open(route.id);
  }

  filter(part) {
    const [path] = location.hash.split("?");
    const { filter } = parse(location.hash); // a part that was chosen a moment ago may not have arrived in the state
    location.hash = `${path || "#/"}${toStart({ ...filter, ...part }).slice(2)}`;
  }

  async #loadGraphs() {
    await this.#quietly(async () => {
      const { graphs, profiles, broken } = await fetchJson("api/graphs");
      const chosen = this.state.graph || graphs.find((graph) => graph.isDefault)?.name || graphs[0]?.name;
      const fields = Object.fromEntries(graphs.map((graph) => [graph.name, graph.fields]));
      const ordered = [...graphs.filter((one) => one.isOwn), ...graphs.filter((one) => !one.isOwn)];
      this.change({ graphs: ordered, profiles, broken, graph: chosen, fields });
      await this.#loadAssistants();
    });
  }

  async #loadAssistants() {
    const { graph } = this.state;
    const assistants = await post("assistants/search", { graph_id: graph, limit: 100 });
    if (graph === this.state.graph) this.change({ assistants });
  }

  chooseGraph(graph) {
    this.change({ graph, assistants: [] });
    Object.assign(this.draft, { assistant: "", profile: "", texts: {}, schema: null, once: "", problem: "" });
    return this.#quietly(() => this.#loadAssistants());
  }

  // The first page, again. Pages that were loaded after it stay as they are.
  async loadThreads() {
    if (this.isLockedOut) return;
    const turn = (this.listTurn = (this.listTurn ?? 0) + 1);
    const { tenant } = this.state.route.filter;
    await this.#quietly(async () => {
      const count = (query) => fetchJson(`api/threads/counts${query}`);
      const [{ threads, next }, { byStatus }, own] = await Promise.all([this.#fetchThreads(), count(tenant && `?${new URLSearchParams({ tenant })}`), tenant ? count("") : null]);
      if (turn !== this.listTurn) return; // asked again since, maybe with another filter
      const after = next === null ? [] : this.state.threads.slice(1 + this.state.threads.findLastIndex((one) => isBefore(threads.at(-1), one, this.state.route.filter.sort)));
      const known = new Set(threads.map(({ id }) => id));
      const later = after.filter(({ id }) => !known.has(id));
      this.change({ threads: [...threads, ...later], cursor: later.length ? this.state.cursor : next, counts: byStatus, waiting: (own?.byStatus ?? byStatus).blocked ?? 0, isLoaded: true });
    });
  }

  async loadMoreThreads() {
    const { cursor } = this.state;
    await this.#quietly(async () => {
      const { threads, next } = await this.#fetchThreads(cursor);
      if (cursor !== this.state.cursor) return;
      const known = new Set(this.state.threads.map(({ id }) => id));
      this.change({ threads: [...this.state.threads, ...threads.filter(({ id }) => !known.has(id))], cursor: next });
    });
  }

  async #fetchThreads(cursor) {
    const { status, graph, tenant, user, since, sort, q } = this.state.route.filter;
    const from = SPANS[since] ? new Date(Date.now() - SPANS[since] * 1000).toISOString() : "";
    if (q) {
      const { found } = await fetchJson(`api/threads/search?${new URLSearchParams({ q, limit: SEARCH_PAGE })}`);
      const threads = found.map(({ thread, matches }) => ({ ...thread, match: matches[0] }));
      const wanted = (one) => (!tenant || tenant === "*" || one.tenant === tenant) && (!status || one.status === status) && (!graph || one.graph === graph) && (!user || one.user === user) && (!from || Date.parse(one.lastActiveAt) >= Date.parse(from));
      return { threads: threads.filter(wanted), next: null };
    }
    const given = { limit: LIST_PAGE, status, graph, tenant, user, activeSince: from, sort, cursor };
    return fetchJson(`api/threads?${new URLSearchParams(Object.entries(given).filter(([, value]) => value))}`);
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
      this.noteRefusal(error);
      current.connection = "ended";
      current.problem = error.status === 404 ? `This thread does not exist, or was deleted.${this.state.route.filter.tenant ? " To read a thread of another tenant, use a key of that tenant." : ""}` : error.message;
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

  // Ready to send, and still to be changed.
  async tryExample({ graph, text, files }) {
    const blobs = await Promise.all(files.map(async (name) => new File([await (await ask(`web/samples/${name}`)).blob()], name)));
    await this.chooseGraph(graph);
    this.draft.mode = "message";
    this.write(text);
    if (blobs.length) this.attach(blobs);
    document.querySelector(".composer textarea")?.focus();
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

  get canSend() {
    const { mode, text, json } = this.draft;
    if (this.id || mode === "message") return Boolean(text.trim());
    return mode === "form" || Boolean(json.trim());
  }

  async send() {
    const { id, draft } = this;
    if (!this.canSend || draft.isSending) return;
    Object.assign(draft, { isSending: true, problem: "" });
    this.paint();
    try {
      await draft.uploads.arrived();
      // Sent again after a lost answer, it is the same request: one round, not two.
      draft.once ||= crypto.randomUUID?.() ?? [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
      const begun = id ? await this.#continue(id, draft) : await this.#begin(draft);
      this.drafts.delete(id);
      if (!id && !this.id) location.hash = toThread(begun.id, this.state.route.filter);
      this.loadThreads();
    } catch (error) {
      this.noteRefusal(error);
      draft.problem = error instanceof Unreachable ? `${error.message} Your text is kept; send it again.` : error.message;
    } finally {
      draft.isSending = false;
      this.paint();
    }
  }

  #continue(id, draft) {
    const body = { prompt: draft.text, listFileId: draft.uploads.ids };
    return post(`api/workflows/start?id=${encodeURIComponent(id)}`, body, { "Idempotency-Key": draft.once });
  }

  async #begin(draft) {
    const { mode, assistant, profile } = draft;
    const input = mode === "json" ? JSON.parse(draft.json) : mode === "form" ? valuesOf(draft.schema ?? {}, draft.texts) : null;
    if (assistant) return this.#beginWith(assistant, draft, input);
    // Until the graphs are known, the server's choice.
    const graph = this.state.graph || undefined;
    const wanted = mode === "message" ? (this.state.fields[this.state.graph] ?? []) : [];
    const given = Object.fromEntries(wanted.map((name) => [name, draft.fields[name]?.trim()]));
    const what = mode === "message" ? { prompt: draft.text, listFileId: draft.uploads.ids } : { input };
    return post("api/workflows/start", { ...what, graph, profile: profile || undefined, verbose: true, ...given }, { "Idempotency-Key": draft.once });
  }

  // A run of an assistant, in a thread whose id is chosen here: sent again after a lost answer, it is found there.
  async #beginWith(assistant, draft, input) {
    if (draft.uploads.ids.length) throw new Error("Files cannot be sent to an assistant of its own configuration. Choose the graph itself.");
    const run = { assistant_id: assistant, input: input ?? { messages: [{ role: "user", content: draft.text }] }, if_not_exists: "create", multitask_strategy: "reject" };
    const thread = draft.wasSent === draft.once && (await fetchJson(`threads/${draft.once}`).catch(() => null));
    draft.wasSent = draft.once;
    if (!thread) await post(`threads/${draft.once}/runs`, run);
    return { id: draft.once };
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
      await post(`${this.path(call.workflowId)}/tool-calls/${encodeURIComponent(call.id)}/resolve`, body);
    } finally {
      if (current) await this.loadCalls(current);
      this.loadThreads();
    }
  }

  notify(notice) {
    this.change({ notice });
  }

  confirmDeletion(thread) {
    this.change({ deleting: { thread } });
  }

  // A dialog tells late that it was closed: the same may have been asked again by then, which is another question.
  leaveDeletion(asked) {
    if (this.state.deleting === asked) this.change({ deleting: null });
  }

  async delete(thread) {
    this.change({ deleting: null });
    try {
      await fetchJson(this.path(thread.id), { method: "DELETE" });
    } catch (error) {
      if (error.status !== 404) return this.#show(error);
    }
    this.drafts.delete(thread.id);
    if (this.id === thread.id) location.hash = toStart(this.state.route.filter);
    return this.loadThreads();
  }

  // Marks threads of the list: none, and all marks can be taken back.
  choose(ids) {
    this.change({ chosen: ids });
  }

  // Each on its own: one that fails does not keep the others. Returns how many failed, and why the last one did.
  async actOnChosen(act) {
    let failed = 0;
    let reason = "";
    for (const id of this.state.chosen) {
      try {
        await act(id);
        this.drafts.delete(id);
      } catch (error) {
        if (error.status === 401) throw error;
        if (error.status !== 404 && error.status !== 409) [failed, reason] = [failed + 1, error.message];
      }
    }
    await this.loadThreads();
    if (failed) throw new Error(`${failed} failed: ${reason}`);
    this.change({ chosen: null });
  }

  confirmRedaction(message, document = null) {
    this.change({ redacting: { thread: this.id, message, document } });
  }

  leaveRedaction(asked) {
    if (this.state.redacting === asked) this.change({ redacting: null });
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
        this.noteRefusal(error);
        throw error;
      }
    }
    this.leaveRedaction(what);
  }

  async #act(verb) {
    try {
      await post(`${this.path(this.id)}/${verb}`);
    } catch (error) {
      this.#show(error);
    }
  }

  #show(error) {
    this.noteRefusal(error);
    this.draft.problem = error.message;
    this.paint();
  }

  // The list and the like are asked for again soon anyway: losing one answer is nothing to speak of.
  async #quietly(work) {
    try {
      await work();
    } catch (error) {
      this.noteRefusal(error);
    }
  }

  noteRefusal(error) {
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

// Whether the list has `one` before `other` or at its place: the newest come first, or those that were active last.
function isBefore(other, one, sort) {
  const at = (thread) => (sort === "activity" ? thread.lastActiveAt : thread.createdAt);
  return at(one) > at(other) || (at(one) === at(other) && one.id >= other.id);
}
