"""Documents: uploads, and extraction of their text in a confined process."""
