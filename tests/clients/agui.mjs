// @ag-ui/client's HttpAgent at Clew's AG-UI API, and @ag-ui/langgraph's LangGraphAgent at the SDK API.
import { HttpAgent } from "@ag-ui/client";
import { LangGraphAgent } from "@ag-ui/langgraph";
import { address, key, options, play, say } from "./say.mjs";

const headers = { "X-Api-Key": key };
const tools = [{ name: "paint", description: "Paint a line.", parameters: { type: "object", properties: {} } }];

// AG-UI leaves to each agent how a client connects again: here it is a request without anything new.
class ClewAgent extends HttpAgent {
  connect(input) {
    return this.run(input);
  }
}

const http = (graph, more) => new ClewAgent({ url: `${address}/agui/${graph}`, headers, ...more });
const graph = (graphId, more) =>
  new LangGraphAgent({ deploymentUrl: address, graphId, propertyHeaders: headers, ...more });

const user = (content) => ({ id: crypto.randomUUID(), role: "user", content });
const told = (agent) => agent.messages.map((one) => [one.role, one.content]);

async function run(agent, input, seen = {}) {
  const events = [];
  await agent.runAgent(input, { onEvent: ({ event }) => void events.push(event), ...seen });
  return events;
}

async function talk(make) {
  const agent = make("talk");
  agent.addMessage(user("hi"));
  const events = await run(agent);
  say({ types: [...new Set(events.map((event) => event.type))] });
  const deltas = events.filter((event) => event.type === "TEXT_MESSAGE_CONTENT").map((event) => event.delta);
  say({ text: deltas.join(""), deltas: deltas.length });
  agent.addMessage(user("ho"));
  await run(agent);
  say({ talked: told(agent) });
}

async function httpAgent() {
  await talk(http);
  const asker = http("panel");
  asker.addMessage(user("hi"));
  await run(asker);
  say({ asked: asker.pendingInterrupts.map((one) => one.message) });
  const resume = asker.pendingInterrupts.map((one) => ({
    interruptId: one.id,
    status: "resolved",
    payload: one.message.slice(0, 1),
  }));
  await run(asker, { resume });
  say({ answered: told(asker) });
  const painter = http("painter", { initialState: { color: "blue" } });
  painter.addMessage(user("paint"));
  let call;
  await run(painter, { tools }, { onToolCallEndEvent: ({ event, toolCallArgs }) => (call = [event, toolCallArgs]) });
  say({ called: call[1], state: painter.state });
  painter.addMessage({ id: crypto.randomUUID(), role: "tool", toolCallId: call[0].toolCallId, content: "a line" });
  await run(painter, { tools });
  say({ painted: told(painter).at(-1), after: painter.state });
  const failing = http("boom");
  failing.addMessage(user("hi"));
  const events = await run(failing).catch((error) => error);
  say({ failed: events.at?.(-1) ?? String(events) });
}

async function langGraphAgent() {
  await talk(graph);
  const asker = graph("asker", { emitInterruptOutcome: true });
  asker.addMessage(user("hi"));
  await run(asker);
  say({ asked: asker.pendingInterrupts.length });
  await run(asker, { resume: [{ interruptId: asker.pendingInterrupts[0].id, status: "resolved", payload: "Ann" }] });
  say({ answered: told(asker).at(-1) });
  const older = graph("asker");
  older.addMessage(user("hi"));
  const events = await run(older);
  say({ on_interrupt: events.filter((event) => event.name === "on_interrupt").map((event) => event.value) });
  await run(older, { forwardedProps: { command: { resume: "Bob" } } });
  say({ resumed: told(older).at(-1) });
  const painter = graph("painter", { initialState: { color: "blue" } });
  painter.addMessage(user("paint"));
  await run(painter, { tools });
  const [call] = painter.messages.at(-1).toolCalls;
  painter.addMessage({ id: crypto.randomUUID(), role: "tool", toolCallId: call.id, content: "a line" });
  await run(painter, { tools });
  say({ painted: told(painter).at(-1) });
}

// Streams until the server dies.
async function begin() {
  const agent = http("held");
  agent.addMessage(user(options.go));
  let text = "";
  await agent
    .runAgent({}, {
      onTextMessageContentEvent: ({ event }) => {
        text += event.delta;
        if (text.endsWith("a slow ")) say({ thread: agent.threadId });
      },
    })
    .catch(() => {});
}

// The same with LangGraphAgent, whose next run comes after the one that was cut off.
async function graphBegin() {
  const agent = graph("held");
  agent.addMessage(user(options.go));
  let text = "";
  await agent
    .runAgent({}, {
      onTextMessageContentEvent: ({ event }) => {
        text += event.delta;
        const place = { threadId: agent.threadId, initialMessages: agent.messages.slice(0, -1) };
        if (text.endsWith("a slow ")) say({ place });
      },
    })
    .catch(() => {});
}

async function graphAgain() {
  const agent = graph("held", options.place);
  agent.addMessage(user("again"));
  await run(agent);
  say({ last: told(agent).at(-1) });
}

// A page that is loaded again, at the server that came after it.
async function connect() {
  const agent = http("held", { threadId: options.thread });
  await agent.connectAgent({}, {
    onTextMessageContentEvent: ({ textMessageBuffer, event }) =>
      say({ heard: (textMessageBuffer + event.delta).slice(-20) }),
  });
  say({ end: told(agent).slice(1) });
}

// The stop button of a front end: the request ends, and with it the run if the agent's address says so.
async function abort() {
  const agent = http("held?on_disconnect=cancel");
  agent.addMessage(user(options.go));
  let text = "";
  await agent
    .runAgent({}, {
      onTextMessageContentEvent: ({ event }) => {
        text += event.delta;
        if (text.endsWith("a slow ")) agent.abortRun();
      },
    })
    .catch(() => {});
  say({ aborted: agent.threadId });
}

await play({ httpAgent, langGraphAgent, begin, connect, graphBegin, graphAgain, abort });
