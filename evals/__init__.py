"""Evaluation of the chat app: realistic prompts with their files, run through a real server and scored by rules."""
