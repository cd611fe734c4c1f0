"""Whole kernels: loops over tiles, ragged edges, hand-overs between blocks.

Where data are small integers, every sum is exact and so is the answer. Softmax is held to the bound
that follows from the limits of its operations.
"""

# Programs are written as they read; their lines may be long.
# ruff: noqa: E501

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from typing import Any

import mpmath
import numpy as np
from reftile.conformance import values
from reftile.conformance.cases import Buffer, Case, Program
from reftile.conformance.oracle.answer import Answer, Call
from reftile.conformance.oracle.floats import FLOAT_ORACLES
from reftile.conformance.oracle.formats import FORMATS, Codes, codes, to_float64
from reftile.conformance.oracle.sums import gamma, signed_code
from reftile.conformance.program import partition, tensor_view
from reftile.conformance.suites.common import Settings

Build = Callable[[np.random.Generator], Program]


def cases(settings: Settings) -> Iterator[Case]:
    """All of them."""
    for name, dtype, build in KERNELS:
        id = f"kernels/{name}/{dtype}"
        yield Case(id, "kernels", name, dtype, (), partial(_run, settings, id, build))


def _run(settings: Settings, id: str, build: Build) -> Program:
    return build(settings.rng(id))


def _program(
    body: str,
    grid: tuple[int, int, int],
    attributes: str = "",
    **buffers: tuple[str, Codes, Answer | None],
) -> Program:
    """A kernel whose arguments are pointers to the buffers; those with an answer are written."""
    arguments = tuple(
        Buffer(name, dtype, bits.reshape(-1), written=answer is not None)
        for name, (dtype, bits, answer) in buffers.items()
    )
    answers = {name: answer for name, (_, _, answer) in buffers.items() if answer is not None}
    types = ", ".join(f"%{a.name}: tile<ptr<{a.dtype}>>" for a in arguments)
    head = f" attributes {{{attributes}}}" if attributes else ""
    lines = "\n".join(f"  {line}" for line in body.strip("\n").split("\n"))
    return Program(
        f"tile kernel @main({types}){head} {{\n{lines}\n  return\n}}\n", grid, arguments, answers
    )


BLOCK = "%bx, %by, %bz = get_tile_block_id : tile<i32>, tile<i32>, tile<i32>\n"


def _views(
    name: str, shape: tuple[int, ...], part: tuple[int, ...], dtype: str, padding: str = ""
) -> str:
    whole = tensor_view(shape, dtype)
    return (
        f"%v_{name} = make_tensor_view %{name}, [], [] : {whole}\n"
        f"%p_{name} = make_partition_view %v_{name} : {partition(whole, part, padding)}\n"
    )


def _zeros(dtype: str, shape: tuple[int, ...]) -> Codes:
    return codes(np.zeros(shape)) + np.uint64(0x11 if dtype != "i1" else 0)


