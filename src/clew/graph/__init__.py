"""The only room that knows how LangGraph runs: bridge, checkpoints, store, chat history, the agent node."""
