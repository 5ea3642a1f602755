"""MCP: each assistant is a tool, and a tool call is a run of its graph."""