def add(dtype: str, n: int, rng: np.random.Generator) -> Program:
    """A vector sum whose length no tile divides: the tail must not be lost."""
    x, y = (values.random_codes(dtype, n, rng) for _ in range(2))
    total = FLOAT_ORACLES["addf"](Call("addf", [x, y], [dtype] * 2, [dtype])).low
    body = BLOCK + "".join(_views(b, (n,), (16,), dtype) for b in ("x", "y", "out"))
    body += f"""%a, %t = load_view_tko %p_x, [%bx] {{ordering = weak}} : tile<16x{dtype}>, token
%b, %u = load_view_tko %p_y, [%bx] {{ordering = weak}} : tile<16x{dtype}>, token
%c = addf %a, %b : tile<16x{dtype}>
%s = store_view_tko %c, %p_out, [%bx] {{ordering = weak}} : token"""
    answer = Answer.exactly(dtype, total)
    return _program(
        body,
        (-(-n // 16), 1, 1),
        x=(dtype, x, None),
        y=(dtype, y, None),
        out=(dtype, _zeros(dtype, (n,)), answer),
    )


def matmul(dtype: str, rng: np.random.Generator) -> Program:
    """A product of small integers with ragged m, n and k, in a loop over k."""
    m, n, k = 13, 11, 37
    a = values.small_integers(dtype, (m, k), rng)
    b = values.small_integers(dtype, (k, n), rng)
    f = FORMATS[dtype]
    exact = to_float64(a.reshape(-1), f).reshape(m, k) @ to_float64(b.reshape(-1), f).reshape(k, n)
    body = (
        BLOCK
        + _views("a", (m, k), (8, 16), dtype, "zero")
        + _views("b", (k, n), (16, 4), dtype, "zero")
    )
    body += _views("out", (m, n), (8, 4), "f32")
    body += f"""%zero = constant {{value = 0}} : tile<i32>
%one = constant {{value = 1}} : tile<i32>
%d0, %steps = get_index_space_shape %p_a : tile<i32>, tile<i32>
%start = constant {{value = 0.0}} : tile<8x4xf32>
%sum = for %zero, %steps, %one, [%start] : tile<8x4xf32> body(%i: tile<i32>, %acc: tile<8x4xf32>) {{
  %x, %t = load_view_tko %p_a, [%bx, %i] {{ordering = weak}} : tile<8x16x{dtype}>, token
  %y, %u = load_view_tko %p_b, [%i, %by] {{ordering = weak}} : tile<16x4x{dtype}>, token
  %next = mmaf %x, %y, %acc : tile<8x4xf32>
  continue %next
}}
%s = store_view_tko %sum, %p_out, [%bx, %by] {{ordering = weak}} : token"""
    bits = values.codes_of(exact.reshape(-1), FORMATS["f32"])
    # A sum that is zero may be a zero of either sign.
    answer = Answer("f32", np.where(bits == 0, np.uint64(1 << 31), bits), bits)
    return _program(
        body,
        (2, 3, 1),
        a=(dtype, a, None),
        b=(dtype, b, None),
        out=("f32", _zeros("f32", (m, n)), answer),
    )


def transpose(dtype: str, rng: np.random.Generator) -> Program:
    """A transposed copy through `dim_map`."""
    x = values.random_codes(dtype, 6 * 10, rng).reshape(6, 10)
    whole = tensor_view((6, 10), dtype)
    body = (
        BLOCK
        + f"""%v = make_tensor_view %x, [], [] : {whole}
%p = make_partition_view %v : partition_view<tile=(4x4), {whole}, dim_map=[1, 0]>
%t, %u = load_view_tko %p, [%bx, %by] {{ordering = weak}} : tile<4x4x{dtype}>, token
"""
    )
    body += _views("out", (10, 6), (4, 4), dtype)
    body += "%s = store_view_tko %t, %p_out, [%bx, %by] {ordering = weak} : token"
    answer = Answer.moved(dtype, x.T.copy())
    return _program(
        body, (3, 2, 1), x=(dtype, x, None), out=(dtype, _zeros(dtype, (10, 6)), answer)
    )


def split_k(rng: np.random.Generator) -> Program:
    """Blocks add their parts of one row sum atomically; sums of small integers in any order."""
    x = values.small_integers("f32", (5, 24), rng)
    exact = to_float64(x.reshape(-1), FORMATS["f32"]).reshape(5, 24).sum(axis=1)
    body = BLOCK + _views("x", (5, 24), (5, 8), "f32") + _views("out", (5,), (5,), "f32")
    body += """%zero = constant {value = 0} : tile<i32>
%t, %u = load_view_tko %p_x, [%zero, %bx] {ordering = weak} : tile<5x8xf32>, token
%part = reduce %t {axis = 1, identities = [0.0]} : tile<5xf32> combine(%e: tile<f32>, %a: tile<f32>) {
  %s = addf %a, %e : tile<f32>
  yield %s
}
%r = atomic_red_view_tko %p_out, [%zero], %part {ordering = relaxed, scope = device, mode = addf} : token"""
    bits = values.codes_of(exact, FORMATS["f32"])
    answer = Answer("f32", np.where(bits == 0, np.uint64(1 << 31), bits), bits)
    return _program(body, (3, 1, 1), x=("f32", x, None), out=("f32", codes([0] * 5), answer))


def hand_over(rng: np.random.Generator) -> Program:
    """A chain of blocks:

    each waits for the flag of the one before, adds to its data, and releases its own.
    """
    x = values.random_codes("i32", 4 * 6, rng).reshape(4, 6)
    body = BLOCK + _views("x", (4, 6), (1, 6), "i32") + _views("out", (4, 6), (1, 6), "i32")
    body += """%zero = constant {value = 0} : tile<i32>
%one = constant {value = 1} : tile<i32>
%mine, %t0 = load_view_tko %p_x, [%bx, %zero] {ordering = weak} : tile<1x6xi32>, token
%first = cmpi %bx, %zero {predicate = equal, signedness = signed} : tile<i1>
%start = make_token : token
%before = subi %bx, %one : tile<i32>
%total = if %first : tile<1x6xi32> then {
  yield %mine
} otherwise {
  %flag = offset %flags, %before : tile<ptr<i32>>
  %seen = loop %start : token body(%t: token) {
    %f, %u = load_ptr_tko %flag, token=%t {ordering = acquire, scope = device} : tile<i32>, token
    %set = cmpi %f, %one {predicate = equal, signedness = signed} : tile<i1>
    if %set then {
      break %u
    }
    continue %u
  }
  %sum, %u = load_view_tko %p_out, [%before, %zero], token=%seen {ordering = weak} : tile<1x6xi32>, token
  %next = addi %sum, %mine : tile<1x6xi32>
  yield %next
}
%s = store_view_tko %total, %p_out, [%bx, %zero] {ordering = weak} : token
%own = offset %flags, %bx : tile<ptr<i32>>
%r = store_ptr_tko %own, %one, token=%s {ordering = release, scope = device} : token"""
    totals = np.cumsum(x.astype(object), axis=0) % (1 << 32)
    flags = Answer.exactly("i32", codes([1] * 4))
    return _program(
        body,
        (4, 1, 1),
        'progress = "cooperative"',
        x=("i32", x, None),
        out=("i32", _zeros("i32", (4, 6)), Answer.exactly("i32", codes(totals))),
        flags=("i32", codes([0] * 4), flags),
    )


def embedding(dtype: str, rng: np.random.Generator) -> Program:
    """Rows of a table by number, some of them outside it."""
    table = values.random_codes(dtype, 9 * 6, rng).reshape(9, 6)
    rows = codes([3, 0, 8, 3, 9, 1, 1000, 2])
    whole = tensor_view((9, 6), dtype)
    body = BLOCK + _views("rows", (8,), (4,), "i32") + _views("out", (8, 6), (4, 6), dtype)
    body += f"""%zero = constant {{value = 0}} : tile<i32>
%r, %t = load_view_tko %p_rows, [%bx] {{ordering = weak}} : tile<4xi32>, token
%v = make_tensor_view %table, [], [] : {whole}
%g = make_gather_scatter_view %v : gather_scatter_view<sparse_dim=0, tile=(4x6), {whole}, padding=zero>
%x, %u = load_view_tko %g, [%r, %zero] {{ordering = weak}} : tile<4x6x{dtype}>, token
%s = store_view_tko %x, %p_out, [%bx, %zero] {{ordering = weak}} : token"""
    picked = [table[int(i)] if i < 9 else np.zeros(6, np.uint64) for i in rows]
    answer = Answer.moved(dtype, np.stack(picked))
    return _program(
        body,
        (2, 1, 1),
        table=(dtype, table, None),
        rows=("i32", rows, None),
        out=(dtype, _zeros(dtype, (8, 6)), answer),
    )


def softmax(rng: np.random.Generator) -> Program:
    """exp(x - max) / sum, in f32, rows of 11 in tiles of 16 padded with -inf."""
    rows, n = 4, 11
    x = values.codes_of(rng.standard_normal(rows * n) * 3, FORMATS["f32"]).reshape(rows, n)
    body = (
        BLOCK
        + _views("x", (rows, n), (1, 16), "f32", "neg_inf")
        + _views("out", (rows, n), (1, 16), "f32")
    )
    body += """%zero = constant {value = 0} : tile<i32>
%t, %u = load_view_tko %p_x, [%bx, %zero] {ordering = weak} : tile<1x16xf32>, token
%m = reduce %t {axis = 1, identities = [-inf]} : tile<1xf32> combine(%e: tile<f32>, %a: tile<f32>) {
  %g = maxf %a, %e : tile<f32>
  yield %g
}
%m2 = reshape %m : tile<1x1xf32>
%mb = broadcast %m2 : tile<1x16xf32>
%d = subf %t, %mb : tile<1x16xf32>
%p = exp %d : tile<1x16xf32>
%l = reduce %p {axis = 1, identities = [0.0]} : tile<1xf32> combine(%e: tile<f32>, %a: tile<f32>) {
  %g = addf %a, %e : tile<f32>
  yield %g
}
%l2 = reshape %l : tile<1x1xf32>
%lb = broadcast %l2 : tile<1x16xf32>
%y = divf %p, %lb : tile<1x16xf32>
%s = store_view_tko %y, %p_out, [%bx, %zero] {ordering = weak} : token"""
    low, high = _softmax_bounds(to_float64(x.reshape(-1), FORMATS["f32"]).reshape(rows, n))
    return _program(
        body,
        (rows, 1, 1),
        x=("f32", x, None),
        out=("f32", _zeros("f32", (rows, n)), Answer("f32", low, high)),
    )


def _softmax_bounds(x: np.ndarray) -> tuple[Codes, Codes]:
    """Each step's relative error, added up:

    u |d| of the difference, 2 ulp of exp, gamma of the sum, half a unit.
    """
    u = Fraction(1, 1 << 24)
    low: list[int] = []
    high: list[int] = []
    for row in x:
        with mpmath.workprec(200):
            differences = [mpmath.mpf(float(v)) - mpmath.mpf(float(row.max())) for v in row]
            terms = [mpmath.exp(d) for d in differences]
            total = mpmath.fsum(terms)
            shares = [_fraction(t / total) for t in terms]
            sizes = [_fraction(abs(d)) for d in differences]
        of_term = [u * d + 4 * u for d in sizes]
        relative = max(of_term) + gamma(len(row), u)
        for share, own in zip(shares, of_term, strict=True):
            # The product of all factors, with room for its terms of higher order.
            bound = share * (own + relative + u) * Fraction(101, 100) + Fraction(1, 1 << 148)
            low.append(signed_code(share - bound, FORMATS["f32"], True))
            high.append(signed_code(share + bound, FORMATS["f32"], False))
    return codes(low), codes(high)


def _fraction(value: Any) -> Fraction:
    sign, m, e, _ = value._mpf_
    number = Fraction(int(m)) * Fraction(2) ** int(e)
    return -number if sign else number


def scan_blocks(rng: np.random.Generator) -> Program:
    """A prefix sum over 48 elements, as scans of 16 that a loop carries on."""
    x = values.random_codes("i32", 48, rng)
    body = _views("x", (48,), (16,), "i32") + _views("out", (48,), (16,), "i32")
    body += """%zero = constant {value = 0} : tile<i32>
%one = constant {value = 1} : tile<i32>
%three = constant {value = 3} : tile<i32>
%last = constant {value = 15} : tile<i32>
%all = for %zero, %three, %one, [%zero] : tile<i32> body(%i: tile<i32>, %carry: tile<i32>) {
  %t, %u = load_view_tko %p_x, [%i] {ordering = weak} : tile<16xi32>, token
  %p = scan %t {axis = 0, identities = [0]} : tile<16xi32> combine(%e: tile<i32>, %a: tile<i32>) {
    %s = addi %a, %e : tile<i32>
    yield %s
  }
  %c1 = reshape %carry : tile<1xi32>
  %cb = broadcast %c1 : tile<16xi32>
  %y = addi %p, %cb : tile<16xi32>
  %s = store_view_tko %y, %p_out, [%i] {ordering = weak} : token
  %e1 = extract %y, [%last] : tile<1xi32>
  %next = reshape %e1 : tile<i32>
  continue %next
}"""
    totals = np.cumsum(x.astype(object)) % (1 << 32)
    return _program(
        body,
        (1, 1, 1),
        x=("i32", x, None),
        out=("i32", _zeros("i32", (48,)), Answer.exactly("i32", codes(totals))),
    )


KERNELS: tuple[tuple[str, str, Build], ...] = (
    *(("add", d, partial(add, d, 63)) for d in ("f16", "bf16", "f32", "f64")),
    *(("matmul", d, partial(matmul, d)) for d in ("f16", "bf16", "f8e4m3", "f32", "tf32")),
    *(("transpose", d, partial(transpose, d)) for d in ("i8", "f16", "f32", "i64")),
    ("split_k", "f32", split_k),
    ("hand_over", "i32", hand_over),
    *(("embedding", d, partial(embedding, d)) for d in ("bf16", "i32")),
    ("softmax", "f32", softmax),
    ("scan_blocks", "i32", scan_blocks),
)
"""The kernels with their element types."""
