"""Run the fuzzer, or one program of it again.

python -m reftile.conformance.fuzz --programs 200 --seed 7
python -m reftile.conformance.fuzz --recipe "1 0 3"
"""

from __future__ import annotations

import argparse
import sys

from reftile.conformance.fuzz.choices import read_recipe
from reftile.conformance.fuzz.generate import program_of_recipe
from reftile.conformance.fuzz.oracles import Failure
from reftile.conformance.fuzz.run import fuzz, replay

from reftile.ir.print import show


def main() -> int:
    """Return 1 if something failed."""
    parser = argparse.ArgumentParser(prog="python -m reftile.conformance.fuzz")
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=None, help="stop after this time")
    parser.add_argument("--recipe", default=None, help="check one program again")
    options = parser.parse_args()
    if options.recipe is not None:
        print(show(program_of_recipe(read_recipe(options.recipe)).kernel))
        try:
            replay(options.recipe)
        except Failure as failure:
            print(failure)
            return 1
        return 0
    result = fuzz(options.programs, options.seed, options.seconds, print)
    for line in result.lines():
        print(line)
    return 1 if result.failures else 0


if __name__ == "__main__":
    sys.exit(main())
