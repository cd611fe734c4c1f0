"""Copies of kernels, to be changed."""

from __future__ import annotations

from reftile.ir.core import Block, Kernel, Op, Region, Value
from reftile.ir.types import Type

Arguments = tuple[Value | tuple[Value, ...] | None, ...]


class Copier:
    """Copies operations; `mapping` leads from values to their copies."""

    def __init__(self) -> None:
        self.mapping: dict[Value, Value] = {}

    def arguments(self, op: Op) -> Arguments:
        """The operands of the copy of an operation, by port."""
        return tuple(
            tuple(self.mapping[v] for v in a)
            if isinstance(a, tuple)
            else (None if a is None else self.mapping[a])
            for a in op.arguments
        )

    def empty(self, block: Block, more: tuple[Type, ...] = ()) -> Block:
        """A block with the arguments of another, and more."""
        types = tuple(a.type for a in block.arguments) + more
        copy = Block(types, tuple(a.name for a in block.arguments))
        self.mapping.update(zip(block.arguments, copy.arguments, strict=False))
        return copy

    def region(self, region: Region) -> Region:
        """A copy of a region."""
        block = self.empty(region.block)
        for op in region.block.ops:
            self.op(op, block)
        return Region(block)

    def op(self, op: Op, target: Block) -> Op:
        """A copy of an operation, with all inside it, at the end of `target`."""
        regions = tuple(self.region(r) for r in op.regions)
        copy = type(op)(
            self.arguments(op),
            tuple(r.type for r in op.results),
            dict(op.attributes),
            regions,
            names=tuple(r.name for r in op.results),
        )
        self.mapping.update(zip(op.results, copy.results, strict=True))
        target.append(copy)
        return copy


def kernel_with(body: Block, like: Kernel) -> Kernel:
    """A kernel with another body."""
    return Kernel(
        like.name, Region(body), like.level, like.argument_attributes, dict(like.attributes)
    )


def copy_kernel(kernel: Kernel) -> Kernel:
    """A copy of a kernel."""
    return kernel_with(Copier().region(kernel.body).block, kernel)
