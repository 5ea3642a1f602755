// A page with a `useStream` hook, which the build takes from one of the two packages. The test presses its buttons.
import { createRoot } from "react-dom/client";
import { useState } from "react";
import { useStream } from "stream-hook";

const given = new URLSearchParams(location.search);

// The thread is in the address, so that a page that is loaded again has it.
function keepThread(thread) {
  given.set("thread", thread);
  history.replaceState(null, "", `?${given}`);
}

function Page() {
  const [thread, setThread] = useState(given.get("thread"));
  const [text, setText] = useState("");
  const stream = useStream({
    apiUrl: given.get("api"),
    apiKey: given.get("key"),
    assistantId: given.get("graph"),
    threadId: thread,
    onThreadId: (id) => {
      keepThread(id);
      setThread(id);
    },
    reconnectOnMount: true,
  });
  const said = stream.messages.map((one) => one.text ?? one.content);
  const asked = stream.interrupt?.value ?? stream.interrupts?.[0]?.value ?? null;
  const send = () => stream.submit({ messages: [{ type: "human", content: text }] });
  const answer = () =>
    stream.respond ? stream.respond(text) : stream.submit(null, { command: { resume: text } });
  return (
    <main>
      <input value={text} onChange={(event) => setText(event.target.value)} />
      <button onClick={() => void send()}>send</button>
      <button onClick={() => void answer()}>answer</button>
      <button onClick={() => void stream.stop()}>stop</button>
      <p>{stream.isLoading ? "busy" : "idle"}</p>
      <ol>
        {said.map((one, index) => (
          <li key={index}>{one}</li>
        ))}
      </ol>
      <blockquote>{asked && JSON.stringify(asked)}</blockquote>
      <pre>{stream.error ? String(stream.error) : ""}</pre>
    </main>
  );
}

createRoot(document.getElementById("root")).render(<Page />);
