"""What several folders of tests have in common; what users profit from is in `minga.testing`."""
