"""How a model is asked: over HTTP, through a program, or by rules where there is none."""
