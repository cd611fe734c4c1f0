"""The table of elementwise instructions: no overlap, and each row computes its record's meaning.

One side of a row is evaluated by the interpreter from the record, the other by the PTX executor.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import numpy as np
import pytest

from reftile.interp.pure import evaluate
from reftile.interp.values import Tile
from reftile.ir.core import Op, Value
from reftile.ir.define import Definition
from reftile.ir.dtypes import DTYPES
from reftile.ir.enums import ENUMS
from reftile.ir.expressions import evaluate as holds
from reftile.ir.numbers import decode, encode
from reftile.ir.ops import OPS
from reftile.ir.targets import TARGETS
from reftile.ir.types import TileType
from reftile.ir.verify import bind_operation
from reftile.lower.ptx import emit, table
from reftile.lower.ptx.storage import Storage
from reftile.lower.ptx.writer import Held, Writer, packing
from tests.interp.pure_cases import random_values
from tests.ptx_machine.harness import compute, execute, kernel

APPROXIMATE = {
    "exp2": 2.0**-21,
    "exp": 2.0**-17,
    "log": 2.0**-21,
    "log2": 2.0**-21,
    "tanh": 2.0**-11,
    "rcp": 2.0**-22,
    "rsqrt": 2.0**-21,
    "sqrt": 2.0**-21,
    "divf": 2.0**-21,
}
MOST_VARIANTS = 6
NVIDIA = [name for name, target in TARGETS.items() if target.capability]


def variables_of(definition: Definition) -> list[str]:
    """The element types that an operation's ports name."""
    terms = [p.pattern.element for p in (*definition.operands, *definition.results)]
    names = [t.text for t in terms if t is not None and t.code is None and t.text not in DTYPES]
    return list(dict.fromkeys(n for n in names if n != "_"))


def attributes_of(definition: Definition) -> Iterator[dict[str, object]]:
    """Every choice of the attributes, as far as the record allows."""
    choices: list[list[object]] = []
    for spec in definition.attributes:
        allowed = definition.where.get(spec.name)
        values: list[object] = (
            [False, True] if spec.kind == "unit" else list(ENUMS.get(spec.kind, {}))
        )
        choices.append([v for v in values if allowed is None or v in allowed] or [spec.default])
    for chosen in itertools.product(*choices):
        yield {s.name: v for s, v in zip(definition.attributes, chosen, strict=True)}


def instances(name: str) -> Iterator[tuple[dict[str, str], dict[str, object]]]:
    """Element types and attributes of every form of an operation."""
    definition = OPS[name].definition
    variables = variables_of(definition)
    kinds = [[d for d in definition.where.get(v, ()) if d in DTYPES] for v in variables]
    for types in itertools.product(*kinds):
        for attributes in attributes_of(definition):
            yield dict(zip(variables, types, strict=True)), attributes


def spelled(
    name: str, types: dict[str, str], attributes: dict[str, object], target: str
) -> dict[str, object]:
    return table.with_spellings(dict(types), OPS[name].definition, attributes, target)


def targets_of(row: table.Row, types: dict[str, str], attributes: dict[str, object]) -> list[str]:
    """The targets on which a form takes a row."""
    found = {t: spelled(row.op, types, attributes, t) for t in NVIDIA}
    return [t for t, names in found.items() if row in table.matching(row.op, names, row.pair)]


def make(
    name: str, types: dict[str, str], attributes: dict[str, object], shape: tuple[int, ...]
) -> Op:
    """An operation of these types on tiles of one shape; a few elements are of one thread."""
    definition = OPS[name].definition
    layout = f"layout<{shape[0]}; register {shape[0]}*(1)>" if shape in ((2,), (4,)) else ""

    def kind(port: object) -> TileType:
        text = str(port.pattern.element.text)  # type: ignore[attr-defined]
        return TileType(shape, DTYPES[types.get(text, text)], layout)

    operands = tuple(Value(kind(p), p.name) for p in definition.operands)
    results = tuple(kind(p) for p in definition.results)
    kept = {
        k: v
        for k, v in attributes.items()
        if v is not None and v != definition.attribute_specs[k].default
    }
    return OPS[name](operands, results, kept)  # type: ignore[arg-type]


