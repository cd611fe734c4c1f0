"""Layouts are values: where each element of a tile lives, as linear maps over bits (GF(2)).

A `Layout` maps a hardware place to an element of a tile. The wgmma accumulator of 64 x 96 is

    layout<64x96; register 2*(0,1) 2*(8,0) 12*(0,8); lane 4*(0,2) 8*(1,0); warp 4*(16,0)>

Read each `extent*(step)` as one digit of a number, lowest digit first: register r is the digits
(r % 2, r // 2 % 2, r // 4), lane l is (l % 4, l // 4). A digit d adds d times its step to the
element's (row, column). So register 5 of lane 9 in warp 2 holds row 32 + 2, column 8 + 2 + 1.

Digits combine in two ways, and the extent says which:

- a power of two is a number of *bits*, and bits combine by exclusive or. That is all a swizzle is:
  `offset 64*(0,1) 8*(1,8) 8*(8,0)`, the 64 x 64 tile of 16-bit elements with 128-byte swizzle, lets
  a row bit flip a column bit. Equality, rank, inversion and "which bits must move" are Gaussian
  elimination.
- the odd part of an extent is a *repeat*, and repeats add: 12 is two bits and a repeat of 3. Three
  warpgroups and widths like 96 or 176 are repeats of a power-of-two piece. `2+(72)` is a repeat
  too: a power of two that adds because exclusive or would differ. So is `4*(3)`, which counts 0, 3,
  6, 9: several bits need steps that are powers of two.

A step of zero says that several places hold the same element (replication). A layout that reaches
past its tile states how far, `layout<60 in 64; register 2*(1); lane 32*(2)>`: places outside the
shape hold nothing.

The construction is due to A. Goucher and was first used in Triton (triton-lang/triton#3794).
"""

from reftile.layout.linear.digits import Digit, LayoutError, Part, Run, Step
from reftile.layout.linear.elimination import Basis, rank
from reftile.layout.linear.layouts import PLACES, Layout, Place
from reftile.layout.linear.maps import Indices, Map

__all__ = [
    "PLACES",
    "Basis",
    "Digit",
    "Indices",
    "Layout",
    "LayoutError",
    "Map",
    "Part",
    "Place",
    "Run",
    "Step",
    "rank",
]
