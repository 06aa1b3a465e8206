"""BatchNorm over the samples of all ranks: how layers normalise, and the statistics that they keep."""
