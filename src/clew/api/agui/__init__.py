"""AG-UI: agent user interfaces run an assistant's graph and follow it as typed events."""
