"""Which ids of the specification have a test, and which tests name an id that does not exist.

Ids: `op.rule` for each rule and each way to be undefined of a record; `op.meaning` for what it
computes or does; `accuracy.class` for sums; `memory.clause` for the axioms of the memory model; and
the rules that the text form, the verifier and a checked run name themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from importlib.resources import files
from typing import Any

from reftile.conformance.suites.common import Settings
from reftile.conformance.suites.litmus import ids as litmus_ids
from reftile.conformance.suites.registry import SUITES, make_cases

from reftile.ir.ops import OPS

STRUCTURE = tuple(
    "text.syntax text.redefined text.too_deep text.unknown_op text.results text.operands "
    "text.undefined "
    "text.attribute text.number text.type kernel.duplicate_name kernel.no_return "
    "block.after_terminator block.no_terminator".split()
)
"""Rules of the text form and of the verifier that belong to no operation."""

RUNTIME = tuple(
    "memory.out_of_bounds memory.null memory.misaligned memory.freed view.index "
    "poison.branch poison.bound poison.address poison.mask poison.output poison.compare "
    "assume.div_by assume.same_elements assume.at_least assume.at_most assert.failed "
    "race.within_operation race.within_block race.between_blocks "
    "access.read_only access.write_only access.noalias "
    "load_view_tko.inbounds store_view_tko.inbounds atomic_red_view_tko.inbounds "
    "for.step make_tensor_view.positive get_tensor_shape.overflow get_index_space_shape.overflow "
    "get_global.unknown print_tko.format "
    "progress.needs_co_residency progress.deadlock".split()
)
"""Rules of a checked run."""

PIPE = tuple(
    f"pipe.{name}"
    for name in (
        "accumulator_reused alloc_place arrivals bulk_elected captured_tile cluster cluster_entry "
        "cluster_exit elected if_rows mma_unfinished named_barriers operand_in_flight participants "
        "pending_affine registers role_warps shared_memory single_role slot stagger structure "
        "target tensor_map transaction_bytes warpgroup warps "
    ).split()
)
"""Rules about a pipe kernel as a whole."""

EXCUSED = {
    "histogram.bins": "a result of no elements has no type, so the text form cannot say it",
    "multimem_load_reduce_view_tko.meaning": "needs several devices",
    "multimem_reduce_view_tko.meaning": "needs several devices",
    "multimem_store_view_tko.meaning": "needs several devices",
}
"""Ids without a test, with the reason."""


def record_ids() -> Iterator[str]:
    """The ids of all records. Meanings are those of the level `tile`."""
    for op, cls in OPS.items():
        record = cls.definition
        for rule in (*record.rules, *record.undefined):
            yield f"{op}.{rule.name}"
        if "tile" in record.levels:
            yield f"{op}.meaning"


def memory_ids() -> list[str]:
    """The axioms of the memory model, from its chapter."""
    text = (files("reftile.spec") / "memory_model.md").read_text(encoding="utf-8")
    block = re.search(r"^```axioms tile\n(.*?)^```", text, re.M | re.S)
    if block is None:
        return []
    return [f"memory.{name}" for name in re.findall(r"^(\w+)\s*:", block[1], re.M)]


def known_ids() -> list[str]:
    """Every id that needs a test."""
    ids = [
        *record_ids(),
        *STRUCTURE,
        *PIPE,
        *RUNTIME,
        "accuracy.reduce",
        "accuracy.dot",
        *memory_ids(),
    ]
    return list(dict.fromkeys(ids))


def is_known(id: str, known: Iterable[str]) -> bool:
    """Whether an id exists:

    one of `known`, or one that names a port, attribute or region of a record.
    """
    if id in known:
        return True
    op, _, rest = id.partition(".")
    cls = OPS.get(op)
    if cls is None:
        return False
    record = cls.definition
    name = rest.split(".")[0]
    if name in ("level", "target", "impure", "regions", "operands", "results", "outside", "types"):
        return True
    if name == "poison":
        return rest.partition(".")[2] in {p.name for p in record.operands}
    ports = (*record.operands, *record.results)
    regions = [r.name for r in record.regions]
    names = {p.name for p in ports} | {a.name for a in record.attributes} | set(regions)
    return name in names


def trace() -> dict[str, Any]:
    """Ids without a test, and tests that cover what does not exist, as plain data."""
    known = known_ids()
    listed = set(known)
    covered: dict[str, int] = {}
    unknown: list[dict[str, str]] = []
    for case, covers in _covers():
        for id in covers:
            covered[id] = covered.get(id, 0) + 1
            if not is_known(id, listed):
                unknown.append({"test": case, "id": id})
    untested = [id for id in known if id not in covered and id not in EXCUSED]
    stale = [id for id in EXCUSED if id in covered or id not in listed]
    return {
        "kind": "reftile-conformance-trace",
        "ids": len(known),
        "tested": sum(id in covered for id in known),
        "untested": untested,
        "unknown": unknown,
        "excused": dict(EXCUSED),
        "stale_excuses": stale,
        "ok": not (untested or unknown or stale),
    }


def _covers() -> Iterator[tuple[str, tuple[str, ...]]]:
    settings = Settings("default")
    for suite in SUITES:
        for case in make_cases(suite, settings):
            yield case.id, case.covers
    yield from litmus_ids()
