"""LangGraph execution: driver, position, streams, registry, tools and middleware."""
