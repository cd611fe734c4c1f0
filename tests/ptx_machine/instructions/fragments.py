"""How matrix operands are spread over the registers of a warp.

g = lane / 4 and t = lane % 4 throughout; a 32-bit register holds P = 32 / width neighbours along k.
Source: PTX ISA, "Matrix Fragments for mma" and "Register Fragments" of wgmma.
"""

from __future__ import annotations

import numpy as np

from tests.ptx_machine.numbers import F16, canonical, decode_fast, encode

WIDTH = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "f64": 64}
G, T = np.arange(32) // 4, np.arange(32) % 4


def elements_of(raw: np.ndarray, kind: str) -> np.ndarray:
    """Return float64 (int64 for integers) values of memory elements of unsigned type."""
    if kind == "s8":
        return raw.view(np.int8).astype(np.int64)
    if kind == "u8":
        return raw.astype(np.int64)
    if kind == "f64":
        return raw.view(np.float64)
    return decode_fast(raw, kind).astype(np.float64)


def split_registers(registers: list[np.ndarray], kind: str) -> np.ndarray:
    """Return unsigned elements [register, lane, P] of packed registers."""
    width = WIDTH[kind]
    stacked = np.ascontiguousarray(np.stack(registers))
    return stacked.view(f"u{width // 8}").reshape(len(registers), 32, -1)


def operand_a(registers: list[np.ndarray], kind: str, m: int) -> np.ndarray:
    """Return A [m, k] (m 8 or 16): register j holds row g + 8 (j % 2), k from P t + 4 P (j / 2)."""
    parts = elements_of(split_registers(registers, kind), kind)
    count, _, p = parts.shape
    halves = m // 8
    out = np.zeros((m, count // halves * 4 * p), parts.dtype)
    for j in range(count):
        for e in range(p):
            out[G + 8 * (j % halves), p * T + 4 * p * (j // halves) + e] = parts[j, :, e]
    return out


def operand_b(registers: list[np.ndarray], kind: str) -> np.ndarray:
    """Return B [k, 8]: register j holds column g, k from P t + 4 P j."""
    parts = elements_of(split_registers(registers, kind), kind)
    count, _, p = parts.shape
    out = np.zeros((count * 4 * p, 8), parts.dtype)
    for j in range(count):
        for e in range(p):
            out[p * T + 4 * p * j + e, G] = parts[j, :, e]
    return out


def accumulator(registers: list[np.ndarray], kind: str, m: int) -> np.ndarray:
    """Return C [m, n]: per 8 columns m / 8 pairs; row g + 8 i, columns 2 t and 2 t + 1."""
    halves = m // 8
    if kind == "f16":
        value = elements_of(split_registers(registers, "f16"), "f16")
        value = value.transpose(0, 2, 1).reshape(-1, halves, 2, 32)
    else:
        stacked = np.stack(registers)
        value = {
            "f32": lambda x: x.view(np.float32).astype(np.float64),
            "s32": lambda x: x.view(np.int32).astype(np.int64),
            "f64": lambda x: x.view(np.float64),
        }[kind](stacked).reshape(-1, halves, 2, 32)
    blocks = value.reshape(value.shape[0], halves, 2, 8, 4)
    return blocks.transpose(1, 3, 0, 4, 2).reshape(m, -1)


def to_registers(matrix: np.ndarray, kind: str, saturate: bool = False) -> np.ndarray:
    """Return unsigned registers [count, 32] of D [m, n], rounded once to its type."""
    m, n = matrix.shape
    blocks = (
        matrix.reshape(m // 8, 8, n // 8, 4, 2)
        .transpose(2, 0, 4, 1, 3)
        .reshape(n // 8, m // 8, 2, 32)
    )
    match kind:
        case "f16":
            bits = encode(blocks, F16).astype(np.uint32)
            return (bits[:, :, 0] | bits[:, :, 1] << np.uint32(16)).reshape(-1, 32)
        case "f32":
            return canonical(blocks.astype(np.float32)).view(np.uint32).reshape(-1, 32)
        case "s32":
            blocks = np.clip(blocks, -(2**31), 2**31 - 1) if saturate else blocks
            return blocks.astype(np.int64).astype(np.uint32).reshape(-1, 32)
    return canonical(np.ascontiguousarray(blocks)).view(np.uint64).reshape(-1, 32)
