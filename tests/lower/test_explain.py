"""What `explain` counts: occupancy, and which operation an instruction is of."""

from __future__ import annotations

import pytest

from reftile.lower.explain.occupancy import MULTIPROCESSORS, occupancy, registers_of_block
from reftile.lower.ptx.emit import instructions_of
from tests.lower.on_machine import lowered


@pytest.mark.parametrize(
    ("target", "warps", "shared_bytes", "registers", "blocks", "limiter"),
    [
        # Threads for threads: 2048 / 256 and 1536 / 256.
        ("sm_80", 8, 0, 32, 8, {"registers", "threads"}),
        ("sm_89", 8, 0, 32, 6, {"threads"}),
        # One warp: 32 and 24 blocks at most.
        ("sm_90a", 1, 0, 8, 32, {"blocks"}),
        ("sm_89", 1, 0, 16, 24, {"blocks"}),
        # 164 KB hold two blocks of 81 KB with their kilobyte, and one of 82 KB.
        ("sm_80", 4, 81 << 10, 32, 2, {"shared memory"}),
        ("sm_80", 4, (81 << 10) + 1, 32, 1, {"shared memory"}),
        # 255 registers in units of 256 a warp: 65536 / (8 x 8192).
        ("sm_90a", 8, 0, 255, 1, {"registers"}),
        # The most shared memory that a block may have leaves room for one.
        ("sm_90a", 4, 232_448, 32, 1, {"shared memory"}),
        ("sm_80", 4, 166_912, 32, 1, {"shared memory"}),
        ("sm_89", 4, 101_376, 32, 1, {"shared memory"}),
    ],
)
def test_blocks_and_what_limits_them(
    target: str, warps: int, shared_bytes: int, registers: int, blocks: int, limiter: set[str]
) -> None:
    limits = occupancy(target, warps, shared_bytes, registers)
    assert min(limit.blocks for limit in limits) == blocks
    assert {limit.resource for limit in limits if limit.blocks == blocks} == limiter


def test_registers_come_in_units_and_warps_in_fours() -> None:
    assert registers_of_block(168, 12) == 12 * 5376
    assert registers_of_block(33, 1) == 4 * 1280


def test_an_unknown_target_has_no_occupancy() -> None:
    assert occupancy("gfx942", 4, 0, 32) == ()
    assert all(m.registers == 65_536 for m in MULTIPROCESSORS.values())


@pytest.mark.parametrize("name", ["gemm_sm80", "gemm_sm90"])
def test_every_instruction_is_of_one_operation(name: str) -> None:
    found = lowered(name)
    counted = [line for _, lines in instructions_of(found.passes.kernel) for line in lines]
    text = found.ptx.partition("\n{\n")[2]
    body = [line.strip() for line in text.splitlines()]
    body = [line for line in body if not line.startswith((".reg", "}"))]
    # What loads the parameters stands in front of the first operation.
    assert sorted(counted) == sorted(body[len(body) - len(counted) :])
    assert len(counted) > 0.9 * len(body)
