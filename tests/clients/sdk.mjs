// @langchain/langgraph-sdk as its users call it.
import { Client } from "@langchain/langgraph-sdk";
import { address, all, key, options, play, say } from "./say.mjs";

const client = new Client({ apiUrl: address, apiKey: key });
const message = (content) => ({ messages: [{ type: "human", content }] });
const last = (values) => values.messages.at(-1).content;

async function walk() {
  const { thread_id } = await client.threads.create();
  const streamMode = ["values", "messages-tuple", "updates"];
  const parts = await all(client.runs.stream(thread_id, "talk", { input: message("hi"), streamMode }));
  say({ streamed: parts });
  say({ waited: last(await client.runs.wait(thread_id, "talk", { input: message("ho") })) });
  const { run_id } = await client.runs.create(thread_id, "talk", { input: message("he") });
  say({ joined: last(await client.runs.join(thread_id, run_id)) });
  say({ stateless: await all(client.runs.stream(null, "talk", { input: message("x"), streamMode: "values" })) });
  say({ history: (await client.threads.getHistory(thread_id)).length });
  const found = await client.assistants.search({ graphId: "talk" });
  say({ assistants: found.map((one) => one.graph_id) });
}

async function interrupt() {
  const { thread_id } = await client.threads.create();
  const parts = await all(client.runs.stream(thread_id, "asker", { input: message("hi"), streamMode: "updates" }));
  say({ asked: parts.find((part) => part.data?.__interrupt__).data.__interrupt__[0] });
  say({ state: (await client.threads.getState(thread_id)).tasks[0].interrupts[0].value });
  const values = await client.runs.wait(thread_id, "asker", { command: { resume: "Ann" } });
  say({ answered: last(values) });
}

// Streams until the server dies.
async function begin() {
  const { thread_id } = await client.threads.create();
  let run;
  const stream = client.runs.stream(thread_id, "held", {
    input: message(options.go),
    streamMode: "messages-tuple",
    streamResumable: true,
    onRunCreated: (one) => (run = one),
  });
  let text = "";
  for await (const part of stream) {
    if (part.event === "messages") text += part.data[0].content;
    if (text.endsWith("a slow ")) say({ place: { thread_id, run_id: run.run_id, lastEventId: part.id } });
  }
}

// Joins that run at the server that came after it.
async function rejoin() {
  const { thread_id, run_id, lastEventId } = options.place;
  const parts = await all(client.runs.joinStream(thread_id, run_id, { lastEventId, streamMode: "messages-tuple" }));
  say({ parts: parts.map((part) => part.event) });
  say({ text: parts.filter((part) => part.event === "messages").map((part) => part.data[0].content).join("") });
  say({ values: last((await client.threads.getState(thread_id)).values) });
}

await play({ walk, interrupt, begin, rejoin });
