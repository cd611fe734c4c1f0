"""Places, named by layout, of pipe kernels, by short kernels."""

from __future__ import annotations

import numpy as np
import pytest

from reftile.interp.launch import interpret
from reftile.interp.memory import STORED_POISON
from reftile.interp.pipe.places import Allocation, Place, placement, read_place, write_place
from reftile.interp.values import Tile
from reftile.ir.buffer_layout import bit_offset, buffer_bytes, transposed_layout
from reftile.ir.core import Module, Value
from reftile.ir.dtypes import DTYPES
from reftile.ir.numbers import encode
from reftile.ir.types import BufferType
from tests.interp.pipe.pipe_kernels import (
    POINTERS,
    TILES,
    fails,
    matrix,
    one_role,
    stored,
)

LAYOUTS = [
    ((16, 64), "bf16", "row_major"),
    ((16, 60), "f32", "row_major[70]"),
    ((5, 7), "i8", "row_major"),
    ((3, 5, 2), "f16", "row_major"),
    ((), "i32", "row_major"),
    ((16, 128), "bf16", "swizzle128"),
    ((8, 64), "bf16", "swizzle128[24]"),
    ((16, 64), "i8", "swizzle64"),
    ((24, 16), "f32", "swizzle32"),
    ((16, 16), "bf16", "swizzle16"),
]


def buffers() -> list[BufferType]:
    found = [BufferType(shape, DTYPES[dtype], layout) for shape, dtype, layout in LAYOUTS]
    turned = [t for t in found if len(t.shape) == 2]
    return found + [BufferType(t.shape[::-1], t.dtype, transposed_layout(t)) for t in turned]


def place_of(type: BufferType) -> Place:
    allocation = Allocation((0, 0, 0), Value(type, "b"), 0, buffer_bytes(type))
    return Place(allocation, 0, type, "%b")


