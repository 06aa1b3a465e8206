"""`python -m minga` is `minga`."""

from minga.cli.main import main

main()
