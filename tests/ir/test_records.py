"""Records: the generated modules follow spec/, and a bad record is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from reftile.ir.define import BadRecord, parse_attributes, parse_pattern, parse_ports, parse_regions
from reftile.ir.expressions import BadExpression, compile_expression, compile_message, evaluate
from reftile.ir.records import generate, load


def test_generated_modules_follow_the_spec() -> None:
    for path, text in generate().items():
        assert path.read_text() == text, f"{path.name}: run python -m reftile.ir.records"


def test_every_record_has_a_summary_and_prose() -> None:
    for name, record in load().ops.items():
        assert record.definition.summary, name
        assert record.prose, name


def test_no_opcode_is_given_to_two_operations() -> None:
    codes: dict[object, str] = {}
    for name, record in load().ops.items():
        code = record.definition.tile_ir.get("code")
        if code is not None:
            assert codes.setdefault(code, name) == name


def _spec(tmp_path: Path, body: str) -> Path:
    (tmp_path / "x.md").write_text(f"# x\n\n```toml op\n{body}\n```\n")
    return tmp_path


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ('name = "x"\nsignature = "a"', "unknown fields"),
        ('name = "x"\noperands = "a tile[; i32]"', "is not a port"),
        ('name = "x"\nattributes = "a: colour"', "unknown kind"),
        ('name = "x"\neffects = "magic"', "unknown effects"),
        ('name = "x"\ntraits = ["magic"]', "unknown traits"),
        ('name = "x"\noperands = "a: token, a: token"', "used twice"),
        ('name = "x"\noperands = "results*: any"', "cannot name"),
        ('name = "x"\nwhere = { T = "f15" }', "neither a dtype nor a class"),
        ('name = "x"\n[rule.r]\ncheck = "open(1)()"\nsay = "s"', "vocabulary"),
        ('name = "x"\n[rule.r]\ncheck = "a.__class__"\nsay = "s"', "not a field"),
        ('name = "x', "Illegal|Unterminated|Expected|Invalid"),
    ],
)
def test_a_bad_record_is_refused(tmp_path: Path, body: str, problem: str) -> None:
    with pytest.raises(BadRecord, match=problem):
        load(_spec(tmp_path, body))


def test_patterns_say_what_they_bind() -> None:
    pattern = parse_pattern("tile[*b m k; ptr[T]]")
    assert [(t.text, t.star) for t in pattern.shape] == [("b", True), ("m", False), ("k", False)]
    assert pattern.pointer
    assert pattern.element is not None
    assert pattern.element.text == "T"


def test_ports_have_multiplicities() -> None:
    ports = parse_ports("a: token, b?: tile[; i1], c*: any[A]")
    assert [p.multiplicity for p in ports] == ["one", "optional", "many"]


def test_attributes_have_kinds_and_defaults() -> None:
    specs = parse_attributes("a: int, b?: string, c: unit, d: int[] = [1, 2]")
    assert [(s.kind, s.optional, s.default) for s in specs] == [
        ("int", False, None),
        ("string", True, None),
        ("unit", True, False),
        ("int[]", True, (1, 2)),
    ]


def test_regions_have_endings() -> None:
    (region,) = parse_regions("body(i: tile[; I], c*: any[A]) -> continue(A) | break(R)")
    assert [e.op for e in region.endings] == ["continue", "break"]
    assert [p.name for p in region.arguments] == ["i", "c"]


@pytest.mark.parametrize(
    "text", ["__import__('os')", "(lambda: 1)()", "a.__class__", "[x for x in y]", "1 if", "a := 1"]
)
def test_expressions_outside_the_language_are_refused(text: str) -> None:
    with pytest.raises(BadExpression):
        code = compile_expression(text)
        evaluate(code, {"a": 1, "y": ()})


def test_messages_fill_in_expressions() -> None:
    code = compile_message("{F} needs {dims(s)}")
    assert evaluate(code, {"F": "bf16", "s": (64, 8)}) == "bf16 needs 64x8"
