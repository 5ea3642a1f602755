"""SDK API: the routes that `langgraph-sdk` calls, answered as LangGraph Server does."""
