"""Check a kernel against the records: structure, dominance, types, named rules.

Every finding has a span, a rule id, what was found and what is needed, and where the record gives
one, a hint.
"""

from __future__ import annotations

from functools import lru_cache

from reftile.ir.attributes import Attribute, Dense
from reftile.ir.core import Block, Kernel, Module, Op, Region, Value
from reftile.ir.define import AttributeSpec, Definition, Port, RegionSpec
from reftile.ir.diagnostics import Diagnosis, ReftileErrors
from reftile.ir.enums import ENUMS
from reftile.ir.expressions import evaluate
from reftile.ir.match import Mismatch, Names, attribute_names, bind_ports
from reftile.ir.pipe_rules import check_pipe
from reftile.ir.simt_rules import check_simt
from reftile.ir.targets import instructions_of
from reftile.ir.types import LARGEST_RANK, LARGEST_TILE, TileType, Type

MOST_FINDINGS = 20
"""Findings reported at most; the rest is usually their consequence."""


def verify(thing: Kernel | Module) -> None:
    """Check a kernel or all of a module.

    Raises:
        ReftileErrors: with up to MOST_FINDINGS findings.
    """
    findings = diagnose(thing)
    if findings:
        raise ReftileErrors(findings)


def verify_unless_known(kernel: Kernel) -> None:
    """Check a kernel, unless this has been done and nothing has changed since.

    Raises:
        ReftileErrors: as `verify`.
    """
    if not is_verified(kernel):
        kernel.plans.clear()
        verify(kernel)
        kernel.verified = _state(kernel)


def is_verified(kernel: Kernel) -> bool:
    """True if a kernel has passed `verify_unless_known` and nothing has changed since."""
    return kernel.verified is not None and kernel.verified == _state(kernel)


def mark_verified(kernel: Kernel) -> None:
    """Take a kernel for verified: its text is that of one that was."""
    kernel.plans.clear()
    kernel.verified = _state(kernel)


def _state(kernel: Kernel) -> object:
    """All that `verify` looks at, cheap to make and to compare."""
    ops: list[object] = []
    for op in kernel.walk():
        ops += (op, op.parent, op.arguments, *op.attributes.items(), *[r.type for r in op.results])
    arguments = [a.type for a in kernel.arguments]
    attributes = [dict(a) for a in kernel.argument_attributes]
    return ops, arguments, attributes, dict(kernel.attributes), kernel.level


def diagnose(thing: Kernel | Module) -> list[Diagnosis]:
    """Return the findings instead of raising them."""
    checker = _Checker()
    if isinstance(thing, Module):
        for op in thing.globals:
            checker.check_op(op, set())
        names: set[str] = set()
        for kernel in thing.kernels:
            if kernel.name in names:
                checker.report(
                    "kernel.duplicate_name", f"two kernels are called `{kernel.name}`", kernel
                )
            names.add(kernel.name)
            checker.check_kernel(kernel)
    else:
        checker.check_kernel(thing)
    return checker.findings


