"""How a model is asked: over HTTP, or by rules where there is none."""
