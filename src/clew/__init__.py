"""Clew, a durable backend for LangGraph agents."""

__version__ = "0.1.0"