def is_legal(op: Op) -> bool:
    names = bind_operation(op)
    return all(holds(rule.check, names) for rule in op.definition.rules)


def in_a_register(row: table.Row, types: dict[str, str]) -> int:
    """How many elements of the result a row's test makes: those that share a register."""
    (port,) = OPS[row.op].definition.results
    text = str(port.pattern.element.text)  # type: ignore[union-attr]
    return 32 // DTYPES[types.get(text, text)].bits if row.pair else 1


def rows() -> list[table.Row]:
    return [row for group in table.rows().values() for row in group]


@pytest.mark.parametrize("name", sorted(table.rows()))
def test_rows_do_not_overlap(name: str) -> None:
    for (types, attributes), target in itertools.product(instances(name), NVIDIA):
        names = spelled(name, types, attributes, target)
        for pair in (False, True):
            found = table.matching(name, names, pair)
            assert len(found) <= 1, (types, attributes, target, found)


@pytest.mark.parametrize("row", rows(), ids=lambda r: f"{r.op}: {r.when_text}")
def test_a_row_reads_its_operands_before_it_writes_the_result(row: table.Row) -> None:
    """Both may be the same register, where a loop carries the value."""
    ports = [port.name for port in OPS[row.op].definition.operands]
    written = False
    for line in row.text.split(";"):
        names = re.findall(r"\{(\w+?)(?:_[01])?\}", line)
        assert not written or not set(names) & set(ports), line
        written |= "result" in names