class _Checker:
    def __init__(self) -> None:
        self.findings: list[Diagnosis] = []
        self.level = "tile"
        self.target = ""

    def report(self, rule: str, message: str, at: Op | Kernel, hint: str = "") -> None:
        if len(self.findings) < MOST_FINDINGS:
            self.findings.append(Diagnosis(rule, message, at.span, hint))

    def check_kernel(self, kernel: Kernel) -> None:
        self.level = kernel.level
        self.target = str(kernel.attributes.get("target", ""))
        scope = set(kernel.arguments)
        self.check_block(kernel.body.block, scope, kernel)
        last = kernel.body.block.ops[-1] if kernel.body.block.ops else None
        if last is None or last.name not in ("return", "exit"):
            self.report(
                "kernel.no_return",
                f"kernel `{kernel.name}` does not end in `return`",
                last or kernel,
            )
        if kernel.level == "pipe" and not self.findings:
            self.findings.extend(check_pipe(kernel)[:MOST_FINDINGS])
        if kernel.level == "simt" and not self.findings:
            self.findings.extend(check_simt(kernel)[:MOST_FINDINGS])

    def check_block(self, block: Block, visible: set[Value], owner: Op | Kernel) -> None:
        """Check a block in which the values of `visible` may be used; it is left as it was."""
        added = [v for v in block.arguments if v not in visible]
        visible.update(added)
        for i, op in enumerate(block.ops):
            if op.definition.is_terminator and i + 1 < len(block.ops):
                self.report(
                    "block.after_terminator",
                    f"`{op.name}` ends the block, but operations follow",
                    op,
                )
            self.check_op(op, visible)
            for value in op.results:
                if value not in visible:
                    added.append(value)
                    visible.add(value)
        visible.difference_update(added)
        ended = bool(block.ops) and block.ops[-1].definition.is_terminator
        if not ended and isinstance(owner, Op):
            self.report(
                "block.no_terminator",
                f"a region of `{owner.name}` does not end in a terminator",
                owner,
            )

    def check_op(self, op: Op, visible: set[Value]) -> None:
        definition = op.definition
        if not visible.issuperset(op.operands):
            self.report_undefined(op, visible)
        if self.level not in definition.levels and definition.levels:
            self.report(
                f"{op.name}.level",
                f"`{op.name}` belongs to {' and '.join(definition.levels)}, "
                f"found in a {self.level} kernel",
                op,
            )
        names = _names_if_right(op)
        for result in () if names is not None else op.results:
            if _is_too_large(result.type):
                assert isinstance(result.type, TileType)
                self.report(
                    "tile.size",
                    f"a tile has at most {LARGEST_TILE} elements along {LARGEST_RANK} axes, "
                    f"and `{op.name}` makes {result.type.size} along {result.type.rank}",
                    op,
                )
        if definition.targets and self.target:
            self.check_target(op)
        if names is None:
            names = self.check_form(op)
        if op.regions or op.definition.regions:
            self.check_regions(op, visible, names)

    def check_form(self, op: Op) -> Names | None:
        """Check an operation against its record; return what its names stand for if it fits."""
        try:
            names = bind_operation(op)
        except Mismatch as error:
            self.report(f"{op.name}.{error.rule}", f"{error.message} (`{op.name}`)", op, error.hint)
            return None
        self.check_rules(op, names)
        return names

    def report_undefined(self, op: Op, visible: set[Value]) -> None:
        for operand in op.operands:
            if operand not in visible:
                self.report(
                    "value.undefined",
                    f"%{operand.name or '?'} is used by `{op.name}` where it is not defined",
                    op,
                    "define it before, in this block or one around it",
                )

    def check_target(self, op: Op) -> None:
        targets = op.definition.targets
        if instructions_of(self.target) not in targets:
            self.report(
                f"{op.name}.target",
                f"`{op.name}` exists on {', '.join(targets)}, and the kernel is for {self.target}",
                op,
            )

    def check_rules(self, op: Op, names: Names) -> None:
        for rule in op.definition.rules:
            if not evaluate(rule.check, names):
                self.report(
                    f"{op.name}.{rule.name}",
                    str(evaluate(rule.say, names)),
                    op,
                    str(evaluate(rule.hint, names)),
                )

    def check_regions(self, op: Op, visible: set[Value], names: Names | None) -> None:
        specs = op.definition.regions
        needed = sum(not s.optional for s in specs)
        if not needed <= len(op.regions) <= len(specs):
            self.report(
                f"{op.name}.regions",
                f"`{op.name}` needs {needed} regions, found {len(op.regions)}",
                op,
            )
            return
        outer = set[Value]() if "isolated" in op.definition.traits else visible
        for spec, region in zip(specs, op.regions, strict=False):
            if names is not None:
                self.check_region_arguments(op, spec, region, names)
            self.check_block(region.block, outer, op)
            self.check_ending(op, spec, region, names)
            if op.definition.effects == "pure":
                self.check_purity(op, region)

    def check_purity(self, op: Op, region: Region) -> None:
        """The regions of a pure operation hold only pure operations and control flow."""
        for inner in region.block.walk():
            if inner.definition.effects not in ("pure", "control"):
                self.report(
                    f"{op.name}.impure",
                    f"`{inner.name}` stands inside `{op.name}`, which takes pure operations only",
                    inner,
                )

    def check_region_arguments(
        self, op: Op, spec: RegionSpec, region: Region, names: Names
    ) -> None:
        grouped = _group(spec.arguments, tuple(a.type for a in region.block.arguments))
        if grouped is None:
            found = len(region.block.arguments)
            self.report(
                f"{op.name}.{spec.name}.arguments",
                f"`{spec.name}` of `{op.name}` has {found} arguments",
                op,
            )
            return
        try:
            bind_ports(spec.arguments, grouped, dict(names), op.definition)
        except Mismatch as error:
            self.report(f"{op.name}.{spec.name}.{error.rule}", f"{error.message} (`{op.name}`)", op)

    def check_ending(self, op: Op, spec: RegionSpec, region: Region, names: Names | None) -> None:
        """The terminator must be allowed by the region, or by one it is transparent to."""
        if not region.block.ops:
            return
        last = region.block.ops[-1]
        if not last.definition.is_terminator:
            return
        target: Op | Kernel | None = op
        current, allowed, inside = spec, list(spec.endings), names
        while not any(e.op == last.name for e in allowed):
            if "transparent" not in target.definition.traits:  # type: ignore[union-attr]
                choices = " or ".join(f"`{e.op}`" for e in current.endings)
                self.report(
                    f"{op.name}.{spec.name}.ending",
                    f"`{spec.name}` of `{op.name}` must end in {choices}, found `{last.name}`",
                    last,
                )
                return
            parent = _parent(target)  # type: ignore[arg-type]
            if not isinstance(parent, Op):
                if last.name != "return":
                    self.report(
                        f"{last.name}.outside",
                        f"`{last.name}` stands in no region that it could end",
                        last,
                    )
                return
            outer_region = _region_of(target)  # type: ignore[arg-type]
            current = parent.definition.regions[parent.regions.index(outer_region)]
            allowed, target = list(current.endings), parent
            inside = _names_if_right(parent)
            if inside is None:
                try:
                    inside = bind_operation(parent)
                except Mismatch:
                    return
        if inside is None:
            return
        ending = next(e for e in allowed if e.op == last.name)
        if ending.types is None:
            return
        wanted = evaluate(ending.types, inside)
        wanted = tuple(wanted) if isinstance(wanted, (tuple, list)) else (wanted,)  # type: ignore[arg-type]
        found = tuple(v.type for v in last.operands)
        if wanted != found:
            self.report(
                f"{last.name}.types",
                f"`{last.name}` must give ({', '.join(map(str, wanted))}) to `{target.name}`, "  # type: ignore[union-attr]
                f"found ({', '.join(map(str, found))})",
                last,
            )


