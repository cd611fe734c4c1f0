"""Writes the generated part of the litmus suite: relaxation cycles and scope matrices.

    python conformance/litmus/generate.py            write generated_*.litmus beside this file
    python conformance/litmus/generate.py --check    fail if they differ from what would be written

A cycle goes round two or three blocks. A block does one access, or two to different locations with
a token between them or not; blocks are joined by edges between accesses to one location:

    Rfe   a write, and the read that reads from it
    Fre   a read, and a write that comes after the write it read from
    Coe   a write, and a write after it in coherence order

`exists` asks for the outcome in which every edge of the cycle is as named. Whether it is allowed is
found by the explorer when the file is written and stands in it as data; tests ask a brute-force
model the same. The verdicts of the scope matrices follow from the rule that both scopes must
include the other block.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Literal

from reftile.interp.model.explore import explore
from reftile.interp.model.litmus import parse_program

Edge = Literal["Rfe", "Fre", "Coe"]
Kind = Literal["R", "W"]
SOURCE: dict[Edge, Kind] = {"Rfe": "W", "Fre": "R", "Coe": "W"}
TARGET: dict[Edge, Kind] = {"Rfe": "R", "Fre": "W", "Coe": "W"}
FOLDER = Path(__file__).parent
SYNC: dict[Kind, str] = {"R": "acquire", "W": "release"}
SHORT = {"relaxed": "rlx", "acquire": "acq", "release": "rel"}


@dataclass(frozen=True)
class Cycle:
    """Edges between consecutive blocks, and whether each block does two accesses or one.

    Block i is entered by edges[i - 1] and left by edges[i].
    """

    edges: tuple[Edge, ...]
    pairs: tuple[bool, ...]

    @property
    def is_legal(self) -> bool:
        """Whether single accesses fit both their edges and no location has three writes."""
        fits = all(
            pair or TARGET[self.edges[i - 1]] == SOURCE[self.edges[i]]
            for i, pair in enumerate(self.pairs)
        )
        return fits and sum(self.pairs) >= 2 and self.writes_per_location() <= 2

    @property
    def is_canonical(self) -> bool:
        """Whether no rotation of the cycle comes first in alphabetic order."""
        turns = [
            (self.edges[i:] + self.edges[:i], self.pairs[i:] + self.pairs[:i])
            for i in range(len(self.edges))
        ]
        return (self.edges, self.pairs) == max(turns)

    def accesses(self) -> list[list[tuple[Kind, int]]]:
        """Return for each block its accesses: kind and location number."""
        location, blocks = 0, list[list[tuple[Kind, int]]]()
        last = sum(self.pairs) - 1
        for i, pair in enumerate(self.pairs):
            entry = (TARGET[self.edges[i - 1]], last if location == 0 else location - 1)
            if pair:
                blocks.append([entry, (SOURCE[self.edges[i]], location)])
                location += 1
            else:
                blocks.append([entry])
        return blocks

    def writes_per_location(self) -> int:
        """Return the most writes that one location gets."""
        found: dict[int, int] = {}
        for block in self.accesses():
            for kind, location in block:
                found[location] = found.get(location, 0) + (kind == "W")
        return max(found.values())


def values(cycle: Cycle) -> tuple[list[list[int]], dict[int, int]]:
    """Return what each access writes or must read, and the final values to ask for.

    The accesses to one location form a path along the cycle; it begins where a pair's second
    access is.
    """
    blocks = cycle.accesses()
    found = [[0] * len(block) for block in blocks]
    writes: dict[int, int] = {}
    count = len(blocks)
    start = next(i for i, pair in enumerate(cycle.pairs) if pair)
    path = [(start, 1)]
    for step in range(1, count + 1):
        i = (start + step) % count
        path += [(i, 0), (i, 1)] if cycle.pairs[i] and step < count else [(i, 0)]
    for block, at in path:
        kind, location = blocks[block][at]
        if kind == "W":
            writes[location] = writes.get(location, 0) + 1
        found[block][at] = writes.get(location, 0)
    return found, {place: n for place, n in writes.items() if n > 1}


def names(cycle: Cycle, orders: list[list[str]], tokens: tuple[bool, ...]) -> str:
    """Return a test's name: accesses with orders, `-` for a token, `,` for none."""
    parts: list[str] = []
    for i, block in enumerate(cycle.accesses()):
        texts = [f"{kind}.{SHORT[o]}" for (kind, _), o in zip(block, orders[i], strict=True)]
        parts.append(("-" if tokens[i] else ",").join(texts) + f" {cycle.edges[i]}")
    return " ".join(parts)