@pytest.mark.parametrize("row", rows(), ids=lambda r: f"{r.op}: {r.when_text}")
def test_a_row_computes_what_its_record_means(row: table.Row) -> None:
    rng = np.random.default_rng(0)
    forms = [
        (types, attributes)
        for types, attributes in instances(row.op)
        if targets_of(row, types, attributes) and is_legal(make(row.op, types, attributes, (32,)))
    ]
    assert forms, "no operation takes this row"
    for types, attributes in forms[:: max(1, len(forms) // MOST_VARIANTS)]:
        compare(row, types, attributes, rng)


def compare(
    row: table.Row, types: dict[str, str], attributes: dict[str, object], rng: np.random.Generator
) -> None:
    """Evaluate both sides on 32 lanes."""
    count = in_a_register(row, types)
    meant = make(row.op, types, attributes, (32 * count,))
    values = [operand_values(meant, i, rng) for i in range(len(meant.operands))]
    (wanted,) = evaluate(meant, [Tile(v) for v in values])
    poison = (
        np.zeros(32 * count, bool)
        if wanted.poison is None
        else np.broadcast_to(wanted.poison, 32 * count)
    )
    op = make(row.op, types, attributes, (count,) if row.pair else ())
    found = run_text(op, values, count, targets_of(row, types, attributes)[0])
    kind = DTYPES[tile(op.results[0]).dtype.name]
    given, right = decode(found, kind)[~poison], np.asarray(wanted.data)[~poison]
    tolerance = (
        APPROXIMATE.get(row.op)
        if kind.kind == "float" and is_approximate(row, attributes)
        else None
    )
    if tolerance is None:
        np.testing.assert_array_equal(given, right, err_msg=f"{row.text} {types} {attributes}")
        if kind.kind == "float":
            signs = np.signbit(given) == np.signbit(right)
            assert np.all(signs | np.isnan(right)), f"{row.text} {types} {attributes}"
        return
    normal = np.isfinite(right) & (np.abs(right) > 2.0**-120) & (np.abs(right) < 2.0**120)
    np.testing.assert_allclose(given[normal], right[normal], rtol=tolerance, err_msg=row.text)


def is_approximate(row: table.Row, attributes: dict[str, object]) -> bool:
    functions = ("exp2", "rsqrt", "exp", "log", "log2", "tanh")
    return row.op in functions or attributes.get("rounding") in ("approx", "full")


def operand_values(op: Op, index: int, rng: np.random.Generator) -> np.ndarray:
    """Random elements; divisors are not zero, shifts in range."""
    kind = tile(op.operands[index])
    found = random_values(kind, (), rng)
    if index == 1 and op.name in ("divi", "remi"):
        found = np.where(found == 0, np.array(3, found.dtype), found)
    if index == 1 and op.name in ("shli", "shri"):
        found = found % kind.dtype.bits
    return found


def tile(value: Value) -> TileType:
    assert isinstance(value.type, TileType)
    return value.type


def run_text(op: Op, values: list[np.ndarray], count: int, target: str) -> np.ndarray:
    """Print one operation and run it in 32 lanes; return the encoded results.

    count: elements of each lane, which share one register of the result.
    """
    writer = Writer(Storage(), target)
    inputs: dict[str, np.ndarray] = {}
    before: list[str] = []
    for i, (operand, elements) in enumerate(zip(op.operands, values, strict=True)):
        encoded = np.asarray(encode(elements, tile(operand).dtype))
        names: list[str] = []
        for k in range(count):
            part = np.ascontiguousarray(encoded[k::count])
            name = f"x{i}_{k}"
            names.append(name)
            if tile(operand).dtype.bits == 8:
                # What else the register holds must not matter.
                inputs[name] = part.view(np.uint8).astype(np.uint16) | np.uint16(0x5A00)
            elif tile(operand).dtype.name == "i1":
                inputs[f"{name}_raw"] = part.astype(np.uint32)
                before.append(f".reg .pred {name}; setp.ne.u32 {name}, {name}_raw, 0;")
            else:
                inputs[name] = as_register(part, tile(operand))
        each = packing(operand)
        writer.held[operand] = Held(writer.join(names, each), each)
    emit.emit_elementwise(writer, op)
    (register,) = writer.get(op.results[0]).elements
    kind = tile(op.results[0])
    body = "\n".join([*before, *writer.declarations(), *writer.lines])
    if kind.dtype.name == "i1":
        body += f"\nmov.pred y, {register};"
        return compute(body, inputs, {"y": bool})["y"].astype(kind.dtype.storage)
    register_kind = "b32" if count > 1 else table.register_kind(kind.element)
    number = {
        "f32": np.float32,
        "f64": np.float64,
        "b16": np.uint16,
        "b32": np.uint32,
        "b64": np.uint64,
    }
    body += f"\nmov.{register_kind} y, {register};"
    found = compute(body, inputs, {"y": number[register_kind]})["y"]
    if kind.dtype.bits == 8 and count == 1:
        return found.astype(np.uint8).view(kind.dtype.storage)
    return np.ascontiguousarray(found).view(kind.dtype.storage)


def as_register(bits: np.ndarray, kind: TileType) -> np.ndarray:
    """The bits as the NumPy type whose register type the row expects."""
    number = {"f32": np.float32, "f64": np.float64}.get(kind.dtype.name)
    return bits if number is None else bits.view(number)


def test_a_wrong_row_is_noticed() -> None:
    row = table.rows()["subf"][0]
    wrong = table.Row("addf", row.when, row.when_text, row.text, pair=False)
    types = {"T": "f32"}
    op = make("addf", types, {"rounding": "nearest_even", "flush_to_zero": False}, ())
    ones = np.ones(32, np.float32)
    assert np.all(decode(run_text(op, [ones, ones], 1, "sm_80"), DTYPES["f32"]) == 2)
    original = table.rows
    try:
        table.rows = lambda: {"addf": (wrong,)}  # type: ignore[assignment]
        table.instruction_of_form.cache_clear()
        assert np.all(decode(run_text(op, [ones, ones], 1, "sm_80"), DTYPES["f32"]) == 0)
    finally:
        table.rows = original
        table.instruction_of_form.cache_clear()


def near_ties(kind: str, rng: np.random.Generator) -> np.ndarray:
    """Numbers half way between two of bf16, and what is next to them."""
    half = 2 * rng.integers(1 << 7, 1 << 8, 32) + 1  # of 9 bits
    if kind == "f64":
        near = np.nextafter(half.astype(np.float64), half + rng.integers(-1, 2, 32))
        sign = rng.choice([-1.0, 1.0], 32)
        return sign * near * 2.0 ** rng.integers(-142, 120, 32)  # subnormal numbers of bf16 too
    bits = DTYPES[kind].bits
    near = (half << rng.integers(1, bits - 10, 32)) + rng.integers(-1, 2, 32)
    return (near * rng.choice([-1, 1], 32)).astype(DTYPES[kind].carrier)


@pytest.mark.parametrize("rounding", ["nearest_even", "zero"])
@pytest.mark.parametrize("kind", ["f64", "i32", "i64"])
def test_what_becomes_bf16_is_rounded_once(kind: str, rounding: str) -> None:
    rng = np.random.default_rng(0)
    name, types = (
        ("ftof", {"T": kind, "U": "bf16"}) if kind == "f64" else ("itof", {"I": kind, "T": "bf16"})
    )
    attributes: dict[str, object] = {"rounding": rounding}
    if name == "itof":
        attributes["signedness"] = "signed"
    for _ in range(8):
        values = near_ties(kind, rng)
        (wanted,) = evaluate(make(name, types, attributes, (32,)), [Tile(values)])
        found = run_text(make(name, types, attributes, ()), [values], 1, "sm_80")
        assert np.array_equal(decode(found, DTYPES["bf16"]), np.asarray(wanted.data))


# Functions of many instructions, held to their class on many numbers

UNITS = {"exp": 2, "log": 3, "log2": 3, "tanh": 5}
"""What spec/accuracy.md allows for f32."""
EXACT = {"exp": np.exp, "log": np.log, "log2": np.log2, "tanh": np.tanh}


def numbers_for(name: str) -> np.ndarray:
    """4096 numbers: all magnitudes, where the function is steep, and special ones."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, 1024, dtype=np.uint64).astype(np.uint32).view(np.float32)
    near_one = 1 + rng.normal(size=1024) * 2.0 ** rng.integers(-20, 0, 1024)
    wide = rng.uniform(-110, 95, 1536) if name == "exp" else rng.normal(size=1536) * 3
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 1.1754944e-38, -1.0, 3.4e38, 88.72284]
    special += [-87.33655, -103.97209, -104.0, 2 / 3, 4 / 3, 0.55]
    parts = [bits, *(np.asarray(p, np.float32) for p in (near_one, wide, special))]
    return np.resize(np.concatenate(parts), 4096)


@pytest.mark.parametrize("name", UNITS)
def test_a_function_keeps_to_its_class(name: str) -> None:
    x = numbers_for(name)
    op = make(name, {"T": "f32"}, {"rounding": "full"} if name in ("exp", "tanh") else {}, ())
    writer = Writer(Storage(), "sm_80")
    writer.held[op.operands[0]] = Held(["f0"])
    emit.emit_elementwise(writer, op)
    (result,) = writer.get(op.results[0]).elements
    body = "\n".join(
        [
            *writer.declarations(),
            "mov.u32 r0, %tid.x; mov.u32 r1, %ctaid.x; mad.lo.u32 r0, r1, 256, r0;",
            "ld.param.u64 d0, [p_x]; mad.wide.u32 d0, r0, 4, d0; ld.global.f32 f0, [d0];",
            *writer.lines,
            f"ld.param.u64 d1, [p_y]; mad.wide.u32 d1, r0, 4, d1; st.global.f32 [d1], {result};",
        ]
    )
    y = np.zeros_like(x)
    execute(kernel("u64 p_x, u64 p_y", body), 16, 256, args=[x, y])
    with np.errstate(all="ignore"):
        exact = EXACT[name](x.astype(np.float64))
    assert np.array_equal(np.isnan(y), np.isnan(exact))
    largest = float(np.finfo(np.float32).max)
    endless = np.isinf(exact) | (np.abs(exact) > largest * (1 + 2.0**-25))
    assert np.array_equal(y[endless], np.copysign(np.inf, exact[endless]))
    normal = ~np.isnan(exact) & ~endless
    unit = 2.0 ** np.maximum(np.floor(np.log2(np.maximum(np.abs(exact), 1e-300))), -126) * 2.0**-23
    error = np.abs(y[normal].astype(float) - exact[normal]) / unit[normal]
    assert error.max() <= UNITS[name], (error.max(), x[normal][error.argmax()])
    zero = normal & (exact == 0)
    assert np.array_equal(np.signbit(y[zero]), np.signbit(exact[zero]))
