"""A report as files: HTML, Markdown, CSV."""
