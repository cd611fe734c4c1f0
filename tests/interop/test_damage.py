"""Damaged files: a diagnosis each, at once, whatever was damaged."""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path

import pytest

from reftile.interop.emit import pad, put_number, put_table
from reftile.interop.read import read_bytecode
from reftile.interop.sections import MAGIC, open_container
from reftile.interop.write import write_bytecode
from reftile.ir.diagnostics import ReftileError
from reftile.ir.parse import parse
from reftile.ir.print import show

DATA = Path(__file__).parent / "data"
FILES = [path.read_bytes() for path in sorted(DATA.glob("*.tilebc"))]
VADD = (DATA / "vadd-13.4.tilebc").read_bytes()


def rule_of(data: bytes) -> str:
    """The rule that refuses `data`, or "" if it is fine; anything else raised fails the test."""
    try:
        read_bytecode(data)
    except ReftileError as error:
        assert str(error)
        return error.diagnosis.rule
    return ""


def refused(data: bytes) -> str:
    rule = rule_of(data)
    assert rule
    return rule


def changed(data: bytes, at: int, *values: int) -> bytes:
    return data[:at] + bytes(values) + data[at + len(values) :]


@pytest.mark.parametrize("at", range(len(MAGIC)))
def test_a_wrong_magic_number_is_refused(at: int) -> None:
    assert refused(changed(VADD, at, VADD[at] ^ 1)) == "bytecode.magic"


@pytest.mark.parametrize(
    ("at", "value", "rule"),
    [
        (8, 12, "bytecode.version"),
        (9, 0, "bytecode.version"),
        (9, 6, "bytecode.version"),
        (10, 1, "bytecode.preview"),
        (10, 2, "bytecode.version"),
        (11, 1, "bytecode.version"),
        (12, 0x7F, "bytecode.section"),
    ],
)
def test_a_wrong_header_is_refused(at: int, value: int, rule: str) -> None:
    assert refused(changed(VADD, at, value)) == rule


def test_a_diagnosis_says_at_which_byte() -> None:
    with pytest.raises(ReftileError) as caught:
        read_bytecode(changed(VADD, 9, 99))
    assert caught.value.diagnosis.data == {"offset": 8}
    assert "(byte 8, in the header)" in caught.value.diagnosis.message


@pytest.mark.parametrize("data", FILES)
def test_a_file_cut_anywhere_is_refused(data: bytes) -> None:
    for end in range(len(data)):
        refused(data[:end])


def test_bytes_behind_the_end_are_refused() -> None:
    assert refused(VADD + b"\0") == "bytecode.trailing"


def mutated(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 3, 8])):
        at = rng.randrange(len(out))
        match rng.randrange(8):
            case 0 | 1 | 2:
                out[at] ^= 1 << rng.randrange(8)
            case 3 | 4:
                out[at] = rng.randrange(256)
            case 5:
                out[at] = rng.choice([0, 1, 0x7F, 0x80, 0xFF])
            case 6:
                del out[at : at + rng.choice([1, 4, 16])]
            case _:
                out[at:at] = rng.randbytes(rng.choice([1, 4]))
        out = out or bytearray(1)
    return bytes(out)


def mutated_inside(data: bytes, rng: random.Random) -> bytes:
    """Change bytes inside sections, which reaches deeper than changing any."""
    out = bytearray(data)
    sections = open_container(data, "x").sections
    for _ in range(rng.choice([1, 1, 2, 4])):
        section = sections[rng.choice([2, 2, 2, 2, 3, 4, 5, 5])]
        at = rng.randrange(section.position, section.end)
        out[at] = rng.choice([out[at] ^ 1 << rng.randrange(8), (out[at] + 1) & 255, 0, 255])
    return bytes(out)


