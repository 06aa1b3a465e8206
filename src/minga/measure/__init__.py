"""What happened in a run: events on disk, spans of time."""
