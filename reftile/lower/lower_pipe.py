"""Turn a `pipe` kernel into a `simt` kernel.

Needs: parts with constant indices (unroll_loops), layouts of tiles (assign_layouts), barriers
inside roles (derive_barriers). Leaves: a `simt` kernel of the same meaning without tokens, places
or roles. Its parameters are those of the pipe kernel that threads read, and the descriptions of
tensors that bulk copies use, with what the host must encode in their attributes.

Each chapter of spec/pipe*.md has a module with one function for each operation: roles and barriers
in `lower_roles` and `lower_barriers`, copies in `lower_copies`, registers and shared memory in
`lower_transfers`, global memory in `lower_views` and `lower_atomics`, products in `lower_products`;
`change_layouts` does what `assign_layouts` put between two layouts of a value. This module does
what is the same at both levels.

Before:

    pipe kernel @put(%o: tile<ptr<i32>>) attributes {target = "sm_80", warps = 1} {
      %zero = constant {value = 0} : tile<i32>
      %one = constant {value = 1} : tile<i32>
      %b = alloc_buffer : buffer<i32>
      %written = store_buffer %one, %b : token
      %met = sync token=%written : token
      %y, %read = load_buffer %b, token=%met : tile<i32>, token
      %limit = addi %y, %y : tile<i32>
      elected body {
        %old, %s = atomic_inc_wrap_tko %o, %limit {ordering = relaxed, scope = device} :
          tile<i32>, token
        yield
      }
      return }

After:

    simt kernel @put(%o: tile<ptr<i32>>) attributes {
      target = "sm_80", warps = 1, shared_bytes = 8, arguments = ["o: tile<ptr<i32>>"]} {
      %warp = warp_id : tile<i32>
      %thread = thread_id : tile<i32>
      %c0 = constant {value = 0} : tile<i32>
      %lead = cmpi %thread, %c0 {predicate = equal, signedness = signed} : tile<i1>
      %zero = constant {value = 0} : tile<i32>
      %one = constant {value = 1} : tile<i32>
      %address = shared_address {offset = 0} : tile<i32>
      if %lead then {
        store_shared %one, %address
        yield
      }
      %c0_0 = constant {value = 0} : tile<i32>
      sync_threads %c0_0 {threads = 32}
      %y = load_shared %address : tile<i32>
      %limit = addi %y, %y : tile<i32>
      if %lead then {
        %old, %s = atomic_inc_wrap_tko %o, %limit {ordering = relaxed, scope = device} :
          tile<i32>, token
        yield
      }
      return }
"""

from __future__ import annotations

from collections.abc import Callable

from reftile.ir import ops
from reftile.ir.attributes import Attribute
from reftile.ir.core import Block, Kernel, Op, Region, Value
from reftile.ir.types import TensorMapType, TokenType
from reftile.lower.change_layouts import CHANGES, plan_scratch
from reftile.lower.context import Context
from reftile.lower.host import name_arguments
from reftile.lower.lower_atomics import ATOMICS
from reftile.lower.lower_barriers import BARRIERS
from reftile.lower.lower_copies import COPIES
from reftile.lower.lower_products import PRODUCTS
from reftile.lower.lower_roles import enter_kernel, lower_elected, lower_roles
from reftile.lower.lower_transfers import TRANSFERS
from reftile.lower.lower_views import VIEWS
from reftile.lower.place_buffers import PLACES, place_buffers

Handler = Callable[[Context, Op], None]


def lower_pipe(kernel: Kernel, target: str) -> Kernel:
    """Return the `simt` kernel."""
    name_arguments(kernel)
    arguments = kernel.body.block.arguments
    block = Block(tuple(a.type for a in arguments), tuple(a.name for a in arguments))
    context = Context(kernel, block)
    context.values.update(zip(arguments, block.arguments, strict=True))
    offsets = place_buffers(kernel)
    context.offsets, context.named = offsets.bytes, offsets.named
    context.scratch = plan_scratch(kernel, offsets)
    enter_kernel(context, offsets)
    roles = [op for op in kernel.body.block.ops if isinstance(op, ops.Role)]
    for op in kernel.body.block.ops:
        if isinstance(op, ops.Role):
            if op is roles[0]:
                lower_roles(context, roles, offsets, lower_ops)
        else:
            lower_op(context, op)
    return _finish(context, offsets.total_bytes)


def lower_ops(context: Context, block: Block) -> None:
    """Lower the operations of one block."""
    for op in block.ops:
        lower_op(context, op)


def lower_op(context: Context, op: Op) -> None:
    """Lower one operation, appending to the context's block."""
    context.span = op.span
    handler = _HANDLERS.get(op.name)
    if handler is not None:
        handler(context, op)
    elif isinstance(op, ops.Elected):
        lower_elected(context, op, lower_ops)
    elif isinstance(op, (ops.For, ops.Loop, ops.If, ops.IfRows, ops.Reduce)):
        _lower_control(context, op)
    elif "simt" in op.definition.levels:
        _copy(context, op)
    else:
        why = REASONS.get(op.name, "")
        message = f"`{op.name}` is not lowered: {why}" if why else f"`{op.name}` is not lowered yet"
        raise context.unsupported(message)