@pytest.mark.parametrize("seed", range(4))
def test_random_damage_gives_diagnoses(seed: int) -> None:
    # Longer runs: 10,000 of each kind over other files found no more rules than these.
    rng = random.Random(seed)
    for _ in range(300):
        rule_of(mutated(rng.choice(FILES), rng))
        data = mutated_inside(rng.choice(FILES), rng)
        if not rule_of(data):
            text = show(read_bytecode(data))
            assert show(parse(text)) == text


def file_of(*sections: tuple[int, bytes]) -> bytes:
    """A file of these sections, each aligned to 8 bytes."""
    out = bytearray(MAGIC + bytes([13, 4, 0, 0]))
    for id, payload in sections:
        out.append(id | 0x80)
        put_number(out, len(payload))
        put_number(out, 8)
        pad(out, 8)
        out += payload
    return bytes(out) + b"\0"


def table(items: list[bytes], width: int) -> bytes:
    out = bytearray()
    put_table(out, items, width)
    return bytes(out)


def test_an_empty_file_is_an_empty_module() -> None:
    assert show(read_bytecode(file_of())) == ""


def test_sections_may_end_in_padding() -> None:
    # The writer of NVIDIA's open dialect fills the function section up to a multiple of 8.
    types = table([bytes([16, 0, 0])], 4)
    ending = bytes([0x5C, 0, 0])
    function = bytes([1, 0, 0, 2, 0, len(ending)]) + ending
    data = file_of((1, table([b"k"], 4)), (5, types), (2, function + b"\xcb" * 7))
    assert show(read_bytecode(data)) == "tile kernel @k() {\n  return\n}\n"
    assert refused(file_of((1, table([b"k"], 4)), (5, types), (2, function + b"\xcb\0"))) == (
        "bytecode.trailing"
    )


def test_a_type_that_contains_itself_is_refused() -> None:
    function_type = bytes([16, 1, 0, 0])
    function = bytes([1, 0, 0, 2, 0, 0])
    data = file_of((1, table([b"k"], 4)), (5, table([function_type], 4)), (2, function))
    with pytest.raises(ReftileError, match="type 0 contains itself"):
        read_bytecode(data)


def test_a_call_site_that_contains_itself_is_refused() -> None:
    function_type, call = bytes([16, 0, 0]), bytes([6, 1, 1])
    debug = bytearray([1, *[0xCB] * 3, *[0] * 4, 1, *[0xCB] * 7, 1, *[0] * 7])
    put_table(debug, [call], 4)
    function = bytes([1, 0, 0, 2, 1, 0])
    data = file_of(
        (1, table([b"k"], 4)),
        (5, table([function_type], 4)),
        (3, bytes(debug)),
        (2, function),
    )
    assert refused(data) == "bytecode.debug"


def test_large_counts_do_not_take_memory() -> None:
    huge = bytes.fromhex("ffffffffffffffff7f")
    tracemalloc.start()
    for id in range(1, 8):
        refused(file_of((id, huge)))
        refused(VADD[:12] + bytes([id]) + huge)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


DEEP = 40


def test_nested_regions_are_read() -> None:
    inside = "if %c then {\n" * DEEP + "yield\n" + "}\nyield\n" * (DEEP - 1) + "}\n"
    module = parse(f"tile kernel @k(%c: tile<i1>) {{\n{inside}return\n}}\n")
    assert show(read_bytecode(write_bytecode(module))).count("if ") == DEEP


def test_regions_that_are_nested_too_deep_are_refused() -> None:
    types = table([bytes([0]), bytes([13, 0, 0]), bytes([16, 1, 1, 0])], 4)
    opening = bytes([0x32, 0, 0, 2, 1, 0, 1])
    for depth, rule in ((200, "bytecode.too_deep"), (60, "bytecode.count")):
        body = bytearray([1, 0, 2, 2, 0])
        put_number(body, len(opening) * depth)
        data = file_of((1, table([b"k"], 4)), (5, types), (2, bytes(body) + opening * depth))
        assert refused(data) == rule
