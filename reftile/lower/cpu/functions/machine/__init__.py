"""Instructions that Python has no operator for, typed to the bit: nothing is widened.

Carriers are those of `DType.carrier`. Every function here is one or a few LLVM instructions. Where
they are: `floats`, `integers`, `conversions` (one number from others), `memory`, `atomics`,
`streams` (memory past the caches), `products` (BLAS), `host` (the launch that a block is of), and
`instructions`, of which these are made.
"""

from reftile.lower.cpu.functions.machine.atomics import *  # noqa: F403
from reftile.lower.cpu.functions.machine.conversions import *  # noqa: F403
from reftile.lower.cpu.functions.machine.floats import *  # noqa: F403
from reftile.lower.cpu.functions.machine.host import *  # noqa: F403
from reftile.lower.cpu.functions.machine.instructions import *  # noqa: F403
from reftile.lower.cpu.functions.machine.integers import *  # noqa: F403
from reftile.lower.cpu.functions.machine.memory import *  # noqa: F403
from reftile.lower.cpu.functions.machine.products import *  # noqa: F403
from reftile.lower.cpu.functions.machine.streams import *  # noqa: F403
