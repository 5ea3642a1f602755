"""Interview: questions about a document, and a better document at the end."""
