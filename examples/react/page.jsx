// A page for the graph `refund`: it starts a run, shows the question, answers it, and survives a reload.
import { useState } from "react";
import { createRoot } from "react-dom/client";
import { useStream } from "@langchain/langgraph-sdk/react";

const given = new URLSearchParams(location.search);

function keepThread(id) {
  given.set("thread", id);
  history.replaceState(null, "", `?${given}`);
}

function Refunds() {
  const [thread, setThread] = useState(given.get("thread"));
  const [amount, setAmount] = useState("42");
  const stream = useStream({
    apiUrl: given.get("api") ?? "http://127.0.0.1:8124",
    assistantId: "refund",
    threadId: thread,
    onThreadId: (id) => {
      keepThread(id);
      setThread(id);
    },
    reconnectOnMount: true,
    // After an answer, what the thread asks now is read again.
    fetchStateHistory: true,
  });
  const question = stream.interrupt?.value?.question;
  const decide = (approved) => stream.submit(null, { command: { resume: { approved } } });
  return (
    <main>
      <h1>Refunds</h1>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void stream.submit({ amount: Number(amount) });
        }}
      >
        <label>
          Amount <input inputMode="numeric" value={amount} onChange={(event) => setAmount(event.target.value)} />
        </label>
        <button disabled={stream.isLoading || Boolean(question)}>Ask for it</button>
      </form>
      {question && (
        <section aria-label="Question">
          <p>{question}</p>
          <button onClick={() => void decide(true)}>Approve</button>
          <button onClick={() => void decide(false)}>Reject</button>
        </section>
      )}
      {stream.isLoading && <p>working</p>}
      {!question && stream.values?.outcome && <p role="status">Outcome: {stream.values.outcome}</p>}
      {stream.error && <p role="alert">{String(stream.error)}</p>}
    </main>
  );
}

createRoot(document.getElementById("root")).render(<Refunds />);
