"""The `reftile` command: `reftile --help` lists what it does.

Exit codes: 0 all is well; 1 something was found (a check failed, a suite has failures); 2 the input
    or the
command line is wrong; 3 this machine cannot do it; 4 reftile itself is at fault; 130 stopped by
Ctrl-C.
"""

from __future__ import annotations

import sys

from reftile.cli.app import execute

__all__ = ["main"]


def main() -> None:
    """Run the command line with the arguments of the process."""
    raise SystemExit(execute(sys.argv[1:]))
