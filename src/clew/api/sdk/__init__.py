"""The face that LangGraph's own clients know: what `langgraph-sdk` asks for, answered as LangGraph Server does."""
