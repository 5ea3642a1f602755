"""OpenAI-compatible API: each assistant is a model, and a chat completion is a run of its graph."""
