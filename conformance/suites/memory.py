"""Cases of views, loads and stores: which element of memory is which element of a tile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from math import prod

import numpy as np
from reftile.conformance import values
from reftile.conformance.cases import Buffer, Case, Program
from reftile.conformance.oracle.answer import Answer
from reftile.conformance.oracle.formats import FORMATS, Codes, codes, is_float
from reftile.conformance.program import Kernel, Shape, tensor_view, tile
from reftile.conformance.suites.common import Settings, definition

Index = tuple[int, ...]
Place = Callable[[Index], int | None]
"""The element of the buffer behind an element of the tile; None outside the view."""

ALL = (*definition("constant").where["T"],)
PADDINGS = ("", "zero", "neg_zero", "nan", "pos_inf", "neg_inf")


@dataclass(frozen=True)
class View:
    """A tile view of a buffer, at one index.

    kind: partition, strided or gather_scatter. index: of each axis; for the sparse axis a tuple of
    rows.
    """

    kind: str
    extents: Shape
    strides: Shape
    tile: Shape
    index: tuple[int | tuple[int, ...], ...]
    dim_map: Shape = ()
    traversal: Shape = ()
    sparse: int = 0

    def tensor_type(self, dtype: str) -> str:
        """The type of the tensor view."""
        return tensor_view(self.extents, dtype, self.strides)

    def type(self, dtype: str, padding: str) -> str:
        """The type of the view of tiles."""
        parts = [f"tile=({'x'.join(map(str, self.tile))})", self.tensor_type(dtype)]
        if self.kind == "strided":
            parts.insert(0, f"traversal=[{', '.join(map(str, self.traversal))}]")
        if self.kind == "gather_scatter":
            parts.insert(0, f"sparse_dim={self.sparse}")
        if self.dim_map:
            parts.append(f"dim_map=[{', '.join(map(str, self.dim_map))}]")
        if padding:
            parts.append(f"padding={padding}")
        return f"{self.kind}_view<{', '.join(parts)}>"

    @property
    def size(self) -> int:
        """Elements of the buffer."""
        return 1 + sum((n - 1) * s for n, s in zip(self.extents, self.strides, strict=True))

    def place(self, p: Index) -> int | None:
        """The element of the buffer behind element `p` of the tile."""
        at = [0] * len(p)
        for i, inner in enumerate(p):
            where = self.index[i]
            if self.kind == "gather_scatter":
                axis = i
                element = where[inner] if isinstance(where, tuple) else where + inner
            else:
                assert isinstance(where, int)
                axis = self.dim_map[i] if self.dim_map else i
                step = self.traversal[i] if self.kind == "strided" else self.tile[i]
                element = where * step + inner
            if element >= self.extents[axis]:
                return None
            at[axis] = element
        return sum(a * s for a, s in zip(at, self.strides, strict=True))

    def describe(self) -> str:
        """What tells it from others in an id."""
        text = "x".join(map(str, self.extents)) + "-" + "x".join(map(str, self.tile))
        index = ".".join("r" if isinstance(i, tuple) else str(i) for i in self.index)
        return f"{self.kind}-{text}-at-{index}"


VIEWS = (
    View("partition", (7,), (1,), (4,), (1,)),
    View("partition", (6, 10), (10, 1), (4, 4), (1, 2)),
    View("partition", (6, 10), (10, 1), (4, 4), (0, 1)),
    View("partition", (6, 10), (24, 2), (4, 4), (1, 2)),
    View("partition", (6, 10), (1, 6), (3, 5), (1, 0)),
    View("partition", (6, 10), (10, 1), (4, 3), (2, 1), dim_map=(1, 0)),
    View("partition", (2, 3, 5), (15, 5, 1), (4, 2, 1), (1, 0, 2), dim_map=(2, 0, 1)),
    View("partition", (3, 5), (5, 1), (3, 5), (0, 0)),
    View("partition", (2, 2, 3, 2), (12, 6, 2, 1), (1, 2, 2, 2), (1, 0, 1, 0)),
    View("partition", (3,), (1,), (8,), (0,)),
    View("strided", (20,), (1,), (8,), (3,), traversal=(5,)),
    View("strided", (20,), (1,), (3,), (2,), traversal=(7,)),
    View("strided", (6, 10), (10, 1), (4, 4), (1, 3), traversal=(2, 3)),
    View("strided", (6, 10), (10, 1), (4, 3), (3, 1), dim_map=(1, 0), traversal=(2, 3)),
    View("gather_scatter", (8, 6), (6, 1), (4, 6), ((5, 0, 7, 2), 0)),
    View("gather_scatter", (8, 6), (6, 1), (4, 4), ((5, 1, 200, 3), 3)),
    View("gather_scatter", (6, 8), (8, 1), (3, 4), (4, (7, 0, 9, 3)), sparse=1),
    View("gather_scatter", (9,), (1,), (4,), ((8, 1, 0, 4),)),
)


def views(settings: Settings) -> list[View]:
    """The views, with tiles that the implementation has, at indices of their index spaces."""
    return [v if settings.has(v.tile) else _fitted(settings, v) for v in VIEWS]


def _fitted(settings: Settings, view: View) -> View:
    part = settings.fit(view.tile)
    index: list[int | tuple[int, ...]] = []
    for axis, where in enumerate(view.index):
        if isinstance(where, tuple):
            index.append(tuple(np.resize(where, part[axis]).tolist()))
        elif view.kind == "gather_scatter":
            index.append(where)
        else:
            extent = view.extents[view.dim_map[axis] if view.dim_map else axis]
            step = view.traversal[axis] if view.kind == "strided" else part[axis]
            index.append(min(where, -(-extent // step) - 1))
    return replace(view, tile=part, index=tuple(index))


def cases(settings: Settings) -> Iterator[Case]:
    """All of them."""
    yield from _views(settings)
    yield from _pointers(settings)


def _picked(settings: Settings, number: int, every: int) -> bool:
    return settings.budget != "wimpy" or number % every == 0


def _views(settings: Settings) -> Iterator[Case]:
    number = 0
    for (at, view), dtype in product(enumerate(views(settings)), ALL):
        paddings = PADDINGS if is_float(dtype) else PADDINGS[:2]
        for padding in paddings:
            number += 1
            if _picked(settings, number, 7):
                op = "load_view_tko"
                id = f"ops/{op}/{dtype}/{view.describe()}-{padding or 'none'}-{at}"
                build = partial(_load, settings, id, view, dtype, padding)
                yield Case(id, "ops", op, dtype, _covers(op, view), build, (f"op:{op}",))
        number += 1
        if _picked(settings, number, 7):
            op = "store_view_tko"
            id = f"ops/{op}/{dtype}/{view.describe()}-{at}"
            build = partial(_store, settings, id, view, dtype)
            yield Case(id, "ops", op, dtype, _covers(op, view), build, (f"op:{op}",))


def _covers(op: str, view: View) -> tuple[str, ...]:
    return (f"{op}.meaning", f"make_{view.kind}_view.meaning", "make_tensor_view.meaning")


def _random(settings: Settings, id: str, dtype: str, count: int) -> Codes:
    rng = settings.rng(id)
    pool = np.concatenate([values.edges(dtype), values.random_codes(dtype, 30, rng)])
    return pool[rng.integers(0, pool.size, count)]


def padding_code(padding: str, dtype: str) -> int:
    """The element that a view gives outside."""
    if not is_float(dtype):
        return 0
    f = FORMATS[dtype]
    top = 1 << (f.width - 1) if f.signed else 0
    if padding == "nan":
        return f.nan_code
    if padding in ("pos_inf", "neg_inf"):
        beyond = f.max_code + 1 if f.infinity else f.nan_code if f.nan != "none" else f.max_code
        code = beyond << f.unused if f.infinity else beyond
        return code | (top if padding == "neg_inf" and (f.infinity or f.nan == "none") else 0)
    return top if padding == "neg_zero" and f.nan != "negative_zero" else 0


def emit_view(k: Kernel, view: View, dtype: str, name: str, padding: str = "") -> tuple[str, str]:
    """Make a view of a buffer; give it and its index as text."""
    tensor = k.let("v", f"make_tensor_view %{name}, [], [] : {view.tensor_type(dtype)}")
    made = k.let("p", f"make_{view.kind}_view {tensor} : {view.type(dtype, padding)}")
    index: list[str] = []
    for where in view.index:
        if isinstance(where, tuple):
            index.append(k.constant("i32", list(where), (len(where),)))
        else:
            index.append(k.constant("i32", where))
    return made, f"[{', '.join(index)}]"


def _load(settings: Settings, id: str, view: View, dtype: str, padding: str) -> Program:
    k = Kernel()
    bits = _random(settings, id, dtype, view.size)
    k.arguments.append(Buffer("in0", dtype, bits))
    made, index = emit_view(k, view, dtype, "in0", padding)
    value, token = k.name("x"), k.name("t")
    k.emit(
        f"{value}, {token} = load_view_tko {made}, {index} {{ordering = weak}} : "
        f"{tile(view.tile, dtype)}, token"
    )
    expected = np.zeros(view.tile, np.uint64)
    outside = np.zeros(view.tile, bool)
    for p in product(*(range(n) for n in view.tile)):
        place = view.place(p)
        outside[p] = place is None
        expected[p] = padding_code(padding, dtype) if place is None else bits[place]
    answer = Answer.moved(dtype, expected)
    if not padding and outside.any():
        # What is outside is poison, which must not reach an output: put zeros of a known kind
        # there.
        mask = k.load("in1", "i1", codes(~outside), view.tile)
        fill = k.load("in2", dtype, bits[:1], (1,) * len(view.tile))
        spread = k.let("b", f"broadcast {fill} : {tile(view.tile, dtype)}")
        value = k.let("s", f"select {mask}, {value}, {spread} : {tile(view.tile, dtype)}")
        answer = Answer.moved(dtype, np.where(outside, bits[0], expected))
    if dtype == "f8e8m0" and padding in ("zero", "neg_zero", "pos_inf", "neg_inf"):
        # The format has no such value; which one stands there is the conversion's business.
        answer.free = outside
    k.store("out0", value, view.tile, answer)
    return k.program()


def _store(settings: Settings, id: str, view: View, dtype: str) -> Program:
    k = Kernel()
    memory = _random(settings, id + "m", dtype, view.size)
    bits = _random(settings, id, dtype, prod(view.tile)).reshape(view.tile)
    value = k.load("in0", dtype, bits, view.tile)
    k.arguments.append(Buffer("out0", dtype, memory, written=True))
    made, index = emit_view(k, view, dtype, "out0")
    k.let("t", f"store_view_tko {value}, {made}, {index} {{ordering = weak}} : token")
    expected = memory.copy()
    for p in product(*(range(n) for n in view.tile)):
        place = view.place(p)
        if place is not None:
            expected[place] = bits[p]
    k.answers["out0"] = Answer.moved(dtype, expected)
    return k.program()


# By pointers


SHAPES: tuple[Shape, ...] = ((), (1,), (7,), (3, 5), (2, 1, 3, 2))


def _pointers(settings: Settings) -> Iterator[Case]:
    number = 0
    dtypes = definition("load_ptr_tko").where["E"]
    shapes = [settings.fit(shape) for shape in SHAPES]
    for dtype, shape, masked in product(dtypes, shapes, ("", "mask", "padding")):
        for op in ("load_ptr_tko", "store_ptr_tko"):
            if op == "store_ptr_tko" and masked == "padding":
                continue
            number += 1
            if not _picked(settings, number, 5):
                continue
            name = "x".join(map(str, shape)) or "0"
            id = f"ops/{op}/{dtype}/{name}-{masked or 'all'}"
            make = _load_pointers if op == "load_ptr_tko" else _store_pointers
            build = partial(make, settings, id, dtype, shape, masked)
            yield Case(id, "ops", op, dtype, (f"{op}.meaning",), build, (f"op:{op}",))


def emit_pointers(k: Kernel, name: str, dtype: str, places: np.ndarray) -> str:
    """A tile of pointers to elements of a buffer."""
    shape = places.shape
    base = f"%{name}"
    pointer = f"ptr<{dtype}>"
    if shape:
        ones = k.let("r", f"reshape {base} : {tile((1,) * len(shape), pointer)}")
        base = k.let("b", f"broadcast {ones} : {tile(shape, pointer)}")
    step = k.load(f"places_{name}", "i32", codes(places.reshape(-1)), shape)
    return k.let("q", f"offset {base}, {step} : {tile(shape, pointer)}")


def _load_pointers(settings: Settings, id: str, dtype: str, shape: Shape, masked: str) -> Program:
    k, rng = Kernel(), settings.rng(id)
    count = prod(shape)
    bits = _random(settings, id, dtype, count + 5)
    places = rng.integers(0, count + 5, count).reshape(shape)
    keep = rng.random(shape) < 0.6 if masked else np.ones(shape, bool)
    k.arguments.append(Buffer("in0", dtype, bits))
    # Masked elements may point anywhere: here far behind the end.
    wild = np.where(keep, places, 1 << 20)
    pointers = emit_pointers(k, "in0", dtype, np.asarray(wild))
    operands, padding = [pointers], codes(np.zeros(shape))
    if masked:
        operands.append(f"mask={k.load('in1', 'i1', codes(keep), shape)}")
    if masked == "padding":
        padding = _random(settings, id + "p", dtype, count).reshape(shape)
        operands.append(f"padding_value={k.load('in2', dtype, padding, shape)}")
    value, token = k.name("x"), k.name("t")
    k.emit(
        f"{value}, {token} = load_ptr_tko {', '.join(operands)} {{ordering = weak}} : "
        f"{tile(shape, dtype)}, token"
    )
    expected = np.where(keep, bits[places], padding)
    if masked == "mask":
        mask = operands[1].split("=")[1]
        other = k.load("in3", dtype, bits[:count], shape)
        value = k.let("s", f"select {mask}, {value}, {other} : {tile(shape, dtype)}")
        expected = np.where(keep, bits[places], bits[:count].reshape(shape))
    k.store("out0", value, shape, Answer.moved(dtype, codes(expected)))
    return k.program()


def _store_pointers(settings: Settings, id: str, dtype: str, shape: Shape, masked: str) -> Program:
    k, rng = Kernel(), settings.rng(id)
    count = prod(shape)
    memory = _random(settings, id + "m", dtype, count + 5)
    bits = _random(settings, id, dtype, count).reshape(shape)
    places = rng.permutation(count + 5)[:count].reshape(shape)
    keep = rng.random(shape) < 0.6 if masked else np.ones(shape, bool)
    value = k.load("in0", dtype, bits, shape)
    k.arguments.append(Buffer("out0", dtype, memory, written=True))
    pointers = emit_pointers(k, "out0", dtype, np.asarray(np.where(keep, places, 1 << 20)))
    operands = [pointers, value]
    if masked:
        operands.append(f"mask={k.load('in1', 'i1', codes(keep), shape)}")
    k.let("t", f"store_ptr_tko {', '.join(operands)} {{ordering = weak}} : token")
    expected = memory.copy()
    for p in product(*(range(n) for n in shape)):
        if keep[p]:
            expected[places[p]] = bits[p]
    k.answers["out0"] = Answer.moved(dtype, expected)
    return k.program()
