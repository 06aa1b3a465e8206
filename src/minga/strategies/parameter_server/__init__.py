"""Parameter servers: workers push gradients, servers update their part of the parameters and survive on disk."""