def cycle_text(
    cycle: Cycle,
    orders: list[list[str]],
    tokens: tuple[bool, ...],
    scopes: list[str] | None = None,
    tile: bool = False,
    devices: bool = False,
) -> str:
    """Return the program of a cycle.

    scopes: one for each block, device if not given. tile: accesses are of two elements that overlap
    in one. devices: every block on its own device.
    """
    wanted, final = values(cycle)
    blocks = cycle.accesses()
    places = sorted({location for block in blocks for _, location in block})
    lines = [f"buffer {'xyz'[p]}{': i32[3]' if tile else ''} = 0" for p in places]
    asked: list[str] = []
    for i, block in enumerate(blocks):
        lines.append(f"block P{i}{f' device {i}' if devices else ''} {{")
        for j, (kind, location) in enumerate(block):
            first = (i + j) % 2
            span = f"[{first}:{first + 2}]" if tile else ""
            place = f"{'xyz'[location]}{span}"
            order = f"{orders[i][j]}.{scopes[i] if scopes else 'device'}"
            after = f"  after a{i}0" if j and tokens[i] else ""
            if kind == "W":
                lines.append(f"  a{i}{j}: store.{order} {place} = {wanted[i][j]}{after}")
            else:
                lines.append(f"  a{i}{j}: r{i}{j} = load.{order} {place}{after}")
                element = f"[{1 - first}]" if tile else ""
                asked.append(f"r{i}{j}{element} == {wanted[i][j]}")
        lines.append("}")
    shared = "[1]" if tile else ""
    asked += [f"final {'xyz'[p]}{shared} == {n}" for p, n in final.items()]
    lines.append(f"exists {' & '.join(asked)}")
    return "\n".join(lines)


def judged(name: str, family: str, body: str) -> str:
    """Return the test with the verdict that the explorer finds."""
    result = explore(parse_program(f'litmus "{name}"\n{body}\nexpect allow racy'))
    verdict = "allow" if result.allows() else "forbid"
    race = "racy" if result.is_racy else "race-free"
    return f'litmus "{name}" family {family}\n{body}\nexpect {verdict} {race}\n'


def cycles(count: int) -> list[Cycle]:
    """Return the cycles round `count` blocks, each once."""
    kinds: tuple[Edge, ...] = ("Rfe", "Fre", "Coe")
    found = [
        Cycle(edges, pairs)
        for edges in product(kinds, repeat=count)
        for pairs in product((True, False), repeat=count)
    ]
    return [c for c in found if c.is_legal and c.is_canonical]


def uniform(cycle: Cycle, sync: bool) -> list[list[str]]:
    """Return the orders in which every access is relaxed, or acquires or releases."""
    return [[SYNC[k] if sync else "relaxed" for k, _ in block] for block in cycle.accesses()]


