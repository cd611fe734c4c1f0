"""The suites that are written as text: `reject` and `trap`.

A file of `reject` holds one program that must be refused. A file of `trap` holds the kernels
`faulty`, which must be stopped while it runs, and `repaired`, which must not. Comments at the top
say how:

    // rule: memory.misaligned            -- the rule that must be named
    // grid: 2
    // argument: f32[8] = arange          -- or zeros, fresh (not to be read before it is written),
    or codes and
                                             integers; `f32[8] at 2 = ...` begins 2 bytes behind an
                                             aligned address
    // argument: same as p                -- the memory of an earlier argument
    // argument: i32 = 5                  -- a scalar
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from importlib.resources import files

from reftile.conformance.cases import Argument, Buffer, Case, Program, Scalar
from reftile.conformance.oracle.formats import FORMATS, WIDTHS, Codes, codes, is_float
from reftile.conformance.suites.common import Settings
from reftile.conformance.values import codes_of

from reftile.ir.ops import OPS

_ARRAY = re.compile(r"(\w+)\[(\d+)\](?: at (\d+))? = (.+)$")
_SCALAR = re.compile(r"(\w+) = (.+)$")
_KERNEL = re.compile(r"kernel @(\w+)\(([^)]*)\)", re.S)


def read(suite: str) -> Iterator[tuple[str, str]]:
    """(name, text) of each file of a suite."""
    folder = files("reftile.conformance.suites") / suite
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        if entry.name.endswith(".tile"):
            yield entry.name.removesuffix(".tile"), entry.read_text(encoding="utf-8")


def fields(text: str, name: str) -> list[str]:
    """The comments `// name: ...` of a file."""
    return re.findall(rf"^// {name}: (.+)$", text, re.M)


def rejects(settings: Settings) -> Iterator[Case]:
    """One program for each rule."""
    for name, text in read("reject"):
        rules = tuple(fields(text, "rule"))
        op = rules[0].split(".")[0]
        program = Program(text, (1, 1, 1), (), rules=rules)
        cell = op if op in OPS else "text"
        yield Case(f"reject/{name}", "reject", cell, "any", rules, partial(_same, program))


def _same(program: Program) -> Program:
    return program


def traps(settings: Settings) -> Iterator[Case]:
    """Pairs: the rule must be found in the first, and nothing in the second."""
    for name, text in read("trap"):
        rules = tuple(fields(text, "rule"))
        op = rules[0].split(".")[0]
        cell = op if op in OPS else "launch"
        for kernel in ("faulty", "repaired"):
            covers = rules if kernel == "faulty" else ()
            build = partial(_trap, text, kernel, rules if kernel == "faulty" else ())
            yield Case(f"trap/{name}/{kernel}", "trap", cell, "any", covers, build)


def _trap(text: str, kernel: str, rules: tuple[str, ...]) -> Program:
    extents = [int(n) for n in fields(text, "grid")[0].split(",")]
    x, y, z = (*extents, 1, 1)[:3]
    names = re.findall(r"%(\w+)\s*:", _signature(text, kernel))
    arguments: list[Argument] = []
    for name, described in zip(names, fields(text, "argument"), strict=True):
        found = argument(name, described)
        if isinstance(found, Buffer) and found.same_as:
            found = replace(
                next(a for a in arguments if a.name == found.same_as),
                name=name,
                same_as=found.same_as,
            )  # type: ignore[type-var]
        arguments.append(found)
    return Program(text, (x, y, z), tuple(arguments), rules=rules, kernel=kernel)


def _signature(text: str, kernel: str) -> str:
    for found in _KERNEL.finditer(text):
        if found[1] == kernel:
            return found[2]
    raise ValueError(f"there is no kernel @{kernel}")


def argument(name: str, text: str) -> Argument:
    """The argument that a comment describes."""
    if text.startswith("same as "):
        return Buffer(name, "i8", codes([0]), written=True, same_as=text.removeprefix("same as "))
    match = _ARRAY.match(text)
    if match is not None:
        dtype, count = match[1], int(match[2])
        fresh = match[4] == "fresh"
        bits = contents(match[4], dtype, count)
        return Buffer(name, dtype, bits, written=True, fresh=fresh, shift_bytes=int(match[3] or 0))
    match = _SCALAR.match(text)
    if match is None:
        raise ValueError(f"{text!r} describes no argument")
    value = float(match[2]) if is_float(match[1]) else int(match[2])
    return Scalar(name, match[1], value)


def contents(text: str, dtype: str, count: int) -> Codes:
    """The codes of an array: `zeros`, `arange`, `fresh`, or numbers (0x... for codes of floats)."""
    if text in ("zeros", "fresh"):
        return codes([0] * count)
    if text == "arange":
        numbers = range(count)
        return (
            codes_of([float(n) for n in numbers], FORMATS[dtype])
            if is_float(dtype)
            else codes(numbers)
        )
    mask = (1 << WIDTHS[dtype]) - 1
    found = codes([int(word, 0) & mask for word in text.split()])
    if found.size != count:
        raise ValueError(f"{text!r} has {found.size} numbers, and the array {count}")
    return found
