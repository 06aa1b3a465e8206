"""One replica of a model: its flat vectors, its optimizer, its buffers, its weights on disk."""
