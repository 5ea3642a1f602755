"""LangGraph's checkpointer on our database: the saver, its rows, deltas, cache and serializer."""
