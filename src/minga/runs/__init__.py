"""The description of a run: experiment, network, workload, and the directory that it writes to."""
