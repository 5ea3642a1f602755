// Server-sent events over fetch, for EventSource cannot send a key. Comes back after every loss with the last id it saw.

import { ask } from "./api.js";

const LONGEST_PAUSE = 8_000;
// The server says something every 15 seconds; a connection that is silent for three times that is a dead one.
const SILENCE = 45_000;
// A browser opens few connections to a server: a hidden tab closes its own until it is visible again.
const HIDDEN = 20_000;

// Runs until the signal; throws when the server says no for good. `onState` hears "open" and "lost"; `onGap`, that the
// log no longer goes as far as it did, for an older copy of the database was put back.
export async function follow(path, { after, signal, onEvent, onGap, onState }) {
  let last = after;
  let failures = 0;
  while (!signal.aborted) {
    await visible(signal);
    try {
      await listen(path, last, signal, onState, (frame) => {
        failures = 0;
        if (frame.id) last = Number(frame.id);
        const event = JSON.parse(frame.data);
        if (frame.event === "gap") onGap();
        else if (event.eventType) onEvent(event); // what is none is an error, after which the stream ends
      });
    } catch (error) {
      if (signal.aborted) return;
      if (error.passes === false) throw error;
    }
    onState("lost");
    await pause(backoff(failures++), signal);
  }
}

export function backoff(failures) {
  return Math.min(LONGEST_PAUSE, 300 * 2 ** failures) * (0.75 + Math.random() / 2);
}

// Ends early when the machine is online again.
export function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      removeEventListener("online", done);
      resolve();
    };
    const timer = setTimeout(done, milliseconds);
    addEventListener("online", done);
    signal?.addEventListener("abort", done, { once: true });
  });
}

async function listen(path, last, signal, onState, onFrame) {
  const control = new AbortController();
  const quit = () => control.abort();
  const hide = () => {
    clearTimeout(hidden);
    if (document.hidden) hidden = setTimeout(quit, HIDDEN);
  };
  let hidden;
  let silence = setTimeout(quit, SILENCE);
  signal.addEventListener("abort", quit, { once: true });
  document.addEventListener("visibilitychange", hide);
  try {
    const headers = last ? { "Last-Event-ID": String(last) } : {};
    const answer = await ask(path, { headers, signal: control.signal });
    onState("open");
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    const parse = parser(onFrame);
    for (let read = await reader.read(); !read.done; read = await reader.read()) {
      clearTimeout(silence);
      silence = setTimeout(quit, SILENCE);
      parse(read.value);
    }
  } finally {
    clearTimeout(silence);
    clearTimeout(hidden);
    signal.removeEventListener("abort", quit);
    document.removeEventListener("visibilitychange", hide);
  }
}

// Takes the text in pieces as they come and hands out whole events.
export function parser(onFrame) {
  let rest = "";
  let fields = {};
  return (piece) => {
    const lines = (rest + piece).split("\n");
    rest = lines.pop();
    for (const line of lines.map((raw) => raw.replace(/\r$/, ""))) {
      if (!line) {
        if (fields.data !== undefined) onFrame(fields);
        fields = {};
        continue;
      }
      const [, name, value] = /^([^:]*):? ?(.*)$/.exec(line);
      fields[name] = name === "data" && fields.data !== undefined ? `${fields.data}\n${value}` : value;
    }
  };
}

function visible(signal) {
  return new Promise((resolve) => {
    const look = () => {
      if (document.hidden && !signal.aborted) return;
      document.removeEventListener("visibilitychange", look);
      resolve();
    };
    document.addEventListener("visibilitychange", look);
    signal.addEventListener("abort", look, { once: true });
    look();
  });
}
