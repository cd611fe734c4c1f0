"""Changes to a kernel: some that must not change what it does, and some that make it race."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from reftile.conformance.fuzz.choices import seeded
from reftile.conformance.fuzz.copying import copy_kernel
from reftile.conformance.fuzz.program import Program
from reftile.conformance.fuzz.races import Findings, examine
from reftile.conformance.fuzz.tokens import place_tokens
from reftile.conformance.fuzz.trace import ACCESSES, Untraceable
from reftile.conformance.fuzz.values import SCALAR_I32

from reftile.ir import ops
from reftile.ir.attributes import Dense
from reftile.ir.core import Block, Kernel, Op, Region, Value
from reftile.ir.dtypes import DTYPES
from reftile.ir.types import TOKEN, PointerType, TileType, TokenType

I1 = DTYPES["i1"]
Change = tuple[str, Kernel]


def _is_token(value: Value | None) -> bool:
    return value is not None and isinstance(value.type, TokenType)


def _literal(type: TileType, *bits: int) -> Op:
    return ops.Constant((), (type,), {"value": Dense.of_bits(bits or (0,), type)})


# Racy twins


def racy_twins(
    program: Program, random: Random, most: int, tries: int
) -> list[tuple[str, Kernel, Findings]]:
    """Kernels that lack one thing that the program needs: what it is, the kernel, its races."""
    edits = list(_weakenings(program.kernel))
    random.shuffle(edits)
    found: list[tuple[str, Kernel, Findings]] = []
    for name, number, edit in edits[:tries]:
        twin = copy_kernel(program.kernel)
        edit(list(twin.walk())[number])
        try:
            findings = examine(twin, program.buffers, program.scalars, program.grid)
        except Untraceable:
            continue
        if findings.is_racy:
            found.append((name, twin, findings))
        if len(found) == most:
            break
    return found


Edit = Callable[[Op], None]


def _weakenings(kernel: Kernel) -> Iterator[tuple[str, int, Edit]]:
    """All single edits that take order away: a name, the operation's number, and the edit."""
    for number, op in enumerate(kernel.walk()):
        if op.name in ACCESSES and _is_token(op.operands[-1] if op.operands else None):
            yield "token of an access", number, _drop_token
        if op.name == "join_tokens" and len(op.operands) > 1:
            for i in range(len(op.operands)):
                yield "operand of a join", number, _dropping(i)
        if op.attributes.get("ordering") in ("release", "acquire", "acq_rel"):
            yield "order of an access", number, _relax
        if op.attributes.get("scope") in ("device", "sys"):
            yield "scope of an access", number, _narrow


def _drop_token(op: Op) -> None:
    op.arguments = (*op.arguments[:-1], None)


def _dropping(which: int) -> Edit:
    def drop(op: Op) -> None:
        rest = [v for i, v in enumerate(op.operands) if i != which]
        op.arguments = (tuple(rest),)

    return drop


def _relax(op: Op) -> None:
    op.attributes["ordering"] = "relaxed"


def _narrow(op: Op) -> None:
    op.attributes["scope"] = "tl_blk"


# Changes that must not show


def variants(program: Program, random: Random) -> Iterator[Change]:
    """Kernels that must give the same bits as the program's: a name and the kernel."""
    for policy in ("chain", "minimal"):
        if policy != program.policy:
            choices = seeded(random.randrange(1 << 30))
            yield f"tokens placed as {policy}", place_tokens(program, policy, choices)
    for name, change in (
        ("block ids permuted", _permute_blocks),
        ("dead branch", _add_dead_branch),
        ("joins commuted", _commute_joins),
        ("masks that are true", _add_masks),
        ("redundant tokens", _add_tokens),
    ):
        copy = copy_kernel(program.kernel)
        if change(copy, program, random):
            yield name, copy


def _replace_uses(kernel: Kernel, mapping: dict[Value, Value], but: list[Op]) -> None:
    for op in kernel.walk():
        if op not in but:
            op.replace_operands(mapping)


