"""What kernels are made for: which operations a target has, and how much shared memory.

Records name the targets that introduced an operation. Devices of other generations run the kernels
of the one whose operations they share: `instructions` names it.

Sources: CUDA programming guide, "Technical Specifications per Compute Capability" (163, 99, 227 KB
for 8.0, 8.9 and 12.0, 9.0 and 10.0); CDNA3 ISA, LDS; PTX ISA, release notes (which version knows a
target).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """A target of kernels.

    instructions: the target of the records whose operations it has. shared_bytes: what one block
    may have. lanes: of a warp. ptx_version: the oldest that knows it and all that is emitted.
    """

    name: str
    instructions: str
    shared_bytes: int
    lanes: int = 32
    ptx_version: str = "8.6"

    @property
    def capability(self) -> int:
        """The compute capability, ten times: 90 for sm_90a; 0 where the maker has none."""
        return int(self.name[3:].rstrip("a")) if self.name.startswith("sm_") else 0


TARGETS: dict[str, Target] = {
    t.name: t
    for t in (
        Target("sm_80", "sm_80", 166_912),
        Target("sm_89", "sm_80", 101_376),
        Target("sm_90a", "sm_90a", 232_448),
        Target("sm_100", "sm_80", 232_448),
        Target("sm_120", "sm_80", 101_376, ptx_version="8.7"),
        Target("gfx942", "gfx942", 65_536, lanes=64, ptx_version=""),
    )
}
"""All of them. On sm_100 and sm_120 only what sm_80 has is used: nothing of theirs alone."""


def instructions_of(name: str) -> str:
    """The target of the records whose operations a target has; an unknown one has its own."""
    found = TARGETS.get(name)
    return found.instructions if found is not None else name
