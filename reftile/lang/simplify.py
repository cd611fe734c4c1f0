"""Clean a traced kernel: equal pure operations once, views out of loops, nothing that is unused."""

from __future__ import annotations

from reftile.ir.attributes import Attribute, Dense
from reftile.ir.core import Block, Kernel, Op, Value

_HOISTED = frozenset(
    "constant make_tensor_view make_partition_view make_strided_view make_gather_scatter_view "
    "get_tile_block_id get_num_tile_blocks assume reshape broadcast iota".split()
)
"""Operations that cost nothing to do too early and cannot be undefined."""


def simplify(kernel: Kernel) -> None:
    """Simplify in place; the kernel means the same."""
    block = kernel.body.block
    _hoist(block)
    _share(block, {}, {})
    drop_unused(kernel)


# Out of loops


def _hoist(block: Block) -> None:
    """Move what a loop computes anew each time, and could compute once, in front of the loop."""
    ops: list[Op] = []
    for op in block.ops:
        for region in op.regions:
            _hoist(region.block)
        if op.name in ("for", "loop", "if"):
            for region in op.regions:
                ops.extend(_take_invariant(region.block))
        ops.append(op)
    for op in ops:
        op.parent = block
    block.ops = ops


def _may_hoist(op: Op) -> bool:
    """True for what can be done although the loop may not run, or the branch not be taken."""
    if op.name != "make_tensor_view":
        return op.name in _HOISTED
    # A view of an array without elements does not exist.
    return all(_is_positive(v) for v in op.operands[1:])


def _is_positive(value: Value) -> bool:
    """True for kernel arguments that are promised to be positive."""
    owner = value.owner
    if isinstance(owner, Op):
        return owner.name == "assume" and _is_positive(owner.operands[0])
    kernel = owner.parent.parent if owner is not None and owner.parent is not None else None
    if not isinstance(kernel, Kernel):
        return False
    return bool(kernel.argument_attributes[value.index].get("positive"))


def _take_invariant(block: Block) -> list[Op]:
    inside: set[Value] = set(block.arguments)
    kept: list[Op] = []
    taken: list[Op] = []
    for op in block.ops:
        if _may_hoist(op) and not any(v in inside for v in op.operands):
            taken.append(op)
            continue
        kept.append(op)
        for inner in op.walk():
            inside.update(inner.results)
            for region in inner.regions:
                inside.update(region.block.arguments)
    block.ops = kept
    return taken


# Equal operations


def _key(op: Op) -> object | None:
    if op.regions or op.definition.effects != "pure" or op.definition.is_terminator:
        return None
    if op.name in ("alloca", "make_token"):
        return None
    attributes = tuple(sorted((k, _attribute(v)) for k, v in op.attributes.items()))
    types = tuple(r.type for r in op.results)
    operands = tuple(tuple(a) if isinstance(a, tuple) else a for a in op.arguments)
    return (op.name, operands, attributes, types)


def _attribute(value: Attribute) -> object:
    if isinstance(value, Dense):
        return (value.dtype.name, value.shape, value.data)
    if isinstance(value, dict):
        return tuple(sorted((k, _attribute(v)) for k, v in value.items()))
    return (type(value).__name__, repr(value))


def _share(block: Block, known: dict[object, Op], mapping: dict[Value, Value]) -> None:
    """Use the first of several equal pure operations; those of inner blocks see the outer ones."""
    known = dict(known)
    kept: list[Op] = []
    for op in block.ops:
        if mapping:
            op.replace_operands(mapping)
        key = _key(op)
        if key is not None and key in known:
            earlier = known[key]
            mapping.update(zip(op.results, earlier.results, strict=True))
            continue
        if key is not None:
            known[key] = op
        kept.append(op)
        for region in op.regions:
            _share(region.block, known, mapping)
    block.ops = kept


# What is used


