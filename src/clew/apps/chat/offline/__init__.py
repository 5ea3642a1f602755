"""Rules that plan a chat round where no model is configured."""
