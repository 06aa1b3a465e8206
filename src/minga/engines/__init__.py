"""What runs an experiment, a script or a function, and says what came of it: here, or as a part of another's run."""
