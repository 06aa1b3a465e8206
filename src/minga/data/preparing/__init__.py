"""From a data set's original form to a prepared set: shaped, split, counted, written as shards."""
