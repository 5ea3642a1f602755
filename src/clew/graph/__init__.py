"""How LangGraph runs: driver, position, streams, registry, tools and middleware."""
