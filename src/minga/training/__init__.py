"""The training loop of a rank, what it keeps and records, and how it goes on when ranks change."""
