"""Insert tokens: the order that a kernel's author means by writing one operation below another.

For each *class* of memory (arguments that may share memory are one class) two chains are kept: the
last operations, and the last stores. A load waits for the last stores of its classes; a store or a
read-modify-write waits for all last operations of its classes. So loads stay unordered among
themselves, and accesses to memory that cannot overlap stay unordered. Beyond that

- what an acquire returns is waited for by every later operation;
- a release waits for every earlier operation;
- prints are ordered among themselves.

Loops and branches carry what they change. An operation that has a token already, because its author
passed one, waits for that alone; later operations still wait for it.

Needs: a tile kernel that verifies. Leaves: the same kernel with token operands.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from reftile.ir.build import Builder
from reftile.ir.core import Block, Kernel, Op, Region, Value
from reftile.ir.ops import OPS
from reftile.ir.types import TOKEN, PointerType, TileType
from reftile.lang.simplify import drop_unused, exits, yields

Key: TypeAlias = tuple[str, Hashable]
State: TypeAlias = dict[Key, tuple[Value, ...]]
"""For each chain, the tokens that together stand for its end."""

UNKNOWN = "unknown"
ACQUIRED: Key = ("acquired", "")
PRINTED: Key = ("printed", "")


def insert_tokens(kernel: Kernel) -> None:
    """Insert tokens into `kernel`, in place."""
    inserter = _Inserter(kernel)
    inserter.block(kernel.body.block, {}, [])
    drop_unused(kernel)
    _prune_joins(kernel)
    drop_unused(kernel)


# Which memory an operation touches


class Aliases:
    """The classes of memory that pointers and views may point into."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.known: dict[Value, frozenset[Hashable]] = {}
        self.classes: dict[Value, Hashable] = {}
        for argument, attributes in zip(kernel.arguments, kernel.argument_attributes, strict=True):
            if attributes.get("noalias"):
                self.classes[argument] = ("argument", argument.index)
            elif "alias" in attributes:
                self.classes[argument] = ("group", str(attributes["alias"]))
            else:
                self.classes[argument] = ("group", "")

    def all(self) -> frozenset[Hashable]:
        """Every class there is."""
        allocated = {f"alloca {id(op)}" for op in self.kernel.walk() if op.name == "alloca"}
        return frozenset([*self.classes.values(), *allocated, UNKNOWN])

    def of(self, value: Value) -> frozenset[Hashable]:
        """The classes that a pointer or view may point into; everything, where it is not known."""
        if value not in self.known:
            found = self._search(value)
            self.known[value] = self.all() if UNKNOWN in found else found
        return self.known[value]

    def _search(self, value: Value) -> frozenset[Hashable]:
        seen: set[Value] = set()
        work, found = [value], set[Hashable]()
        while work:
            current = work.pop()
            if current in seen:
                continue
            seen.add(current)
            if current in self.classes:
                found.add(self.classes[current])
                continue
            sources = self._sources(current)
            if isinstance(sources, tuple):
                work.extend(sources)
            else:
                found.add(sources)
        return frozenset(found)

    def _sources(self, value: Value) -> tuple[Value, ...] | str:
        """The values that a pointer comes from, or its class: `UNKNOWN`, or an allocation's."""
        owner = value.owner
        if isinstance(owner, Block):
            loop = owner.parent.parent if owner.parent is not None else None
            if isinstance(loop, Op) and loop.name in ("for", "loop"):
                return _carried(loop, value.index - (loop.name == "for"))
            return UNKNOWN
        if not isinstance(owner, Op):
            return UNKNOWN
        match owner.name:
            case "alloca":
                return f"alloca {id(owner)}"
            case "for":
                return _carried(owner, value.index)
            case "loop":
                return tuple(
                    e.operands[value.index] for e in exits(owner.regions[0].block, "break")
                )
            case "if":
                return tuple(y.operands[value.index] for y in yields(owner))
            case "select":
                return owner.operands[1:]
            case "cat" | "insert":
                return owner.operands[:2]
            case name if name in _KEEPS_BASE:
                return owner.operands[:1]
            case _:
                return UNKNOWN


_KEEPS_BASE = frozenset(
    "make_tensor_view make_partition_view make_strided_view make_gather_scatter_view offset "
    "reshape broadcast permute extract assume ptr_to_ptr gather".split()
)


def _carried(loop: Op, index: int) -> tuple[Value, ...]:
    initial = loop.arguments[-1]
    assert isinstance(initial, tuple)
    again = exits(loop.regions[0].block, "continue")
    return (initial[index], *(e.operands[index] for e in again))


