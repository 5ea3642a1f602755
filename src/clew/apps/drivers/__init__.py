"""Model drivers: over HTTP, through a command-line program, or by rules."""
