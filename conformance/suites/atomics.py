"""Cases of read-modify-writes:

every mode on every type, elements that meet at one address, orders and scopes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product

import numpy as np
from reftile.conformance import values
from reftile.conformance.cases import Buffer, Case, Program
from reftile.conformance.oracle.answer import Answer, Call
from reftile.conformance.oracle.floats import FLOAT_ORACLES
from reftile.conformance.oracle.formats import Codes, codes
from reftile.conformance.oracle.integers import INTEGER_ORACLES
from reftile.conformance.program import Kernel, Shape, tile
from reftile.conformance.suites.common import Settings, definition, follows_rules
from reftile.conformance.suites.memory import View, emit_pointers, emit_view

from reftile.ir.enums import ENUMS

OPERATIONS = {
    "and": ("andi", {}),
    "or": ("ori", {}),
    "xor": ("xori", {}),
    "add": ("addi", {}),
    "addf": ("addf", {}),
    "max": ("maxi", {"signedness": "signed"}),
    "min": ("mini", {"signedness": "signed"}),
    "umax": ("maxi", {"signedness": "unsigned"}),
    "umin": ("mini", {"signedness": "unsigned"}),
}
"""The operation that each mode applies to memory and `arg`."""
SHAPE: Shape = (3, 5)


def combine(mode: str, dtype: str, memory: Codes, arg: Codes) -> Codes:
    """What stands in memory afterwards."""
    if mode == "xchg":
        return arg
    op, attributes = OPERATIONS[mode]
    call = Call(op, [memory, arg], [dtype] * 2, [dtype], dict(attributes))
    return {**FLOAT_ORACLES, **INTEGER_ORACLES}[op](call).low


def stored(mode: str, dtype: str, bits: Codes) -> Answer:
    """What memory holds: of a sum, which NaN it is is not specified."""
    return Answer.exactly(dtype, bits) if mode == "addf" else Answer.moved(dtype, bits)


def cases(settings: Settings) -> Iterator[Case]:
    """All of them."""
    record = definition("atomic_rmw_tko")
    for dtype, mode in product(record.where["E"], ENUMS["atomic_mode"]):
        if not follows_rules(record, {"E": dtype, "mode": mode}):
            continue
        for masked, met in ((False, False), (True, False), (False, True)):
            id = f"ops/atomic_rmw_tko/{dtype}/{mode}{'-mask' * masked}{'-meeting' * met}"
            build = partial(_rmw, settings, id, dtype, mode, masked, met)
            yield _case(id, "atomic_rmw_tko", dtype, build)
        if mode != "xchg":
            for place in (0, 1):
                id = f"ops/atomic_red_view_tko/{dtype}/{mode}-{place}"
                build = partial(_red, settings, id, dtype, mode, place)
                yield _case(id, "atomic_red_view_tko", dtype, build)
    for dtype in definition("atomic_cas_tko").where["E"]:
        for masked in (False, True):
            id = f"ops/atomic_cas_tko/{dtype}/{'mask' if masked else 'all'}"
            yield _case(id, "atomic_cas_tko", dtype, partial(_cas, settings, id, dtype, masked))
    yield from _orders(settings)


def _case(id: str, op: str, dtype: str, build: partial[Program]) -> Case:
    return Case(id, "ops", op, dtype, (f"{op}.meaning",), build, (f"op:{op}",))


def _some(settings: Settings, id: str, dtype: str, count: int) -> Codes:
    rng = settings.rng(id)
    pool = np.concatenate([values.edges(dtype), values.random_codes(dtype, 20, rng)])
    return pool[rng.integers(0, pool.size, count)]


def _rmw(settings: Settings, id: str, dtype: str, mode: str, masked: bool, met: bool) -> Program:
    shape = settings.fit(SHAPE)
    k, rng = Kernel(), settings.rng(id)
    count = int(np.prod(shape))
    memory = _some(settings, id + "m", dtype, count + 5)
    arg = _some(settings, id, dtype, count)
    places = rng.permutation(count + 5)[:count]
    if met:
        # Three elements at one address, in an unknown order: small integers, so that any order
        # gives the same.
        places = np.arange(count) % 5
        memory = values.small_integers(dtype, (count + 5,), rng)
        arg = values.small_integers(dtype, (count,), rng)
    keep = rng.random(count) < 0.6 if masked else np.ones(count, bool)
    value = k.load("in0", dtype, arg, shape)
    k.arguments.append(Buffer("out0", dtype, memory, written=True))
    pointers = emit_pointers(k, "out0", dtype, places.reshape(shape))
    operands = [pointers, value]
    if masked:
        mask = k.load("in1", "i1", codes(keep), shape)
        operands.append(f"mask={mask}")
    old, token = k.name("old"), k.name("t")
    k.emit(
        f"{old}, {token} = atomic_rmw_tko {', '.join(operands)} "
        f"{{ordering = relaxed, scope = device, mode = {mode}}} : {tile(shape, dtype)}, token"
    )
    expected = memory.copy()
    for i in np.flatnonzero(keep):
        at = slice(places[i], places[i] + 1)
        expected[at] = combine(mode, dtype, expected[at], arg[i : i + 1])
    free = met and mode == "xchg"
    k.answers["out0"] = stored(mode, dtype, expected)
    if free:
        # Any of the three may be last.
        k.answers["out0"].free = np.arange(expected.size) < 5
    if masked:
        zero = k.load("in2", dtype, arg, shape)
        old = k.let(
            "s", f"select {operands[2].split('=')[1]}, {old}, {zero} : {tile(shape, dtype)}"
        )
    before = Answer.moved(dtype, np.where(keep, memory[places], arg).reshape(shape))
    before.free = np.full(shape, met) if met else None
    k.store("out1", old, shape, before)
    return k.program()


def _cas(settings: Settings, id: str, dtype: str, masked: bool) -> Program:
    shape = settings.fit(SHAPE)
    k, rng = Kernel(), settings.rng(id)
    count = int(np.prod(shape))
    memory = _some(settings, id + "m", dtype, count)
    expected_bits = np.where(
        rng.random(count) < 0.5, memory, _some(settings, id + "c", dtype, count)
    )
    if dtype in ("f32", "f64"):
        # Bits are compared, not numbers: -0 is not +0, and NaN is itself.
        top = np.uint64(1 << (int(dtype[1:]) - 1))
        memory[0], expected_bits[0] = 0, top
        nan = {"f32": 0x7FC12345, "f64": 0x7FF8000012345678}[dtype]
        memory[1], expected_bits[1] = nan, nan
        memory[2], expected_bits[2] = nan, nan + 1
    arg = _some(settings, id, dtype, count)
    keep = rng.random(count) < 0.6 if masked else np.ones(count, bool)
    compared = k.load("in0", dtype, expected_bits, shape)
    value = k.load("in1", dtype, arg, shape)
    k.arguments.append(Buffer("out0", dtype, memory, written=True))
    pointers = emit_pointers(k, "out0", dtype, np.arange(count).reshape(shape))
    operands = [pointers, compared, value]
    if masked:
        operands.append(f"mask={k.load('in2', 'i1', codes(keep), shape)}")
    old, token = k.name("old"), k.name("t")
    k.emit(
        f"{old}, {token} = atomic_cas_tko {', '.join(operands)} "
        f"{{ordering = acq_rel, scope = device}} : {tile(shape, dtype)}, token"
    )
    swapped = keep & (memory == expected_bits)
    k.answers["out0"] = Answer.moved(dtype, np.where(swapped, arg, memory))
    k.store(
        "out1",
        old,
        shape,
        Answer.moved(dtype, np.where(keep, memory, expected_bits).reshape(shape)),
    )
    return k.program()


def _red(settings: Settings, id: str, dtype: str, mode: str, place: int) -> Program:
    k = Kernel()
    view = View("partition", (6, 10), (10, 1), (4, 4), (place, 2 * place))
    memory = _some(settings, id + "m", dtype, view.size)
    arg = _some(settings, id, dtype, 16).reshape(4, 4)
    value = k.load("in0", dtype, arg, (4, 4))
    k.arguments.append(Buffer("out0", dtype, memory, written=True))
    made, index = emit_view(k, view, dtype, "out0")
    k.let(
        "t",
        f"atomic_red_view_tko {made}, {index}, {value} "
        f"{{ordering = relaxed, scope = device, mode = {mode}}} : token",
    )
    expected = memory.copy()
    for p in product(range(4), range(4)):
        at = view.place(p)
        if at is not None:
            expected[at : at + 1] = combine(mode, dtype, expected[at : at + 1], codes([arg[p]]))
    k.answers["out0"] = stored(mode, dtype, expected)
    return k.program()


def _orders(settings: Settings) -> Iterator[Case]:
    """A store that another operation waits for, in every order and scope that the records allow."""
    for op in (
        "load_ptr_tko",
        "store_ptr_tko",
        "load_view_tko",
        "store_view_tko",
        "atomic_rmw_tko",
        "atomic_cas_tko",
    ):
        record = definition(op)
        scopes = record.attribute_specs["scope"].optional
        for ordering in record.where["ordering"]:
            for scope in ENUMS["memory_scope"]:
                if scopes and ordering == "weak" and scope != "tl_blk":
                    continue
                id = f"ops/{op}/i32/order-{ordering}-{scope if ordering != 'weak' else 'none'}"
                yield _case(id, op, "i32", partial(_ordered, op, ordering, scope))


def _ordered(op: str, ordering: str, scope: str) -> Program:
    k = Kernel()
    how = f"ordering = {ordering}" + (f", scope = {scope}" if ordering != "weak" else "")
    k.arguments.append(Buffer("out0", "i32", codes([7]), written=True))
    one = k.constant("i32", 11)
    two = k.constant("i32", 22)
    first = k.let("t", f"store_ptr_tko %out0, {one} {{ordering = weak}} : token")
    old, token = k.name("old"), k.name("u")
    last, before = 22, 11
    made = index = ""
    if op in ("load_view_tko", "store_view_tko"):
        view = View("partition", (1,), (1,), (1,), (0,))
        made, index = emit_view(k, view, "i32", "out0")
    if op == "load_ptr_tko":
        k.emit(f"{old}, {token} = {op} %out0, token={first} {{{how}}} : tile<i32>, token")
        last = 11
    elif op == "load_view_tko":
        k.emit(f"%w, {token} = {op} {made}, {index}, token={first} {{{how}}} : tile<1xi32>, token")
        k.emit(f"{old} = reshape %w : tile<i32>")
        last = 11
    elif op == "store_ptr_tko":
        k.emit(f"{token} = {op} %out0, {two}, token={first} {{{how}}} : token")
    elif op == "store_view_tko":
        wide = k.let("w", f"reshape {two} : tile<1xi32>")
        k.emit(f"{token} = {op} {wide}, {made}, {index}, token={first} {{{how}}} : token")
    elif op == "atomic_rmw_tko":
        k.emit(
            f"{old}, {token} = {op} %out0, {two}, token={first} {{{how}, mode = xchg}} : "
            "tile<i32>, token"
        )
    else:
        k.emit(
            f"{old}, {token} = {op} %out0, {one}, {two}, token={first} {{{how}}} : tile<i32>, token"
        )
    if op in ("store_ptr_tko", "store_view_tko"):
        k.emit(
            f"{old}, %end = load_ptr_tko %out0, token={token} {{ordering = weak}} : "
            "tile<i32>, token"
        )
        before = 22
    k.answers["out0"] = Answer.exactly("i32", codes([last]))
    k.store("out1", old, (), Answer.exactly("i32", codes([before])))
    return k.program()