def _region_of(op: Op) -> Region:
    assert op.parent is not None and op.parent.parent is not None
    return op.parent.parent


def _parent(op: Op) -> Op | Kernel | None:
    if op.parent is None or op.parent.parent is None:
        return None
    return op.parent.parent.parent


def bind_operation(op: Op) -> Names:
    """Match all operands, attributes and results of `op`; return what the record's names stand for.

    Raises:
        Mismatch: something does not fit the record.
    """
    definition = op.definition
    names: Names = {}
    if len(op.arguments) != len(definition.operands):
        raise Mismatch(
            "operands",
            f"`{op.name}` has {len(definition.operands)} operand ports, found {len(op.arguments)}",
        )
    for port, argument in zip(definition.operands, op.arguments, strict=True):
        if (port.multiplicity == "many") != isinstance(argument, tuple) or (
            port.multiplicity == "one" and argument is None
        ):
            raise Mismatch(
                f"{port.name}.count", f"`{port.name}` takes {port.multiplicity} value(s)"
            )
    bind_ports(definition.operands, op.arguments, names, definition)
    _check_attributes(op, definition)
    attribute_names(definition, op.attributes, names)  # type: ignore[arg-type]
    grouped = _group(definition.results, tuple(r.type for r in op.results))
    if grouped is None:
        raise Mismatch(
            "results", f"`{op.name}` has {len(definition.results)} results, found {len(op.results)}"
        )
    bind_ports(definition.results, grouped, names, definition)
    for i, spec in enumerate(definition.regions):
        names[spec.name] = i < len(op.regions)
    return names


def _names_if_right(op: Op) -> Names | None:
    """What the names of an operation's record stand for, if it surely fits and breaks no rule.

    Its class, its types, its attributes and the number of its regions alone decide that, and
    kernels are made of few such forms; so answers are kept. None too where nothing is kept, because
    an attribute is large or a dictionary. The names are shared: they must not be changed.
    """
    classes = tuple([_class_of(v) for v in op.attributes.values()])
    if None in classes:
        return None
    operands = tuple(
        [
            tuple([v.type for v in a]) if isinstance(a, tuple) else None if a is None else a.type
            for a in op.arguments
        ]
    )
    results = tuple([r.type for r in op.results])
    attributes = tuple(op.attributes.items())
    return _names_of_form(type(op), operands, results, attributes, classes, len(op.regions))


