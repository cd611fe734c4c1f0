"""A NumPy executor of PTX text: the judge of what a compiler emits.

It shares nothing with reftile. Formulas come from NVIDIA's PTX ISA document. Warps are 32-lane
arrays under a seeded scheduler; asynchronous copies and products take effect late; races, missing
fences, wrong phases and deadlocks are errors with a place. An instruction that it does not know is
an error, never ignored.
"""

from .errors import (
    AccessError,
    BarrierError,
    DeadlockError,
    DivergenceError,
    InFlightError,
    LaunchError,
    MachineError,
    ParseError,
    ProxyError,
    PtxError,
    RaceError,
    TrapError,
    UninitialisedRead,
    UnsupportedInstruction,
)
from .machine import Report, run
from .tensormap import TensorMap

__all__ = [
    "AccessError",
    "BarrierError",
    "DeadlockError",
    "DivergenceError",
    "InFlightError",
    "LaunchError",
    "MachineError",
    "ParseError",
    "ProxyError",
    "PtxError",
    "RaceError",
    "Report",
    "TensorMap",
    "TrapError",
    "UninitialisedRead",
    "UnsupportedInstruction",
    "run",
]
