# pyright: basic, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportOptionalMemberAccess=false
# pyright: reportPrivateImportUsage=false, reportArgumentType=false
# numba has no types for its target and its functions.
"""From the source of a kernel to object code, with numba's target.

Generated source uses a small part of Python: assignments, calls of the functions of this folder,
`for` over a range, `while True`, `if`, sums, products and comparisons of positions. numba's own
front end takes it as well (tests compile it both ways), but spends most of its time on what the
source does not have: closures, exceptions, overloads to choose from. So the statements are
lowered here, and numba provides the target, the functions that are called, and LLVM's passes.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target
from numba.extending import _Intrinsic

from reftile.lower.cpu.functions import machine
from reftile.lower.cpu.functions.kept import Shelf, kept_on

_I64, _I1 = ir.IntType(64), ir.IntType(1)
_COMPARE = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}

Typed = tuple[Any, Any]
"""A numba type and an LLVM value; of a Python number that has no type yet, None and the number."""


@global_compiler_lock
def compile_source(
    source: str, scope: dict[str, Any], symbol: str, shelf: Shelf | None = None
) -> bytes:
    """Object code of the function `run` of a source, under a symbol.

    scope: what the source may name. shelf: where the code of the functions that it calls is kept.
    """
    tree = ast.parse(source)
    *accessors, function = tree.body
    names = dict(scope)
    for statement in accessors:
        exec(compile(ast.Module([statement], []), "<cpu kernel>", "exec"), names)
    assert isinstance(function, ast.FunctionDef)
    context, typing = cpu_target.target_context, cpu_target.typing_context
    typing.refresh()
    context.refresh()
    module = context.create_module(symbol)
    lowering = _Lowering(module, names, symbol)
    with kept_on(shelf):
        lowering.function(function)
    return _object_code(str(module), lowering.libraries, symbol)


def _object_code(text: str, libraries: list[Any], symbol: str) -> bytes:
    """Optimise a module, together with the functions that it calls, and emit it."""
    codegen = cpu_target.target_context.codegen()
    whole = llvm.parse_assembly(text)
    for library in libraries:
        whole.link_in(library._get_module_for_linking(), preserve=True)
    for function in whole.functions:
        if not function.is_declaration and function.name != symbol:
            function.linkage = "internal"
    machine_of_numba = codegen._tm
    tuning = llvm.create_pipeline_tuning_options(speed_level=3)
    tuning.loop_vectorization = tuning.loop_unrolling = True
    # Off, as numba has it: with it LLVM 22 miscompiles (the sign of an f16 made f4e2m1 was lost).
    tuning.slp_vectorization = False
    builder = llvm.create_pass_builder(machine_of_numba, tuning)
    builder.getModulePassManager().run(whole, builder)
    return machine_of_numba.emit_object(whole)


class _LoopName(ir.MDValue):
    """Metadata that names a loop and says things of it: distinct, and its own first operand."""

    def descr(self, buf: list[str]) -> None:
        """Write the operands."""
        operands = ", ".join(x.get_reference() for x in (self, *self.operands))
        buf += (f"distinct !{{ {operands} }}\n",)


def _not_unrolled(module: Any) -> _LoopName:
    """What says of a loop that it is not unrolled, which happens before vectors are made."""
    said = module.add_metadata(["llvm.loop.unroll.disable"])
    return _LoopName(module, [said], name=str(len(module.metadata)))


class _Lowering:
    """The lowering of one function.

    loops: where `continue` and `break` lead. libraries: of the functions that it calls.
    """

    def __init__(self, module: Any, names: dict[str, Any], symbol: str) -> None:
        self.module, self.names, self.symbol = module, names, symbol
        self.libraries: list[Any] = []
        self.context, self.typing = cpu_target.target_context, cpu_target.typing_context
        self.variables: dict[str, tuple[Any, Any]] = {}
        self.loops: list[tuple[Any, Any]] = []

    def function(self, tree: ast.FunctionDef) -> None:
        """Lower `run`, of a base and an address."""
        byte = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(_I64, [byte, _I64])
        made = ir.Function(self.module, kind, name=self.symbol)
        entry = made.append_basic_block("entry")
        self.builder = ir.IRBuilder(entry)
        for name, value, type in zip(
            (a.arg for a in tree.args.args), made.args, (machine.BASE, types.int64), strict=True
        ):
            self.set(name, (type, value))
        self.block(tree.body)

    # Statements

    def block(self, body: list[ast.stmt]) -> None:
        """Lower statements; what stands behind a jump is not reached."""
        for statement in body:
            if self.builder.block.is_terminated:
                return
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        """Lower one statement."""
        b = self.builder
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self.set(name, self.typed(value))
            case ast.Expr(value=value):
                self.expression(value)
            case ast.If(test=test, body=body, orelse=otherwise):
                self.branch(self.truth(test), body, otherwise)
            case ast.For(
                target=ast.Name(id=name),
                iter=ast.Call(func=ast.Name(id=turns), args=limits),
                body=body,
            ):
                back = self.count(name, [self.typed(v)[1] for v in limits], body)
                if turns == "lanes":
                    back.set_metadata("llvm.loop", _not_unrolled(self.module))
            case ast.While(body=body):
                self.repeat(body)
            case ast.Continue():
                b.branch(self.loops[-1][0])
            case ast.Break():
                b.branch(self.loops[-1][1])
            case ast.Return(value=value):
                assert value is not None
                b.ret(self.typed(value)[1])
            case ast.Pass():
                pass
            case _:
                raise NotImplementedError(ast.dump(node))

    def branch(self, condition: Any, body: list[ast.stmt], otherwise: list[ast.stmt]) -> None:
        """Lower `if`."""
        b = self.builder
        yes, end = b.append_basic_block("then"), b.append_basic_block("end")
        no = b.append_basic_block("else") if otherwise else end
        b.cbranch(condition, yes, no)
        for block, statements in ((yes, body), (no, otherwise)):
            if block is end:
                continue
            b.position_at_end(block)
            self.block(statements)
            if not b.block.is_terminated:
                b.branch(end)
        b.position_at_end(end)

    def count(self, name: str, limits: list[Any], body: list[ast.stmt]) -> Any:
        """Lower `for` over a range with a positive step; the branch back."""
        b = self.builder
        one = ir.Constant(_I64, 1)
        start = limits[0] if len(limits) > 1 else ir.Constant(_I64, 0)
        end = limits[1] if len(limits) > 1 else limits[0]
        step = limits[2] if len(limits) > 2 else one
        before = b.block
        # The header is entered only if there is a first turn: the form that LLVM turns loops to.
        head, more, done = (b.append_basic_block(n) for n in ("turn", "next", "done"))
        b.cbranch(b.icmp_signed("<", start, end), head, done)
        b.position_at_end(head)
        counter = b.phi(_I64)
        counter.add_incoming(start, before)
        self.set(name, (types.int64, counter))
        self.loops.append((more, done))
        self.block(body)
        self.loops.pop()
        if not b.block.is_terminated:
            b.branch(more)
        b.position_at_end(more)
        following = b.add(counter, step, flags=("nsw",))
        counter.add_incoming(following, more)
        back = b.cbranch(b.icmp_signed("<", following, end), head, done)
        b.position_at_end(done)
        return back

    def repeat(self, body: list[ast.stmt]) -> None:
        """Lower `while True`."""
        b = self.builder
        head, done = b.append_basic_block("again"), b.append_basic_block("done")
        b.branch(head)
        b.position_at_end(head)
        self.loops.append((head, done))
        self.block(body)
        self.loops.pop()
        if not b.block.is_terminated:
            b.branch(head)
        b.position_at_end(done)

    def set(self, name: str, typed: Typed) -> None:
        """Assign to a variable; its first value gives it its type."""
        type, value = typed
        found = self.variables.get(name)
        if found is None:
            found = self.variables[name] = (type, cgutils.alloca_once(self.builder, value.type))
        assert found[0] == type, f"{name} is {found[0]} and becomes {type}"
        self.builder.store(value, found[1])

    # Expressions

    def typed(self, node: ast.expr) -> Typed:
        """An expression; a number without a type is a position, or f64."""
        type, value = self.expression(node)
        if type is not None:
            return type, value
        if isinstance(value, bool):
            return types.boolean, ir.Constant(_I1, int(value))
        if isinstance(value, int):
            return types.int64, ir.Constant(_I64, value)
        return types.float64, ir.Constant(ir.DoubleType(), value)

    def truth(self, node: ast.expr) -> Any:
        """A condition."""
        return self.typed(node)[1]

    def expression(self, node: ast.expr) -> Typed:
        """Lower an expression."""
        b = self.builder
        match node:
            case ast.Constant(value=value):
                return None, value
            case ast.Name(id=name):
                return self.name(name)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                type, value = self.expression(operand)
                assert type is None
                return None, -value
            case ast.BinOp(left=left, op=op, right=right):
                return self.arithmetic(op, self.expression(left), self.expression(right))
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                one, other = self.typed(left)[1], self.typed(right)[1]
                return types.boolean, b.icmp_signed(_COMPARE[type_of(op)], one, other)
            case ast.BoolOp(op=op, values=values):
                join = b.and_ if isinstance(op, ast.And) else b.or_
                found = self.truth(values[0])
                for value in values[1:]:
                    found = join(found, self.truth(value))
                return types.boolean, found
            case ast.Subscript(value=value, slice=ast.Constant(value=place)):
                type, found = self.typed(value)
                return type[place], b.extract_value(found, place)
            case ast.Call(func=ast.Name(id=name), args=args):
                return self.call(name, args)
            case _:
                raise NotImplementedError(ast.dump(node))

    def name(self, name: str) -> Typed:
        """A variable, or a number of the scope."""
        found = self.variables.get(name)
        if found is not None:
            return found[0], self.builder.load(found[1])
        return None, self.names[name]

    def arithmetic(self, op: ast.operator, one: Typed, other: Typed) -> Typed:
        """Sums and products of positions, and of numbers without a type."""
        if one[0] is None and other[0] is None:
            a, c = one[1], other[1]
            return None, {ast.Add: a + c, ast.Sub: a - c, ast.Mult: a * c}[type(op)]
        b = self.builder
        left, right = (ir.Constant(_I64, v) if t is None else v for t, v in (one, other))
        # Positions do not wrap: they are offsets inside memory that exists.
        do: dict[Any, Callable[..., Any]] = {ast.Add: b.add, ast.Sub: b.sub, ast.Mult: b.mul}
        return types.int64, do[type(op)](left, right, flags=("nsw",))

    def call(self, name: str, args: list[ast.expr]) -> Typed:
        """A number with its type, or a call of a function."""
        kind = machine.KINDS.get(name)
        if kind is not None:
            value = self.expression(args[0])[1]
            return kind, ir.Constant(machine.LLVM[name], value)
        typed = [self.typed(a) for a in args]
        kinds, values = tuple(t for t, _ in typed), [v for _, v in typed]
        if name == "min":
            return types.int64, self.builder.select(self.builder.icmp_signed("<", *values), *values)
        function = self.names[name]
        if isinstance(function, _Intrinsic):
            signature, generate = function._defn(self.typing, *kinds)
            result = generate(self.context, self.builder, signature, values)
            return signature.return_type, result
        function.compile(kinds)
        made = function.overloads[kinds]
        if made.library not in self.libraries:
            self.libraries.append(made.library)
        _, result = self.context.call_internal_no_propagate(
            self.builder, made.fndesc, made.signature, values
        )
        return made.signature.return_type, result


def type_of(node: ast.cmpop) -> type[ast.cmpop]:
    """The class of an operator."""
    return type(node)