def _class_of(value: object) -> object | None:
    """The class of an attribute, since 1, 1.0 and true are equal; None if it is not to be kept."""
    if isinstance(value, tuple):
        classes = tuple([_class_of(v) for v in value])  # type: ignore[misc]
        return None if None in classes else classes
    is_large = isinstance(value, Dense) and not value.splat
    return None if is_large or isinstance(value, dict) else type(value)


@lru_cache(maxsize=4096)
def _names_of_form(
    cls: type[Op],
    operands: tuple[Type | tuple[Type, ...] | None, ...],
    results: tuple[Type, ...],
    attributes: tuple[tuple[str, Attribute], ...],
    classes: object,
    region_count: int,
) -> Names | None:
    """The names of an operation of this form; None if something is wrong with it."""
    arguments = tuple(
        tuple(map(Value, t)) if isinstance(t, tuple) else None if t is None else Value(t)
        for t in operands
    )
    regions = tuple(Region() for _ in range(region_count))
    op = cls(arguments, results, dict(attributes), regions)
    if any(map(_is_too_large, results)):
        return None
    try:
        names = bind_operation(op)
    except Mismatch:
        return None
    return names if all(evaluate(rule.check, names) for rule in op.definition.rules) else None


def _is_too_large(type: Type) -> bool:
    is_tile = isinstance(type, TileType)
    return is_tile and (type.size > LARGEST_TILE or type.rank > LARGEST_RANK)


def _group(ports: tuple[Port, ...], types: tuple[Type, ...]) -> tuple[object, ...] | None:
    """One entry per port out of a flat list of types, or None if the count does not fit."""
    multiplicities = [p.multiplicity for p in ports]
    fixed = multiplicities.count("one")
    extra = len(types) - fixed
    if extra < 0:
        return None
    grouped: list[object] = []
    position = 0
    for kind in multiplicities:
        if kind == "one":
            grouped.append(types[position])
            position += 1
        elif kind == "many":
            grouped.append(types[position : position + extra])
            position += extra
            extra = 0
        elif extra:
            grouped.append(types[position])
            position, extra = position + 1, extra - 1
        else:
            grouped.append(None)
    return tuple(grouped) if position == len(types) else None


def _check_attributes(op: Op, definition: Definition) -> None:
    specs = definition.attribute_specs
    for name, value in op.attributes.items():
        if name not in specs:
            known = ", ".join(specs) or "none"
            raise Mismatch(
                f"{name}.unknown", f"`{op.name}` has no attribute `{name}` (it has: {known})"
            )
        _check_attribute(op, specs[name], value)
    for spec in definition.attributes:
        if not spec.optional and spec.name not in op.attributes:
            raise Mismatch(f"{spec.name}.missing", f"`{op.name}` needs the attribute `{spec.name}`")


def _check_attribute(op: Op, spec: AttributeSpec, value: object) -> None:
    kind = spec.kind
    if kind.endswith("[]"):
        ok = isinstance(value, tuple) and all(_fits(kind[:-2], v) for v in value)  # type: ignore[misc]
    else:
        ok = _fits(kind, value)
    if not ok:
        raise Mismatch(
            f"{spec.name}.kind", f"`{spec.name}` takes {_describe(kind)}, found {value!s}"
        )
    if kind == "dense" and isinstance(value, Dense) and op.results:
        type = op.results[0].type
        if isinstance(type, TileType) and (
            value.dtype is not type.element or value.shape != type.shape
        ):
            raise Mismatch(f"{spec.name}.type", f"`{spec.name}` is not a constant of {type}")
    allowed = op.definition.allowed.get(spec.name)
    if allowed is not None and value not in allowed:
        choices = " | ".join(op.definition.where[spec.name])
        raise Mismatch(
            f"{spec.name}.value", f"`{spec.name}` of `{op.name}` may be {choices}, found {value}"
        )


def _describe(kind: str) -> str:
    return " | ".join(ENUMS[kind]) if kind in ENUMS else f"a value of kind {kind}"


def _fits(kind: str, value: object) -> bool:
    if kind in ENUMS:
        return isinstance(value, str) and value in ENUMS[kind]
    checks: dict[str, tuple[type, ...]] = {
        "unit": (bool,),
        "bool": (bool,),
        "int": (int,),
        "float": (float, int),
        "string": (str,),
        "symbol": (str,),
        "layout": (str,),
        "dtype": (str,),
        "dense": (Dense,),
        "type": (Type,),
        "dict": (dict,),
        "numbers": (tuple,),
    }
    return isinstance(value, checks[kind]) and not (kind == "int" and isinstance(value, bool))