# What an operation does


@dataclass(frozen=True, slots=True)
class Access:
    """A memory operation as the chains see it."""

    classes: frozenset[Hashable]
    reads_only: bool
    acquires: bool
    releases: bool
    prints: bool = False


_BASE_PORT = {"store_view_tko": 1}


def access_of(op: Op, aliases: Aliases) -> Access | None:
    """What `op` does to memory, or None."""
    effects = op.definition.effects
    if effects == "print":
        return Access(frozenset(), False, False, False, True)
    if op.name.startswith("gdc_") or op.name == "memory_fence_alias_tko":
        return Access(aliases.all(), False, True, True)
    if effects not in ("read", "write", "atomic") or not op.name.endswith("_tko"):
        return None
    base = op.operands[_BASE_PORT.get(op.name, 0)]
    ordering = str(op.attributes.get("ordering", "weak"))
    return Access(
        aliases.of(base),
        effects == "read",
        ordering in ("acquire", "acq_rel"),
        ordering in ("release", "acq_rel"),
    )


def changed_keys(ops: Iterable[Op], aliases: Aliases) -> list[Key]:
    """The chains whose ends the operations move, in a fixed order."""
    keys: dict[Key, None] = {}
    for op in ops:
        access = access_of(op, aliases)
        if access is None:
            continue
        if access.prints:
            keys[PRINTED] = None
        for name in sorted(access.classes, key=str):
            keys["operation", name] = None
            if not access.reads_only:
                keys["store", name] = None
        if access.acquires:
            keys[ACQUIRED] = None
    return list(keys)


# The pass


@dataclass(slots=True)
class _Loop:
    """A loop around the block at hand: the chains that it carries."""

    keys: list[Key] = field(default_factory=list[Key])


class _Inserter:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.aliases = Aliases(kernel)
        self.first: Value | None = None

    def root(self) -> Value:
        """The token that waits for nothing, made at the top of the kernel."""
        if self.first is None:
            block = self.kernel.body.block
            op = Builder(Block(), self.kernel.span).create(OPS["make_token"])
            op.parent = block
            block.ops.insert(0, op)
            self.first = op.results[0]
        return self.first

    def join(self, tokens: tuple[Value, ...], into: list[Op], span_of: Op) -> Value | None:
        """One token for several; None if there are none."""
        unique = tuple(dict.fromkeys(tokens))
        if len(unique) < 2:
            return unique[0] if unique else None
        op = Builder(Block(), span_of.span).create(OPS["join_tokens"], unique)
        into.append(op)
        return op.results[0]

    def block(self, block: Block, state: State, loops: list[_Loop]) -> None:
        """Insert tokens into a block; `state` becomes what holds at its end."""
        ops: list[Op] = []
        for op in list(block.ops):
            access = access_of(op, self.aliases)
            if access is not None:
                self.access(op, access, state, ops)
            elif op.name == "if":
                self.branch(op, state, loops, ops)
            elif op.name in ("for", "loop"):
                self.loop(op, state, loops, ops)
            elif op.name in ("continue", "break"):
                self.append(op, loops[-1].keys, state, ops)
            ops.append(op)
        if block is self.kernel.body.block and self.first is not None:
            owner = self.first.owner
            assert isinstance(owner, Op)
            ops = [owner, *(o for o in ops if o is not owner)]
        for op in ops:
            op.parent = block
        block.ops = ops

    def access(self, op: Op, access: Access, state: State, ops: list[Op]) -> None:
        port = [p.name for p in op.definition.operands].index("token")
        explicit = op.arguments[port] is not None
        behind: tuple[Value, ...] = ()
        if not explicit:
            behind = _awaited(access, state)
            token = self.join(behind, ops, op)
            op.arguments = (*op.arguments[:port], token, *op.arguments[port + 1 :])
        result = op.results[-1]

        def end(key: Key, replaces: bool) -> None:
            # What the operation has waited for need not be waited for again.
            kept = [v for v in state.get(key, ()) if v not in behind]
            state[key] = (result,) if replaces and not explicit else (*kept, result)

        if access.prints:
            end(PRINTED, True)
        for name in sorted(access.classes, key=str):
            end(("operation", name), not access.reads_only)
            if not access.reads_only:
                end(("store", name), True)
        if access.acquires:
            end(ACQUIRED, True)

    def append(self, terminator: Op, keys: list[Key], state: State, ops: list[Op]) -> None:
        """Let a terminator hand on the ends of chains."""
        tokens = [self.join(state.get(k, ()), ops, terminator) or self.root() for k in keys]
        terminator.arguments = ((*terminator.operands, *tokens),)

    def branch(self, op: Op, state: State, loops: list[_Loop], ops: list[Op]) -> None:
        keys = changed_keys(op.walk(), self.aliases)
        goes_on = [r for r in op.regions if r.block.ops and r.block.ops[-1].name == "yield"]
        if len(op.regions) == 1 and goes_on and keys:
            other = Region()
            other.parent = op
            Builder(other.block, op.span).create(OPS["yield"], ())
            op.regions = (*op.regions, other)
            goes_on.append(other)
        for region in op.regions:
            inside = dict(state)
            self.block(region.block, inside, loops)
            if region in goes_on and keys:
                last = region.block.ops.pop()
                self.append(last, keys, inside, region.block.ops)
                region.block.ops.append(last)
                for inner in region.block.ops:
                    inner.parent = region.block
        if goes_on:
            self.results(op, keys, state)

    def loop(self, op: Op, state: State, loops: list[_Loop], ops: list[Op]) -> None:
        keys = changed_keys(op.walk(), self.aliases)
        block = op.regions[0].block
        initial = op.arguments[-1]
        assert isinstance(initial, tuple)
        tokens = [self.join(state.get(k, ()), ops, op) or self.root() for k in keys]
        op.arguments = (*op.arguments[:-1], (*initial, *tokens))
        inside = dict(state)
        for key in keys:
            argument = Value(TOKEN, "", block, len(block.arguments))
            block.arguments.append(argument)
            inside[key] = (argument,)
        leaves = op.name == "for" or bool(exits(block, "break"))
        self.block(block, inside, [*loops, _Loop(keys)])
        if leaves:
            self.results(op, keys, state)

    def results(self, op: Op, keys: list[Key], state: State) -> None:
        """Give an operation a token result for each chain, and go on from there."""
        new = [Value(TOKEN, "", op, len(op.results) + i) for i in range(len(keys))]
        op.results = (*op.results, *new)
        state.update({key: (value,) for key, value in zip(keys, new, strict=True)})


