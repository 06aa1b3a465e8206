"""Tables of a report: the same rows for HTML, Markdown and CSV."""
