"""LangGraph's thread protocol: commands to a thread, and its events over all runs."""