def drop_unused(kernel: Kernel) -> None:
    """Remove what no effect depends on: pure operations, carried values, results of branches."""
    while _drop_unchanged(kernel) or _merge_equal(kernel):
        pass
    live = _Liveness(kernel).live
    _sweep(kernel.body.block, live)


class _Liveness:
    """The values that something with an effect depends on."""

    def __init__(self, kernel: Kernel) -> None:
        self.live: set[Value] = set()
        self.work: list[Value] = []
        for op in kernel.walk():
            if op.name in ("for", "if"):
                self.mark(*(op.arguments[:3] if op.name == "for" else op.arguments))  # type: ignore[arg-type]
            elif op.name == "yield" and not _is_branch(op):
                self.mark(*op.operands)
            elif (
                op.name == "loop" or op.definition.effects == "pure" or op.definition.is_terminator
            ):
                continue
            else:
                self.mark(*op.operands)
        while self.work:
            self.follow(self.work.pop())

    def mark(self, *values: Value) -> None:
        for value in values:
            if value not in self.live:
                self.live.add(value)
                self.work.append(value)

    def follow(self, value: Value) -> None:
        owner = value.owner
        if isinstance(owner, Block):
            region = owner.parent
            loop = region.parent if region is not None else None
            if isinstance(loop, Op) and loop.name in ("for", "loop"):
                index = value.index - (loop.name == "for")
                if index >= 0:
                    self.slot(loop, index)
        elif isinstance(owner, Op) and owner.name == "for":
            self.slot(owner, value.index)
        elif isinstance(owner, Op) and owner.name == "loop":
            self.mark(*(e.operands[value.index] for e in exits(owner.regions[0].block, "break")))
        elif isinstance(owner, Op) and owner.name == "if":
            self.mark(*(y.operands[value.index] for y in yields(owner)))
        elif isinstance(owner, Op):
            self.mark(*owner.operands)
            for inner in owner.walk():
                self.mark(*inner.operands)

    def slot(self, loop: Op, index: int) -> None:
        """A value that a loop carries: what it begins with and what goes on."""
        block = loop.regions[0].block
        initial = loop.arguments[-1]
        assert isinstance(initial, tuple)
        self.mark(initial[index], block.arguments[index + (loop.name == "for")])
        self.mark(*(e.operands[index] for e in exits(block, "continue")))


def _is_branch(terminator: Op) -> bool:
    """True if an operation ends a region of an `if`."""
    block = terminator.parent
    owner = block.parent.parent if block is not None and block.parent is not None else None
    return isinstance(owner, Op) and owner.name == "if"


def exits(block: Block, name: str) -> list[Op]:
    """The terminators called `name` that belong to the loop whose body `block` is."""
    found: list[Op] = []
    for op in block.ops:
        if op.name == name:
            found.append(op)
        elif op.name == "if":
            for region in op.regions:
                found.extend(exits(region.block, name))
    return found


def yields(op: Op) -> list[Op]:
    """The `yield`s of an `if`; a region that leaves a loop has none."""
    return [r.block.ops[-1] for r in op.regions if r.block.ops and r.block.ops[-1].name == "yield"]


def _sweep(block: Block, live: set[Value]) -> None:
    kept: list[Op] = []
    for op in block.ops:
        if op.name in ("for", "loop", "if"):
            for region in op.regions:
                _sweep(region.block, live)
            _sweep_carried(op, live)
            if op.name == "if" and not op.results and _is_idle(op):
                continue
        elif op.definition.is_pure and not any(r in live for r in op.results):
            continue
        else:
            for region in op.regions:
                _sweep(region.block, live)
        kept.append(op)
    block.ops = kept


def _is_idle(op: Op) -> bool:
    return all(len(r.block.ops) == 1 and r.block.ops[0].name == "yield" for r in op.regions)