_BY_POINTER = "accesses by pointer have no form for threads yet; make a view of the memory"
_IN_ORDER = "elements would move among all threads; keep it in a `tile` kernel"
REASONS: dict[str, str] = {
    "alloca": "threads have no global memory of their own; pass a pointer",
    "load_ptr_tko": _BY_POINTER,
    "store_ptr_tko": _BY_POINTER,
    "memory_fence_alias_tko": "views of one memory under two addresses are not followed here",
    "gdc_wait_tko": "launches that depend on each other are not started by the host's plan yet",
    "gdc_launch_dependents_tko": "launches that depend on each other are not started by the "
    "host's plan yet",
    "sort": _IN_ORDER,
    "topk": _IN_ORDER,
    "argmax": _IN_ORDER,
    "argmin": _IN_ORDER,
    "histogram": _IN_ORDER,
    "scan": _IN_ORDER,
    "gather": _IN_ORDER,
    "cat": "registers of two tiles do not become one yet; store both parts apart",
    "insert": "registers of two tiles do not become one yet; store both parts apart",
    "mmaf_scaled": "no instruction of these targets takes scales",
    "mmaf_sparse": "products of sparse tiles have no rows yet",
    "pack": "elements of less than a byte have no registers of their own",
    "unpack": "elements of less than a byte have no registers of their own",
}
"""Why operations of `pipe` are refused."""


def _values(context: Context, values: tuple[Value, ...]) -> tuple[Value, ...]:
    return tuple(context.scalar(v) for v in values if not isinstance(v.type, TokenType))


def _mapped(context: Context, op: Op) -> list[Value | tuple[Value, ...] | None]:
    arguments: list[Value | tuple[Value, ...] | None] = []
    for argument in op.arguments:
        if isinstance(argument, tuple):
            arguments.append(_values(context, argument))
        elif argument is None or isinstance(argument.type, TokenType):
            arguments.append(None)
        else:
            arguments.append(context.scalar(argument))
    return arguments


def _copy(context: Context, op: Op) -> None:
    """The same operation on what stands for its operands."""
    copy = type(op)(
        tuple(_mapped(context, op)),
        tuple([r.type for r in op.results]),
        dict(op.attributes),
        (),
        op.span,
        tuple([r.name for r in op.results]),
    )
    context.block.append(copy)
    context.values.update(zip(op.results, copy.results, strict=True))


def _lower_control(context: Context, op: Op) -> None:
    regions: list[Region] = []
    for region in op.regions:
        old = region.block
        kept = [a for a in old.arguments if not isinstance(a.type, TokenType)]
        block = Block(tuple(a.type for a in kept), tuple(a.name for a in kept))
        context.values.update(zip(kept, block.arguments, strict=True))
        regions.append(Region(block))
    arguments = tuple(_mapped(context, op))
    results = [r for r in op.results if not isinstance(r.type, TokenType)]
    new = type(op)(
        arguments,
        tuple(r.type for r in results),
        dict(op.attributes),
        tuple(regions),
        op.span,
        tuple(r.name for r in results),
    )
    context.block.append(new)
    for old, region in zip(op.regions, regions, strict=True):
        context.inside(region.block, lambda old=old: lower_ops(context, old.block))
    context.values.update(zip(results, new.results, strict=True))


def _iota(context: Context, op: Op) -> None:
    """Counters know their warp by the low bits of its number in the block."""
    role = context.role
    if role.warps & (role.warps - 1) or role.begin % role.warps:
        raise context.unsupported(
            f"`iota` in a role of {role.warps} warps that begins at warp {role.begin}"
        )
    _copy(context, op)


def _assume(context: Context, op: Op) -> None:
    """What is promised of a value changes nothing."""
    value, result = op.operands[0], op.results[0]
    if value in context.values:
        context.values[result] = context.values[value]


def _nothing(context: Context, op: Op) -> None:
    """Tokens and views have no form at run time; views are read where a copy uses them."""


_HANDLERS: dict[str, Handler] = {
    **BARRIERS,
    **COPIES,
    **PRODUCTS,
    **TRANSFERS,
    **VIEWS,
    **ATOMICS,
    **CHANGES,
    **PLACES,
    "iota": _iota,
    "assume": _assume,
    **dict.fromkeys(
        ("make_token", "join_tokens", "make_tensor_view", "make_partition_view"), _nothing
    ),
}


def _prefetch_maps(context: Context) -> None:
    """Let the thread that makes the barriers fetch the descriptions first."""
    first = next((op for op in context.entry.ops if isinstance(op, ops.If)), None)
    if first is None or not context.maps:
        return
    fetches = Block()

    def fetch() -> None:
        for described in context.maps.values():
            context.emit(ops.PrefetchTensorMap, (described,))

    context.inside(fetches, fetch)
    block = first.then.block
    block.ops[:0] = fetches.ops
    for op in fetches.ops:
        op.parent = block


def _finish(context: Context, shared_bytes: int) -> Kernel:
    """Drop parameters that no thread reads, add the descriptions, make the kernel."""
    source, block = context.source, context.entry
    _prefetch_maps(context)
    used = set[Value]().union(*(op.operands for op in block.walk()))
    arguments: list[Value] = []
    attributes: list[dict[str, Attribute]] = []
    for value, described in zip(context.maps.values(), context.map_attributes, strict=True):
        assert isinstance(value.type, TensorMapType)
        arguments.append(value)
        attributes.append(described)
    for value, given in zip(block.arguments, source.argument_attributes, strict=True):
        if value in used:
            arguments.append(value)
            attributes.append(given)
    for index, value in enumerate(arguments):
        value.index, value.owner = index, block
    block.arguments = arguments
    names = ("target", "warps", "cluster", "progress")
    kept = {k: v for k, v in source.attributes.items() if k in names}
    kept["shared_bytes"] = shared_bytes
    kept["arguments"] = tuple(f"{a.name}: {a.type}" for a in source.arguments)
    if context.requirements:
        kept["requirements"] = tuple(f"{c}: {why}" for c, why in context.requirements)
    return Kernel(
        source.name,
        Region(block),
        "simt",
        tuple(attributes),
        kept,
        source.span,
        source.comments,
    )
