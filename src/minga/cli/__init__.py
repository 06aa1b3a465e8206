"""The command line: `minga --help`. Commands import what is heavy when they are used, so that help is quick."""
