// A thread's log, folded into what is shown. Every event counts once, in the order of its sequence.

export class Timeline {
  constructor(after) {
    this.after = after; // what came before is not shown
    this.last = after;
    this.rounds = [];
    this.status = "running";
    this.waiting = new Set();
    this.drafts = new Map();
    this.said = new Set(); // messages that are whole: a piece of one that comes late is nothing new
    this.isDeleted = false;
  }

  // False for an event that was here before.
  add({ sequence, eventType, timestamp, data }) {
    if (sequence !== null) {
      if (sequence <= this.last) return false;
      this.last = sequence;
    }
    this[`on_${eventType}`]?.(data, timestamp);
    return true;
  }

  get isOver() {
    return this.status === "completed" || this.status === "failed" || this.status === "stopped";
  }

  // What has been said, word for word.
  get texts() {
    return new Set(this.rounds.flatMap(({ messages }) => messages.map(({ text }) => text)));
  }

  get round() {
    return this.rounds.at(-1);
  }

  on_workflow_started(data, at) {
    const round = this.#round(data.round);
    Object.assign(round, { began: round.began ?? at, ended: null, status: "running", reason: "" });
    this.status = "running";
  }

  on_round_started(data) {
    this.#round(data.round);
    this.status = "pending";
  }

  on_user_msg(data, at) {
    this.#say(data, at, "user");
  }

  on_assistant_msg(data, at) {
    this.said.add(data.ref);
    this.drafts.delete(data.ref);
    const round = this.#round(data.round);
    round.tokensIn += data.tokens_in ?? 0;
    round.tokensOut += data.tokens_out ?? 0;
    this.#say(data, at, "assistant");
  }

  // Live only: the whole message follows, and takes the place of its draft.
  on_llm_token({ message_id, token, offset, agent }) {
    if (this.said.has(message_id)) return;
    const said = [...token].length;
    const draft = this.drafts.get(message_id) ?? { id: message_id, agent, text: offset ? "… " : "", next: offset };
    if (offset !== draft.next) draft.text += " … ";
    draft.text += token;
    draft.next = offset + said;
    this.drafts.set(message_id, draft);
  }

  on_log(data, at) {
    const { message, progress, level, agent, attempt, ref } = data;
    const round = this.#round(data.round);
    if (progress !== null) round.progress = progress;
    round.activity.push({ kind: "log", id: data.record_id, text: message, level, agent, attempt, at, isRecovery: ref?.startsWith("recovered:") });
  }

  on_stage_changed(data, at) {
    this.#round(data.round).activity.push({ kind: "stage", id: data.record_id, text: data.stage, at });
  }

  on_stage_completed(data, at) {
    const stages = this.#round(data.round).activity.filter((one) => one.kind === "stage" && one.text === data.stage);
    if (stages.length) Object.assign(stages.at(-1), { output: data.output, ended: at, isHeld: false });
  }

  on_tool_call(data, at) {
    const { call_id, name, args } = data;
    this.#round(data.round).activity.push({ kind: "call", id: call_id, text: name, args, at });
  }

  on_tool_result({ round, call_id, ok, result, error }, at) {
    const call = this.#round(round).activity.find((one) => one.kind === "call" && one.id === call_id);
    if (call) Object.assign(call, { ok, result: ok ? result : error, ended: at });
  }

  on_suspension({ call_id, round, name, prompt }, at) {
    this.waiting.add(call_id);
    this.status = "blocked";
    const wait = { kind: "wait", id: call_id, text: name || "for an answer", prompt, at };
    const { activity } = this.#round(round);
    // What it interrupts begins anew after the answer.
    for (const one of activity) if (one.kind === "stage" && !one.ended) Object.assign(one, { ended: at, isHeld: true });
    activity.push(wait);
  }

  on_approval_required(data, at) {
    this.on_suspension(data, at);
  }

  on_resolution(data, at) {
    const { call_id, outcome, answer, by } = data;
    this.waiting.delete(call_id);
    if (this.status === "blocked" && !this.waiting.size) this.status = "running";
    const { activity } = this.#round(data.round);
    const wait = activity.findLast((one) => one.kind === "wait" && one.id === call_id);
    if (wait) Object.assign(wait, { outcome, by, ended: at });
    activity.push({ kind: "answer", id: data.record_id, text: outcome, answer, by, at });
  }

  on_workflow_completed(data, at) {
    this.#end(data, at, "completed");
  }

  on_workflow_failed(data, at) {
    this.#end(data, at, "failed");
  }

  on_workflow_stopped(data, at) {
    this.#end(data, at, "stopped");
  }

  on_redacted({ message_id, document_id }) {
    for (const round of this.rounds) {
      if (round.messages.some((message) => message.id === message_id && message.role === "user")) round.lacksInput = true;
      if (!document_id) {
        round.messages = round.messages.filter((message) => message.id !== message_id);
        // What a stage gave may quote the message; the server does not tell it any more either.
        for (const one of round.activity) delete one.output;
      }
      for (const message of round.messages) {
        if (message.id === message_id) message.documents = message.documents.filter((id) => id !== document_id);
      }
    }
  }

  on_workflow_deleted() {
    this.isDeleted = true;
  }

  #say(data, at, role) {
    const { record_id: id, content, documents, agent = "", marker } = data;
    const round = this.#round(data.round);
    if (data.redacted) {
      if (role === "user") round.lacksInput = true;
      return;
    }
    round.messages.push({ id, role, agent, marker, text: textOf(content), documents, at });
  }

  #end(data, at, status) {
    Object.assign(this.#round(data.round), { ended: at, status, reason: data.reason, error: data.error });
    this.status = status;
    this.waiting.clear();
    this.drafts.clear();
  }

  #round(number) {
    let round = this.rounds.find((one) => one.number === number);
    if (!round) {
      round = { number, messages: [], activity: [], progress: null, status: "running", reason: "", error: "", tokensIn: 0, tokensOut: 0, began: null, lacksInput: false };
      this.rounds.push(round);
    }
    return round;
  }
}

// A text, or parts as model clients have them.
function textOf(content) {
  if (typeof content === "string") return content;
  return content.map((part) => (typeof part.text === "string" ? part.text : `[${part.type ?? "part"}]`)).join("\n");
}
