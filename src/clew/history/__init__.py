"""Chat history, the agent node, conversation keys and LangGraph's store: usable in any graph without the server."""
