"""Examples are scripts that import their neighbours: put their folder where scripts have it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
