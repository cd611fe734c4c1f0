"""How many blocks a multiprocessor holds at a time, and what decides it.

Source: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; every block
also takes a kilobyte of shared memory for the system from compute capability 8.0 on (same guide,
"Shared Memory" of 8.x and 9.0). Registers go to a warp in units of 256, and to a block by fours of
warps (CUDA occupancy calculator).
"""

from __future__ import annotations

from dataclasses import dataclass

from reftile.lower.explain.facts import Limit

SYSTEM_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Multiprocessor:
    """What one multiprocessor has."""

    shared_bytes: int
    registers: int
    threads: int
    blocks: int


MULTIPROCESSORS = {
    "sm_80": Multiprocessor(164 << 10, 65_536, 2048, 32),
    "sm_89": Multiprocessor(100 << 10, 65_536, 1536, 24),
    "sm_90a": Multiprocessor(228 << 10, 65_536, 2048, 32),
    "sm_100": Multiprocessor(228 << 10, 65_536, 2048, 32),
    "sm_120": Multiprocessor(100 << 10, 65_536, 1536, 24),
}


def registers_of_block(registers: int, warps: int) -> int:
    """Registers that a block of so many warps is given."""
    each = -(-32 * registers // 256) * 256
    return each * (-(-warps // 4) * 4)


def occupancy(target: str, warps: int, shared_bytes: int, registers: int) -> tuple[Limit, ...]:
    """What each resource allows, or nothing for a target that is not in the table."""
    have = MULTIPROCESSORS.get(target)
    if have is None:
        return ()
    threads, block_bytes = 32 * warps, shared_bytes + SYSTEM_BYTES
    limits = [
        Limit(
            "shared memory",
            have.shared_bytes // block_bytes,
            f"{have.shared_bytes} / ({shared_bytes} + {SYSTEM_BYTES} for the system)",
        )
    ]
    if registers:
        block = registers_of_block(registers, warps)
        each = block // (-(-warps // 4) * 4)
        limits.append(
            Limit(
                "registers",
                have.registers // block,
                f"{have.registers} / ({-(-warps // 4) * 4} warps x {each})",
            )
        )
    limits.append(Limit("threads", have.threads // threads, f"{have.threads} / {threads}"))
    limits.append(Limit("blocks", have.blocks, f"{have.blocks} at most"))
    return tuple(limits)
