"""Every operation that a pipe kernel may have: lowered and assembled, or refused with a reason.

An operation is tried as its record's example shows it. Pointers become arguments; results are
stored to shared memory, so that nothing is dropped as unused.
"""

from __future__ import annotations

import re

import pytest

from reftile.ir.diagnostics import ReftileError
from reftile.ir.ops import OPS
from reftile.ir.parse import parse
from reftile.ir.records import load
from reftile.ir.targets import instructions_of
from reftile.ir.types import PointerType, TileType
from reftile.ir.verify import diagnose
from reftile.lower.lower_pipe import REASONS
from reftile.lower.pipeline import lower
from reftile.lower.ptx.assemble import assemble, find_ptxas

TARGETS = ("sm_80", "sm_90a")
TERMINATORS = {"break", "continue", "yield", "return"}
ELSEWHERE = {
    "global": "is no operation of a kernel's body",
    "get_global": "needs a global of the module",
    "step": "gfx942 only",
    "stagger": "gfx942 only",
    "set_priority": "gfx942 only",
    "role": "needs a whole kernel: the examples have them",
    "unpack": "gives elements of less than a byte, which nothing can store",
}
BY_POINTER = ("atomic_cas_tko", "atomic_rmw_tko")
"""Their examples store by pointer first, which is refused; test_atomics has them."""
NO_ROW = "cannot be printed as PTX yet"
REFUSED_BY_PTX = {
    **dict.fromkeys(
        "int_to_ptr offset philox ptr_to_int ptr_to_ptr".split(),
        NO_ROW,
    ),
    "atomic_inc_wrap_tko": "outside `elected` is not lowered",
    "ftof": "that rounds to positive_inf has no instruction",
    "if_rows": "several groups in one warp",
    "mmaf": "8 warps cannot share a product of 4x6x8",
    "mmai": "8 warps cannot share a product of 4x6x8",
}
"""What reaches PTX and has no instructions there, with a part of the message."""
ALLOCA = re.compile(r"%(\w+) = alloca \{[^}]*\} : (tile<ptr<\w+>>)\n")


def pipe_operations() -> list[str]:
    """The operations whose records name the level."""
    return sorted(n for n, cls in OPS.items() if "pipe" in cls.definition.levels)


def example(name: str, target: str, warps: int) -> str:
    """The example of a record as a kernel that uses what it computes."""
    body = load().ops[name].example or ""
    arguments = ""
    if name != "alloca":
        arguments = ", ".join(f"%{m[1]}: {m[2]}" for m in ALLOCA.finditer(body))
        body = ALLOCA.sub("", body)
    head = f'pipe kernel @k({arguments}) attributes {{target = "{target}", warps = {warps}}} {{'
    text = f"{head}\n{body}\nreturn\n}}"
    kernel = parse(text, name).kernel()
    uses: list[str] = []
    for i, result in enumerate(r for op in kernel.walk() if op.name == name for r in op.results):
        kind = result.type
        if not isinstance(kind, TileType) or result.owner.parent is not kernel.body.block:  # type: ignore[union-attr]
            continue
        shape = "x".join(map(str, kind.shape))
        prefix = f"{shape}x" if shape else ""
        value, element = f"%{result.name}", kind.element
        if isinstance(element, PointerType):
            uses.append(f"%n{i} = ptr_to_int {value} : tile<{prefix}i64>")
            value, stored = f"%n{i}", "i64"
        elif element.bits < 8:
            uses.append(f"%n{i} = exti {value} {{signedness = unsigned}} : tile<{prefix}i32>")
            value, stored = f"%n{i}", "i32"
        else:
            stored = element.name
        uses.append(f"%b{i} = alloc_buffer : buffer<{prefix}{stored}>")
        uses.append(f"%t{i} = store_buffer {value}, %b{i} : token")
    return "\n".join([head, body, *uses, "return", "}"])


def attempt(name: str) -> str:
    """Empty if the operation is lowered for a target that has it, else why not."""
    allowed = OPS[name].definition.targets
    why = "no target takes the example"
    for target in TARGETS:
        if allowed and instructions_of(target) not in allowed:
            continue
        for warps in (4, 8):
            text = example(name, target, warps)
            if diagnose(parse(text, name)):
                continue
            try:
                lowered = lower(parse(text, name).kernel(), target)
            except ReftileError as error:
                why = error.diagnosis.message
                continue
            if find_ptxas() is not None:
                assemble(lowered.ptx, target)
            return ""
    return why


@pytest.mark.parametrize("name", pipe_operations())
def test_an_operation_is_lowered_or_refused_with_a_reason(name: str) -> None:
    if name in TERMINATORS or name in ELSEWHERE:
        return
    why = attempt(name)
    if name in REASONS or name in BY_POINTER:
        # An example may meet another refusal first, such as a store by pointer.
        assert any(reason in why for reason in REASONS.values())
    elif name in REFUSED_BY_PTX:
        assert REFUSED_BY_PTX[name] in why
    else:
        assert not why


def test_reasons_are_of_operations_that_are_there() -> None:
    known = set(pipe_operations())
    assert set(REASONS) | set(REFUSED_BY_PTX) | set(ELSEWHERE) <= known
    assert not set(REASONS) & set(REFUSED_BY_PTX)
