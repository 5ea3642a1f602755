"""A graph of your own that remembers a person across threads and processes.

python examples/remembering_agent.py "My name is Ada."
python examples/remembering_agent.py "Who am I?"
"""

import asyncio
import sys
from uuid import uuid4

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda
from langgraph.graph import START, MessagesState, StateGraph

from clew import AgentNode, create_checkpointer, create_graph_store

# Works offline; put any LangChain chat model here, or its name: "openai:gpt-5".
model = RunnableLambda(lambda prompt: AIMessage(f"I remember {[message.text for message in prompt[:-1]]}."))


async def main(said: str, url: str = "sqlite:///remembering.db") -> None:
    async with create_checkpointer(url) as checkpointer, create_graph_store(url) as store:
        builder = StateGraph(MessagesState)
        builder.add_node("agent", AgentNode(model, use_graph_chat_history=True))
        builder.add_edge(START, "agent")
        graph = builder.compile(checkpointer=checkpointer, store=store)
        person = {"thread_id": str(uuid4()), "history_key": "telegram:42"}  # a new thread, the same person
        state = await graph.ainvoke({"messages": [("user", said)]}, {"configurable": person})
        print(state["messages"][-1].text)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