def _permute_blocks(kernel: Kernel, program: Program, random: Random) -> bool:
    """Count blocks backwards along one axis."""
    axis = random.randrange(3)
    size = program.grid[axis]
    body = kernel.body.block
    found = next(op for op in body.ops if op.name == "get_tile_block_id")
    last = _literal(SCALAR_I32, size - 1)
    turned = ops.Subi((last.results[0], found.results[axis]), (SCALAR_I32,))
    _insert_after(body, found, [last, turned])
    _replace_uses(kernel, {found.results[axis]: turned.results[0]}, [turned])
    return size > 1


def _insert_after(block: Block, anchor: Op, made: list[Op]) -> None:
    at = block.ops.index(anchor) + 1
    for op in made:
        op.parent = block
    block.ops[at:at] = made


def _add_dead_branch(kernel: Kernel, program: Program, random: Random) -> bool:
    """A branch that is never taken, with stores that would race."""
    body = kernel.body.block
    wide = [
        a
        for a, b in zip(kernel.arguments, program.buffers, strict=False)
        if b.dtype.elements_per_unit == 1
    ]
    if not wide:
        return False
    target = random.choice(wide)
    assert isinstance(target.type, TileType) and isinstance(target.type.element, PointerType)
    never = _literal(TileType((), I1), 0)
    value = _literal(TileType((), target.type.element.pointee), 1)
    store = ops.StorePtrTko((target, value.results[0], None, None), (TOKEN,), {"ordering": "weak"})
    inside = Block()
    for op in (value, store, ops.Yield(((),))):
        inside.append(op)
    branch = ops.If((never.results[0],), (), {}, (Region(inside),))
    # In front of everything, in the middle, or at the end.
    at = random.randrange(len(body.ops))
    body.ops[at:at] = [never, branch]
    never.parent = branch.parent = body
    return True


def _commute_joins(kernel: Kernel, program: Program, random: Random) -> bool:
    """Turn the operands of every join round, and name the first of them twice."""
    joins = [op for op in kernel.walk() if op.name == "join_tokens"]
    for op in joins:
        turned = op.operands[::-1]
        op.arguments = ((*turned, turned[0]),)
    return bool(joins)


def _add_masks(kernel: Kernel, program: Program, random: Random) -> bool:
    """Give accesses by pointers a mask that is true everywhere."""
    plain = [
        op
        for op in kernel.walk()
        if op.name in ("load_ptr_tko", "store_ptr_tko", "atomic_rmw_tko")
        and getattr(op, "mask") is None  # noqa: B009
    ]
    for op in plain:
        pointers = op.operands[0].type
        assert isinstance(pointers, TileType)
        mask = _literal(TileType(pointers.shape, I1), 1)
        assert op.parent is not None
        op.parent.insert_before(op, mask)
        at = 1 if op.name == "load_ptr_tko" else 2
        op.arguments = (*op.arguments[:at], mask.results[0], *op.arguments[at + 1 :])
    return bool(plain)


def _add_tokens(kernel: Kernel, program: Program, random: Random) -> bool:
    """Let accesses wait for others that came before them in the same region."""
    added = False
    for block in _blocks(kernel.body.block):
        earlier: list[Value] = []
        for op in list(block.ops):
            if op.name in ACCESSES:
                if earlier and random.random() < 0.5:
                    _wait_too(block, op, random.choice(earlier))
                    added = True
                earlier.append(op.results[-1])
    return added


def _blocks(block: Block) -> Iterator[Block]:
    yield block
    for op in block.ops:
        for region in op.regions:
            yield from _blocks(region.block)


def _wait_too(block: Block, op: Op, token: Value) -> None:
    taken = op.arguments[-1]
    if isinstance(taken, Value):
        join = ops.JoinTokens(((taken, token),), (TOKEN,))
        block.insert_before(op, join)
        token = join.results[0]
    op.arguments = (*op.arguments[:-1], token)
