"""Which strategy, before you run: candidates, what each would take, and why the best is the best."""