@pytest.mark.parametrize("type", buffers(), ids=str)
def test_elements_lie_where_the_layout_says(type: BufferType) -> None:
    place = place_of(type)
    count = int(np.prod(type.shape))
    values = np.arange(count).reshape(type.shape) % 120
    data = values.astype(type.dtype.carrier)
    write_place(place, Tile(data))
    units = place.allocation.buffer.data.view(type.dtype.storage)
    wanted = encode(data, type.dtype)
    for index in np.ndindex(type.shape):
        assert units[bit_offset(type, index) // type.dtype.bits] == wanted[index]
    found = read_place(place)
    assert found.poison is None
    assert np.array_equal(found.data, data)


def test_poison_is_stored_and_read_by_element() -> None:
    type = BufferType((16, 64), DTYPES["bf16"], "swizzle128")
    place = place_of(type)
    assert read_place(place).poison is not None
    poison = np.zeros(type.shape, np.bool_)
    poison[3, 5] = True
    write_place(place, Tile(np.zeros(type.shape, np.float32), poison))
    found = read_place(place)
    assert found.poison is not None and np.array_equal(found.poison, poison)
    state = place.allocation.buffer.state
    assert state is not None and np.flatnonzero(state & STORED_POISON).size == 2
    write_place(place, Tile(np.zeros(type.shape, np.float32)))
    assert read_place(place).poison is None
    assert place.allocation.buffer.state is None


def test_a_placement_knows_which_bytes_are_all_of_a_range() -> None:
    whole = placement(BufferType((16, 128), DTYPES["bf16"], "swizzle128"), 16)
    assert whole.end == 16 * 16 and not whole.is_plain
    part = placement(BufferType((8, 128), DTYPES["bf16"], "swizzle128[16]"), 16)
    assert part.end == 0


# Parts of buffers and their names


@pytest.mark.parametrize("layout", ["row_major", "swizzle128"])
def test_slices_are_the_same_memory(layout: str) -> None:
    sliced = {"row_major": "row_major[64]", "swizzle128": "swizzle128"}[layout]
    buffer = f"buffer<16x32xf32, layout={sliced}>"
    body = f"""
    %source = constant {{value = 2.0}} : tile<32x64xf32>
    %w = store_buffer %source, %b : token
    %part = subview %b, [%one, %one] : {buffer}
    %x, %t = load_view_tko %a_v, [%zero, %one] {{ordering = weak}} : tile<16x32xf32>, token
    %w2 = store_buffer %x, %part, token=%w : token
    %other = subview %b, [%one, %zero] : {buffer}
    %same, %t2 = load_buffer %part, token=%w2 : tile<16x32xf32>, token
    %else, %t3 = load_buffer %other, token=%w2 : tile<16x32xf32>, token
    {stored("%same", "16x32", "t4", "%zero, %zero")}
    {stored("%else", "16x32", "t5", "%one, %one")}"""
    whole = "" if layout == "row_major" else f", layout={layout}"
    prologue = f"{TILES}\n%b = alloc_buffer : buffer<32x64xf32{whole}>"
    a, o = matrix()
    interpret(one_role(POINTERS, prologue, body), 1, [a, o])
    assert np.array_equal(o[:16, :32], a[:16, 32:])
    assert np.all(o[16:, 32:] == 2)


def test_slices_that_do_not_overlap_need_no_order() -> None:
    def store(row: str, column: str) -> Module:
        body = f"""
        %x = constant {{value = 2.0}} : tile<16x32xf32>
        %p = subview %b, [%zero, %zero] : buffer<16x32xf32, layout=swizzle128>
        %q = subview %b, [{row}, {column}] : buffer<16x32xf32, layout=swizzle128>
        %t = store_buffer %x, %p : token
        %u = store_buffer %x, %q : token"""
        return one_role("", "%b = alloc_buffer : buffer<32x64xf32, layout=swizzle128>", body)

    interpret(store("%one", "%zero"), 1, [])
    interpret(store("%zero", "%one"), 1, [])
    found = fails(store("%zero", "%zero"), 1, [])
    assert found.rule == "pipe.race.unwritten"
    assert found.data["element"] == (0, 0)
    assert "pass `store_buffer` a token that comes from `store_buffer`" in found.hint


def test_memory_under_another_type_is_the_same_bytes() -> None:
    body = f"""
    %x = constant {{value = 1.0}} : tile<32x64xf32>
    %w = store_buffer %x, %b : token
    %c = reinterpret_buffer %b : buffer<32x64xi32>
    %bits, %t = load_buffer %c{{token}} : tile<32x64xi32>, token
    %back = bitcast %bits : tile<32x64xf32>
    %piece = extract %back, [%one, %one] : tile<16x32xf32>
    {stored("%piece", "16x32", "u", "%zero, %zero")}"""
    prologue = f"{TILES}\n%b = alloc_buffer : buffer<32x64xf32>"
    a, o = matrix()
    interpret(one_role(POINTERS, prologue, body.replace("{token}", ", token=%w")), 1, [a, o])
    assert np.all(o[:16, :32] == 1)
    found = fails(one_role(POINTERS, prologue, body.replace("{token}", "")), 1, [a, o])
    assert found.rule == "pipe.race.unwritten"


def test_what_nobody_wrote_is_poison() -> None:
    body = f"""
    %x, %t = load_buffer %b : tile<16x32xf32>, token
    {stored("%x", "16x32", "u", "%zero, %zero")}"""
    prologue = f"{TILES}\n%b = alloc_buffer : buffer<16x32xf32>"
    a, o = matrix()
    found = fails(one_role(POINTERS, prologue, body), 1, [a, o])
    assert found.rule == "poison.output"


def test_a_slot_outside_its_ring() -> None:
    body = """
    %five = addi %four, %one : tile<i32>
    %s = slot %ring, %five : buffer<i32>
    %x, %t = load_buffer %s : tile<i32>, token"""
    found = fails(one_role("", "%ring = alloc_ring : ring<4, buffer<i32>>", body), 1, [])
    assert found.rule == "pipe.slot"
    assert "index 5 is outside ring<4" in found.message
