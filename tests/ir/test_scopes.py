"""Names and values are visible in their region and those within, at a cost that does not depend on
how many there are."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from reftile.ir.core import Module
from reftile.ir.diagnostics import ReftileError
from reftile.ir.parse import parse
from reftile.ir.print import show
from reftile.ir.verify import verify


def kernel(*lines: str) -> str:
    body = "".join(f"  {line}\n" for line in lines)
    return f"tile kernel @k(%c: tile<i1>) {{\n{body}  return\n}}\n"


CONSTANTS = [f"%x{i} = constant {{value = {i}}} : tile<i32>" for i in range(12000)]
BRANCHES = ["if %c then {\n    yield\n  }"] * 3000


def seconds(work: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(2):
        start = time.thread_time()
        work()
        best = min(best, time.thread_time() - start)
    return best


STAGES: dict[str, Callable[[str, Module], object]] = {
    "parse": lambda text, module: parse(text),
    "verify": lambda text, module: verify(module),
    "print": lambda text, module: show(module),
}


@pytest.mark.parametrize("stage", STAGES)
def test_regions_cost_the_same_however_much_stands_in_front_of_them(stage: str) -> None:
    # Copying what is visible for each region would make the first some ten times as slow.
    texts = [kernel(*CONSTANTS, *BRANCHES), kernel(*BRANCHES, *CONSTANTS)]
    modules = [parse(text) for text in texts]
    behind, before = (
        seconds(lambda t=text, m=module: STAGES[stage](t, m))
        for text, module in zip(texts, modules, strict=True)
    )
    assert behind < 3 * before


def test_a_name_may_be_used_again_behind_its_region() -> None:
    branch = "if %c then {\n    %y = constant {value = 1} : tile<i32>\n    yield\n  }"
    text = kernel(branch, branch, "%y = constant {value = 2} : tile<i32>")
    module = parse(text)
    verify(module)
    assert show(module) == text


def test_a_value_ends_with_its_region() -> None:
    inner = "if %c then {\n    %y = constant {value = 1} : tile<i32>\n    yield\n  }"
    with pytest.raises(ReftileError):
        parse(kernel(inner, "%z = addi %y, %y : tile<i32>"))
    module = parse(kernel(inner, "%z = constant {value = 1} : tile<i32>"))
    block = module.kernel().body.block
    branch, constant = block.ops[0], block.ops[1]
    hidden = branch.regions[0].block.ops[0].results[0]
    user = parse(kernel("%a = constant {value = 1} : tile<i32>", "%z = addi %a, %a : tile<i32>"))
    add = user.kernel().body.block.ops[1]
    add.arguments = (hidden, constant.results[0])
    block.ops.insert(2, add)
    with pytest.raises(ReftileError) as error:
        verify(module)
    assert error.value.diagnosis.rule == "value.undefined"


def test_siblings_do_not_see_each_other() -> None:
    text = kernel(
        "if %c then {\n    %y = constant {value = 1} : tile<i32>\n    yield\n  } otherwise {\n"
        "    %z = addi %y, %y : tile<i32>\n    yield\n  }"
    )
    with pytest.raises(ReftileError):
        parse(text)
