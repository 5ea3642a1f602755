"""Documents made of Markdown: one parser, one writer a format."""