def _sweep_carried(op: Op, live: set[Value]) -> None:
    if op.name == "if":
        _keep_results(op, [r in live for r in op.results], yields(op))
        if len(op.regions) == 2 and not op.results:
            last = op.regions[1].block.ops
            if len(last) == 1 and last[0].name == "yield":
                op.regions = op.regions[:1]
        return
    block = op.regions[0].block
    head = int(op.name == "for")
    carried = block.arguments[head:]
    keep = [a in live or (head == 1 and op.results[i] in live) for i, a in enumerate(carried)]
    again = exits(block, "continue")
    if op.name == "for":
        _keep_results(op, keep, again)
    else:
        _keep_results(op, [r in live for r in op.results], exits(block, "break"))
        for terminator in again:
            terminator.arguments = (_kept(terminator.operands, keep),)
    initial = op.arguments[-1]
    assert isinstance(initial, tuple)
    op.arguments = (*op.arguments[:-1], _kept(initial, keep))
    block.arguments = [*block.arguments[:head], *_kept(tuple(carried), keep)]
    for position, argument in enumerate(block.arguments):
        argument.index = position


def _kept(values: tuple[Value, ...], keep: list[bool]) -> tuple[Value, ...]:
    return tuple(v for v, k in zip(values, keep, strict=True) if k)


def _keep_results(op: Op, keep: list[bool], terminators: list[Op]) -> None:
    op.results = _kept(op.results, keep)
    for position, result in enumerate(op.results):
        result.index = position
    for terminator in terminators:
        terminator.arguments = (_kept(terminator.operands, keep),)


def _drop_unchanged(kernel: Kernel) -> bool:
    """Use the initial value where a loop carries one that never changes."""
    for op in kernel.walk():
        if op.name not in ("for", "loop"):
            continue
        block, head = op.regions[0].block, int(op.name == "for")
        initial = op.arguments[-1]
        assert isinstance(initial, tuple)
        again = exits(block, "continue")
        mapping: dict[Value, Value] = {}
        for i, first in enumerate(initial):
            argument = block.arguments[head + i]
            if first is not argument and all(e.operands[i] in (argument, first) for e in again):
                mapping[argument] = first
                if head:
                    mapping[op.results[i]] = first
        # Replacing the value in the loop's own terminators leaves a slot that nothing lives in.
        if any(v in o.operands for v in mapping for o in kernel.walk()):
            for inner in kernel.walk():
                inner.replace_operands(mapping)
            return True
    return False


def _merge_equal(kernel: Kernel) -> bool:
    """Use one of two values that a loop carries, or an `if` gives, when they are always equal."""
    for op in kernel.walk():
        if op.name not in ("for", "loop", "if"):
            continue
        mapping = _equal_results(op) if op.name == "if" else _equal_carried(op)
        if any(v in o.operands for v in mapping for o in kernel.walk()):
            for inner in kernel.walk():
                inner.replace_operands(mapping)
            return True
    return False


def _equal_results(op: Op) -> dict[Value, Value]:
    given = [y.operands for y in yields(op)]
    first: dict[tuple[Value, ...], Value] = {}
    mapping: dict[Value, Value] = {}
    for i, result in enumerate(op.results):
        kept = first.setdefault(tuple(values[i] for values in given), result)
        if kept is not result:
            mapping[result] = kept
    return mapping


def _equal_carried(op: Op) -> dict[Value, Value]:
    block, head = op.regions[0].block, int(op.name == "for")
    initial = op.arguments[-1]
    assert isinstance(initial, tuple)
    again = [e.operands for e in exits(block, "continue")]
    arguments = block.arguments[head:]
    mapping: dict[Value, Value] = {}
    for j, second in enumerate(arguments):
        for i, first in enumerate(arguments[:j]):
            own = (first, second)
            if initial[i] is initial[j] and all(
                values[i] is values[j] or (values[i], values[j]) == own for values in again
            ):
                mapping[second] = first
                if head:
                    mapping[op.results[j]] = op.results[i]
                break
    return mapping
