"""Values that share registers: what a loop or branch carries and nobody reads is written too."""

from __future__ import annotations

import numpy as np
import pytest

from reftile.interp.launch import interpret
from reftile.ir.parse import parse
from reftile.lower.pipeline import lower
from tests.lower.on_machine import launch

KERNEL = """
pipe kernel @k(%x: tile<ptr<i32>>, %o: tile<ptr<i32>>, %n: tile<i32>) attributes {settings} {{
  %zero = constant {{value = 0}} : tile<i32>
  %one = constant {{value = 1}} : tile<i32>
  %five = constant {{value = 5}} : tile<32xi32>
  %big = constant {{value = 1000}} : tile<32xi32>
  %xt = make_tensor_view %x, [], [] : tensor_view<32xi32, strides=[1]>
  %v = make_partition_view %xt : partition_view<tile=(32), tensor_view<32xi32, strides=[1]>>
  %ot = make_tensor_view %o, [], [] : tensor_view<32xi32, strides=[1]>
  %w = make_partition_view %ot : partition_view<tile=(32), tensor_view<32xi32, strides=[1]>>
  %a, %read = load_view_tko %v, [%zero] {{ordering = weak}} : tile<32xi32>, token
  {body}
  %stored = store_view_tko %r, %w, [%zero] {{ordering = weak}} : token
  return
}}
"""
TILES = "tile<32xi32>, tile<32xi32>"
ARGUMENTS = "%b: tile<32xi32>, %c: tile<32xi32>"
LOOP = f"""%r, %unread = for %zero, %n, %one, [%a, %a] : {TILES} body(%i: tile<i32>, {ARGUMENTS}) {{
    FIRST
    SECOND
    continue %d, %e
  }}"""
READ, UNREAD = "%d = addi %b, %five : tile<32xi32>", "%e = addi %b, %big : tile<32xi32>"
BRANCH = f"""%more = cmpi %n, %one {{predicate = greater_than, signedness = signed}} : tile<i1>
  %r, %unread = if %more : {TILES} then {{
    {UNREAD.replace("%b,", "%a,")}
    {READ.replace("%b,", "%a,")}
    yield %d, %e
  }} otherwise {{
    {UNREAD.replace("%b,", "%a,")}
    {READ.replace("%b,", "%a,")}
    yield %d, %a
  }}"""
FOREVER = f"""%r, %unread = loop %a, %a, %zero : {TILES} body({ARGUMENTS}, %i: tile<i32>) {{
    %over = cmpi %i, %n {{predicate = greater_than_or_equal, signedness = signed}} : tile<i1>
    if %over then {{
      break %b, %big
    }}
    {UNREAD}
    {READ}
    %j = addi %i, %one : tile<i32>
    continue %d, %e, %j
  }}"""
THREE = f"{TILES}, tile<32xi32> body(%i: tile<i32>, {ARGUMENTS}, %d: tile<32xi32>)"
ROTATED = f"""%q, %unread, %r = for %zero, %n, %one, [%a, %a, %a] : {THREE} {{
    continue %d, %d, %b
  }}"""

NESTED = """%none = constant {value = 0} : tile<32xi32>
  %r = for %zero, %n, %one, [%a] : tile<32xi32> body(%i: tile<i32>, %b: tile<32xi32>) {
    %c = for %zero, %n, %one, [%none] : tile<32xi32> body(%j: tile<i32>, %d: tile<32xi32>) {
      continue %b
    }
    continue %c
  }"""


@pytest.mark.parametrize("times", [0, 1, 3])
@pytest.mark.parametrize(
    "body",
    [
        LOOP.replace("FIRST", READ).replace("SECOND", UNREAD),
        LOOP.replace("FIRST", UNREAD).replace("SECOND", READ),
        BRANCH,
        FOREVER,
        ROTATED,
        NESTED,
    ],
    ids=["read first", "unread first", "branch", "forever", "rotated", "nested"],
)
def test_what_nobody_reads_does_no_harm(body: str, times: int) -> None:
    kernel = parse(KERNEL.format(body=body, settings='{target = "sm_80", warps = 1}')).kernel()
    x = np.arange(32, dtype=np.int32)
    wanted, found = np.zeros_like(x), np.zeros_like(x)
    interpret(kernel, 1, [x, wanted, times])
    launch(lower(kernel, "sm_80"), 1, x=x, o=found, n=times)
    assert found.tolist() == wanted.tolist()
