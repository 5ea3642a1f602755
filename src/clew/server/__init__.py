"""Composition: opens the database, the engine, HTTP, the channels and the SDK API, and closes them."""