def _awaited(access: Access, state: State) -> tuple[Value, ...]:
    """The tokens that an operation waits for."""
    if access.prints:
        return state.get(PRINTED, ())
    chain = "store" if access.reads_only else "operation"
    tokens: list[Value] = []
    for name in sorted(access.classes, key=str):
        tokens.extend(state.get((chain, name), ()))
    if access.releases:
        for key, value in state.items():
            if key[0] == "operation":
                tokens.extend(value)
    tokens.extend(state.get(ACQUIRED, ()))
    return tuple(tokens)


DEEPEST_SEARCH = 8
"""Operations that the search for an older token looks back over."""


def _prune_joins(kernel: Kernel) -> None:
    """Drop from a join what another of its tokens has waited for."""
    mapping: dict[Value, Value] = {}
    for op in kernel.walk():
        op.replace_operands(mapping)
        if op.name != "join_tokens":
            continue
        tokens = tuple(dict.fromkeys(op.operands))
        older: set[Value] = set()
        for token in tokens:
            _collect_older(token, older, DEEPEST_SEARCH)
        kept = tuple(t for t in tokens if t not in older)
        op.arguments = (kept,)
        if len(kept) == 1:
            mapping[op.results[0]] = kept[0]
    for op in kernel.walk():
        op.replace_operands(mapping)


def _collect_older(token: Value, into: set[Value], depth: int) -> None:
    owner = token.owner
    if not depth or not isinstance(owner, Op) or owner.regions:
        return
    for operand in owner.operands:
        if operand.type == TOKEN and operand not in into:
            into.add(operand)
            _collect_older(operand, into, depth - 1)


def infer_access(kernel: Kernel) -> None:
    """Say of each pointer argument whether the kernel only reads, or only writes, through it.

    A mode is given only to arguments that share memory with no other.
    """
    aliases = Aliases(kernel)
    read: set[Hashable] = set()
    written: set[Hashable] = set()
    for op in kernel.walk():
        access = access_of(op, aliases)
        if access is None or access.prints or op.definition.effects == "barrier":
            continue
        if op.definition.effects != "write":
            read |= access.classes
        if op.definition.effects != "read":
            written |= access.classes
    for argument, attributes in zip(kernel.arguments, kernel.argument_attributes, strict=True):
        type = argument.type
        if not isinstance(type, TileType) or not isinstance(type.element, PointerType):
            continue
        name = aliases.classes[argument]
        if not attributes.get("noalias"):
            continue
        if name not in written:
            attributes["access"] = "read_only"
        elif name not in read:
            attributes["access"] = "write_only"
