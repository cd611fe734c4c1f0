"""`python -m reftile.cli` is the `reftile` command."""

from reftile.cli import main

main()