def two_block_tests() -> Iterator[str]:
    """Every choice of orders with both tokens, every choice of tokens when all synchronise."""
    for cycle in cycles(2):
        flat: list[Kind] = [kind for block in cycle.accesses() for kind, _ in block]
        for choice in product((False, True), repeat=4):
            chosen = [SYNC[k] if c else "relaxed" for k, c in zip(flat, choice, strict=True)]
            orders = [chosen[:2], chosen[2:]]
            both = (True, True)
            yield judged(names(cycle, orders, both), "CYCLE", cycle_text(cycle, orders, both))
        orders = uniform(cycle, True)
        for tokens in ((True, False), (False, True), (False, False)):
            yield judged(names(cycle, orders, tokens), "CYCLE", cycle_text(cycle, orders, tokens))
        name = names(cycle, orders, (True, True))
        for scopes in (["block", "device"], ["device", "block"], ["sys", "device"]):
            text = cycle_text(cycle, orders, (True, True), scopes)
            yield judged(f"{name} {'/'.join(scopes)}", "CYCLE", text)
        for sync in (True, False):
            orders = uniform(cycle, sync)
            text = cycle_text(cycle, orders, (True, True), tile=True)
            yield judged(f"{names(cycle, orders, (True, True))} tile", "CYCLE", text)
        for scope in ("device", "sys"):
            orders = uniform(cycle, True)
            text = cycle_text(cycle, orders, (True, True), [scope, scope], devices=True)
            yield judged(f"{name} {scope} two devices", "CYCLE", text)


def three_block_tests() -> Iterator[str]:
    """All accesses relaxed or all synchronising, all tokens or one missing."""
    for cycle in cycles(3):
        for sync in (False, True):
            orders = uniform(cycle, sync)
            every = (True, True, True)
            yield judged(names(cycle, orders, every), "CYCLE", cycle_text(cycle, orders, every))
        missing = tuple(i != cycle.pairs.index(True) for i in range(3))
        yield judged(names(cycle, orders, missing), "CYCLE", cycle_text(cycle, orders, missing))


PLACES = {"same block": (0, 0), "same device": (0, 0), "other device": (0, 1)}


def is_mutual(first: str, second: str, place: str) -> bool:
    """Whether two scopes include each other's block."""
    if place == "same block":
        return True
    return "block" not in (first, second) and (place == "same device" or first == second == "sys")


def scope_tests() -> Iterator[str]:
    """Every pair of scopes at every distance: two relaxed accesses, and message passing."""
    scopes = ("block", "device", "sys")
    for first, second, place in product(scopes, scopes, PLACES):
        device = PLACES[place][1]
        middle = "" if place == "same block" else f"}}\nblock Q device {device} {{\n"
        race = "race-free" if is_mutual(first, second, place) else "racy"
        yield (
            f'litmus "WSCOPE {first}/{second} {place}" family WSCOPE\nbuffer x = 0\nblock P {{\n'
            f"  store.relaxed.{first} x = 1\n{middle}  r = load.relaxed.{second} x\n}}\n"
            f"exists r == 1\nexpect allow {race}\n"
        )
    for first, second, place in product(scopes, scopes, ("same device", "other device")):
        verdict = "forbid race-free" if is_mutual(first, second, place) else "allow racy"
        yield (
            f'litmus "WSCOPE MP {first}/{second} {place}" family WSCOPE\n'
            f"buffer x = 0\nbuffer f = 0\nblock P {{\n  a: store x = 1\n"
            f"  b: store.release.{first} f = 1  after a\n}}\n"
            f"block C device {PLACES[place][1]} {{\n  c: r = load.acquire.{second} f\n"
            f"  if r == 1 {{ d: s = load x  after c }}\n}}\n"
            f"exists r == 1 & s == 0\nexpect {verdict}\n"
        )


def files() -> dict[str, str]:
    """Return what every generated file holds."""
    head = "-- Written by generate.py; do not edit.\n\n"
    parts = {
        "generated_cycles2": two_block_tests(),
        "generated_cycles3": three_block_tests(),
        "generated_scopes": scope_tests(),
    }
    return {f"{name}.litmus": head + "\n".join(tests) for name, tests in parts.items()}


def main(arguments: list[str]) -> int:
    """Write or check the files."""
    stale = [
        name
        for name, text in files().items()
        if not (FOLDER / name).exists() or (FOLDER / name).read_text(encoding="utf-8") != text
    ]
    if "--check" in arguments:
        print("\n".join(f"{name} is not what generate.py writes" for name in stale))
        return 1 if stale else 0
    for name, text in files().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
