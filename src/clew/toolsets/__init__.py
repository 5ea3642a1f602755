"""Toolsets: tools of MCP servers, and a few of Clew's own, for agents."""
