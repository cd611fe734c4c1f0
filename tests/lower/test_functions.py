"""Functions that targets have no instruction for: each keeps to the accuracy class of its record.

The judge is the oracle of the conformance suite; what is judged are the bodies, run by the
interpreter, and the printed text, run by the PTX executor.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from reftile.conformance.limits import limit_for
from reftile.conformance.oracle.answer import Call
from reftile.conformance.oracle.floats import FLOAT_ORACLES
from reftile.conformance.oracle.functions import FUNCTION_ORACLES

from reftile.interp.launch import interpret
from reftile.interp.pure import evaluate
from reftile.interp.values import Tile
from reftile.ir.core import Block, Op, Value
from reftile.ir.diagnostics import ReftileError
from reftile.ir.dtypes import DTYPES
from reftile.ir.numbers import decode, encode
from reftile.ir.ops import OPS
from reftile.ir.parse import parse
from reftile.ir.types import scalar
from reftile.lower.functions.angle import FAR, TWO_BY_PI
from reftile.lower.functions.library import BY_WAY_OF_F32, FUNCTIONS, body_of
from reftile.lower.pipeline import lower
from reftile.lower.ptx import emit
from reftile.lower.ptx.assemble import assemble, find_ptxas
from reftile.lower.ptx.storage import Storage
from reftile.lower.ptx.writer import Held, Writer
from tests.lower.on_machine import launch, one_tile
from tests.lower.test_table import is_legal
from tests.ptx_machine.harness import execute, kernel

Codes = np.ndarray
SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1.1754942e-38]
SPECIAL += [2.0, -2.0, 3.0, -3.0, 0.5, -0.5, 3.4028235e38, -3.4028235e38, 8388609.0, 16777217.0]
EDGES = [FAR, 2.0**-13, 2.0**-25, 0.85, 0.8, 4.0, 88.72284, 89.41599, -17.328680, -25.0, -30.0]
EDGES += [-0.25, 0.5, 105615.0, 1.5707964, 3.1415927, 0.7853982, 33.0, 16367173.0 * 2.0**72]


TWO = ("atan2", "fpowi", "pow", "remf")
"""Functions of two operands."""


def dtypes_of(name: str, dtype: str) -> list[str]:
    if name == "fpowi":
        return [dtype, "i32" if dtype == "f32" else "i16"]
    return [dtype] * (2 if name in TWO else 1)


def operation(name: str, dtype: str) -> Op:
    kinds = [scalar(DTYPES[d]) for d in dtypes_of(name, dtype)]
    ports = OPS[name].definition.operands
    return OPS[name](tuple(map(Value, kinds, (p.name for p in ports))), (kinds[0],), {})


def run_body(block: Block, values: dict[Value, np.ndarray]) -> list[np.ndarray]:
    """Evaluate a body by the records of its operations, for many elements at once.

    Both ways of a branch are gone, and a loop as often as any element does; then it is chosen.
    """
    for op in block.ops:
        if op.name in ("yield", "continue"):
            return [values[v] for v in op.operands]
        if op.name == "if":
            ways = [run_body(region.block, values) for region in op.regions]
            condition = values[op.operands[0]].astype(bool)
            for result, then, otherwise in zip(op.results, *ways, strict=True):
                values[result] = np.where(condition, then, otherwise)
            continue
        if op.name == "for":
            _, count, _, carried = (values[v] for v in op.operands)
            (region,) = op.regions
            for i in range(max(count.max(), 0)):
                (new,) = run_body(region.block, values | {region.block.arguments[1]: carried})
                carried = np.where(i < count, new, carried)
            values[op.results[0]] = carried
            continue
        (tile,) = evaluate(op, [Tile(values[v]) for v in op.operands])
        values[op.results[0]] = np.asarray(tile.data)
    raise AssertionError("a body ends with yield")


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_body_keeps_to_the_records(name: str, dtype: str) -> None:
    body = body_of(operation(name, dtype))
    assert body is not None
    for op in body.walk():
        if not op.regions and op.name not in ("yield", "continue"):
            assert is_legal(op), op


def decoded(codes: Codes, dtype: str) -> np.ndarray:
    kind = DTYPES[dtype]
    return np.asarray(decode(codes.view(kind.storage), kind))


def by_interpreter(name: str, dtype: str, operands: Sequence[Codes]) -> Codes:
    body = body_of(operation(name, dtype))
    assert body is not None
    kind = DTYPES[dtype]
    given = [decoded(x, d) for x, d in zip(operands, dtypes_of(name, dtype), strict=True)]
    (found,) = run_body(body, dict(zip(body.arguments, given, strict=True)))
    return np.broadcast_to(np.asarray(encode(found, kind)), operands[0].shape).view(
        operands[0].dtype
    )


def by_executor(name: str, dtype: str, operands: Sequence[Codes]) -> Codes:
    """256 threads in each block, one element each."""
    op = operation(name, dtype)
    size = operands[0].itemsize
    register, load = ("f", "f32") if size == 4 else ("h", "b16")
    writer = Writer(Storage(), "sm_80")
    lines = ["mov.u32 r0, %tid.x; mov.u32 r1, %ctaid.x; mad.lo.u32 r0, r1, 256, r0;"]
    for i, operand in enumerate(op.operands):
        whole = "h" if size == 2 else "r1"
        stem = register if dtypes_of(name, dtype)[i] == dtype else whole
        writer.held[operand] = Held([f"{stem}{i}"])
        lines.append(f"ld.param.u64 d0, [p_{i}]; mad.wide.u32 d0, r0, {size}, d0;")
        lines.append(f"ld.global.b{8 * size} {stem}{i}, [d0];")
    emit.emit_elementwise(writer, op)
    result = writer.one(op.results[0])
    lines = [*writer.declarations(), *lines, *writer.lines]
    lines.append(f"ld.param.u64 d1, [p_y]; mad.wide.u32 d1, r0, {size}, d1;")
    lines.append(f"st.global.{load} [d1], {result};")
    y = np.zeros_like(operands[0])
    parameters = ", ".join([*(f"u64 p_{i}" for i in range(len(operands))), "u64 p_y"])
    execute(kernel(parameters, "\n".join(lines)), y.size // 256, 256, args=[*operands, y])
    return y


def judge(name: str, dtype: str, operands: Sequence[Codes], found: Codes) -> None:
    codes = [x.astype(np.uint64) for x in operands]
    dtypes = dtypes_of(name, dtype)
    call = Call(name, codes, dtypes, [dtype])
    definition = OPS[name].definition
    names = tuple(p.name for p in definition.operands)
    call.limit = limit_for(definition.accuracy, call, names, None)
    oracle = {**FLOAT_ORACLES, **FUNCTION_ORACLES}[name]
    wrong = np.flatnonzero(oracle(call).wrong(found.astype(np.uint64)))
    if wrong.size:
        i = slice(wrong[0], wrong[0] + 1)
        given = [decoded(x[i], d) for x, d in zip(operands, dtypes, strict=True)]
        got = decoded(found[i], dtype)
        raise AssertionError(f"{wrong.size} of {found.size}: {name} of {given} is not {got}")


def singles(count: int, seed: int = 0) -> Codes:
    """Codes of f32: of every exponent, where functions bend, special ones and their neighbours."""
    rng = np.random.default_rng(seed)
    part = count // 5
    numbers = np.array([*SPECIAL, *EDGES, *(-e for e in EDGES)], np.float32).view(np.uint32)
    near = (numbers[:, None] + np.arange(-2, 3).astype(np.uint32)).reshape(-1)
    every = (rng.integers(0, 256, part) << 23) | rng.integers(0, 1 << 23, part)
    parts = [
        every.astype(np.uint32) | (rng.integers(0, 2, part).astype(np.uint32) << np.uint32(31)),
        (rng.normal(size=part) * 2).astype(np.float32).view(np.uint32),
        rng.uniform(-110, 110, part).astype(np.float32).view(np.uint32),
        (np.round(rng.uniform(0, 2**20, part)) * np.pi / 2).astype(np.float32).view(np.uint32),
        (1 + rng.normal(size=part) * 2.0 ** rng.integers(-22, 0, part))
        .astype(np.float32)
        .view(np.uint32),
    ]
    return np.resize(np.concatenate([near, *parts]), count)


def pairs(name: str, count: int) -> tuple[Codes, Codes]:
    """Two operands: all pairs of special numbers, any others, and what the function is made for."""
    rng = np.random.default_rng(1)
    special = np.array(SPECIAL, np.float32)
    x, y = (g.reshape(-1) for g in np.meshgrid(special, special))
    part = (count - x.size) // 3
    bits = singles(2 * part, 2).view(np.float32)
    base = np.exp(rng.normal(size=part) * 2.0 ** rng.integers(-18, 6, part)).astype(np.float32)
    with np.errstate(all="ignore"):
        exponent = rng.uniform(-152, 130, part) / np.log2(base.astype(float))
        exponent = exponent.astype(np.float32)
    whole = rng.integers(-30, 30, (2, part)).astype(np.float32)
    x = np.resize(np.concatenate([x, bits[:part], base, whole[0]]), count)
    y = np.resize(np.concatenate([y, bits[part:], exponent, whole[1]]), count)
    if name in ("atan2", "remf"):  # Near each other, or a multiple.
        factor = 1.0 if name == "atan2" else rng.integers(1, 1 << 20, part)
        y[-part:] = x[-part:] / factor * (1 + rng.normal(size=part) * 2.0**-12)
    if name == "fpowi":
        with np.errstate(all="ignore"):
            y = np.where(np.abs(y) < 2.0**31, y, y.view(np.int32)).astype(np.int32)
        y[:40] = np.repeat(np.array([0, 1, -1, 2**31 - 1, -(2**31)], np.int32), 8)
        y[40:80] = 2**24 + 1
        x[40:80] = -1 - np.arange(-20, 20, dtype=np.float32) * np.float32(2.0**-23)
    return x.view(np.uint32), y.view(np.uint32)


def operands_for(name: str, count: int) -> tuple[Codes, ...]:
    return pairs(name, count) if name in TWO else (singles(count),)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_body_keeps_to_its_class(name: str) -> None:
    operands = operands_for(name, 6000 if name in TWO else 60000)
    judge(name, "f32", operands, by_interpreter(name, "f32", operands))


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("name", sorted(BY_WAY_OF_F32 - {*TWO}))
def test_a_body_of_16_bits_is_right_for_every_number(name: str, dtype: str) -> None:
    every = np.arange(1 << 16, dtype=np.uint16)
    judge(name, dtype, (every,), by_interpreter(name, dtype, (every,)))


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("name", TWO)
def test_a_body_of_two_16_bit_operands_keeps_to_its_class(name: str, dtype: str) -> None:
    wide = pairs(name, 3000)
    operands = [
        np.asarray(encode(decoded(x, w), DTYPES[d])).view(np.uint16)
        for x, w, d in zip(wide, dtypes_of(name, "f32"), dtypes_of(name, dtype), strict=True)
    ]
    judge(name, dtype, operands, by_interpreter(name, dtype, operands))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_text_keeps_to_its_class(name: str) -> None:
    operands = operands_for(name, 4096)
    judge(name, "f32", operands, by_executor(name, "f32", operands))


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("name", sorted(BY_WAY_OF_F32 - {*TWO}))
def test_the_text_of_16_bits_keeps_to_its_class(name: str, dtype: str) -> None:
    some = np.arange(0, 1 << 16, 32, dtype=np.uint16)
    some[:256] |= np.arange(256, dtype=np.uint16) & 31
    judge(name, dtype, (some,), by_executor(name, dtype, (some,)))


def test_two_by_pi_is_cut_from_the_number() -> None:
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workprec(300):
        bits = int(mpmath.floor(2 / mpmath.pi * mpmath.mpf(2) ** 224))
    assert sum(word << 32 * (7 - i) for i, word in enumerate(TWO_BY_PI)) == bits


# Kernels

BODIES = {name: f"%r = {name} %a : tile<{{t}}>" for name in sorted(BY_WAY_OF_F32)}
BODIES |= {name: f"%r = {name} %a, %a : tile<{{t}}>" for name in ("atan2", "pow", "remf")}
BODIES["fpowi"] = "%n = constant {{value = 3}} : tile<64x64xi32>\n%r = fpowi %a, %n : tile<{t}>"


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("name", BODIES)
def test_a_kernel_assembles_without_spills(name: str, dtype: str, target: str) -> None:
    tile = f"64x64x{dtype}"
    text = one_tile(tile, tile, BODIES[name].format(t=tile), 4, target)
    lowered = lower(parse(text).kernel(), target)
    if find_ptxas() is not None:
        assert assemble(lowered.ptx, target)[1].spill_bytes == 0


@pytest.mark.parametrize("name", ["erf", "sin", "pow"])
def test_each_level_computes_a_function_in_a_loop(name: str) -> None:
    """The value is carried: it lies in the registers that the function's result goes to."""
    step = "pow %b, %half" if name == "pow" else f"{name} %b"
    body = f"""
      %half = constant {{value = 0.5}} : tile<16x32xf32>
      %one = constant {{value = 1}} : tile<i32>
      %three = constant {{value = 3}} : tile<i32>
      %r = for %zero, %three, %one, [%a] : tile<16x32xf32> body(
        %i: tile<i32>, %b: tile<16x32xf32>) {{
        %y = {step} : tile<16x32xf32>
        continue %y
      }}
    """
    source = one_tile("16x32xf32", "16x32xf32", body)
    x = np.random.default_rng(0).uniform(0.1, 1.5, (16, 32)).astype(np.float32)
    lowered = lower(parse(source).kernel(), "sm_80")
    found: list[np.ndarray] = []
    for level in ("pipe", "simt", "ptx"):
        o = np.zeros_like(x)
        if level == "ptx":
            launch(lowered, 1, x=x, o=o)
        else:
            kernel_of = parse(source).kernel() if level == "pipe" else lowered.passes.kernel
            interpret(kernel_of, 1, [x, o])
        found.append(o)
    assert np.array_equal(found[0], found[1])
    # Each of three steps is off by 16 units at most, and none magnifies what the others were off.
    units = np.abs(found[2].view(np.int32).astype(int) - found[0].view(np.int32))
    assert units.max() <= 3 * 16
    assert len(np.unique(found[2])) > 100


def test_the_lines_of_a_function_are_those_of_its_operation() -> None:
    """Branches too."""
    text = one_tile("16x16xf32", "16x16xf32", "%r = sin %a : tile<16x16xf32>")
    lowered = lower(parse(text).kernel(), "sm_80").passes.kernel
    lines = dict(emit.instructions_of(lowered))
    assert set(lines) == set(lowered.walk())
    (sine,) = (op for op in lines if op.name == "sin")
    assert sum("bra" in line for line in lines[sine]) >= 8


@pytest.mark.parametrize(
    ("name", "dtype", "hint"), [("erf", "f64", "compute in f32"), ("rsqrt", "f64", "")]
)
def test_what_is_missing_is_refused(name: str, dtype: str, hint: str) -> None:
    tile = f"16x16x{dtype}"
    text = one_tile(tile, tile, f"%r = {name} %a : tile<{tile}>")
    with pytest.raises(ReftileError) as error:
        lower(parse(text).kernel(), "sm_80")
    assert error.value.diagnosis.rule == "lower.ptx"
    assert error.value.diagnosis.hint == hint
    assert f"`{name}` on {dtype} cannot be printed" in error.value.diagnosis.message
