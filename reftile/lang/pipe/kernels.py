"""`@pipe.kernel`: a Python function that becomes a kernel of the `pipe` level."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast, overload

from reftile.ir.attributes import Attribute
from reftile.ir.build import make_kernel
from reftile.ir.core import Kernel, Value
from reftile.ir.diagnostics import Diagnosis, ReftileError, fail
from reftile.ir.targets import TARGETS
from reftile.ir.verify import verify
from reftile.lang.annotations import Parameter
from reftile.lang.backends import Specialised, run
from reftile.lang.captures import Captures
from reftile.lang.kernels import Hints, KernelFunction
from reftile.lang.pipe.arrays import GlobalArray
from reftile.lang.pipe.block import BlockShape, shape_of
from reftile.lang.pipe.device import device_array, specialise_with_devices
from reftile.lang.pipe.host import evaluate_scalar
from reftile.lang.pipe.values import Pointer
from reftile.lang.program import trace_body
from reftile.lang.signature import (
    ArraySpec,
    ConstantSpec,
    GroupSpec,
    PointerSpec,
    ScalarSpec,
    Signature,
    Spec,
)
from reftile.lang.simplify import simplify
from reftile.lang.source import function_source
from reftile.lang.trace import Options, Trace
from reftile.lang.values import Array, Index, Tile


@dataclass(frozen=True, slots=True)
class Shape:
    """What a kernel is made for.

    target: a name of spec/pipe.md. warps: of a block; None if the kernel says it itself.
    """

    target: str = "sm_90a"
    warps: int | None = None
    cluster: tuple[int, ...] | None = None
    progress: str | None = None


@dataclass(slots=True)
class _Traced:
    """Kernels of the IR that have been traced: the grid that each says it needs, if it does."""

    grids: dict[Kernel, tuple[Value, ...]] = field(
        default_factory=dict[Kernel, "tuple[Value, ...]"]
    )


class PipeKernel(KernelFunction):
    """A kernel of the `pipe` level.

    `kernel[grid](*args)` launches it; `kernel(*args)` does if the kernel says its grid itself
    (`Kernel(...)`). `kernel.build()` gives the kernel of the IR where annotations say all types.
    """

    def __init__(self, function: Callable[..., object], shape: Shape) -> None:
        super().__init__(function, Hints())
        self.shape = shape
        self._traced = _Traced()

    def for_target(self, target: str) -> PipeKernel:
        """The same function for another target."""
        return pipe_kernel(self.function, replace(self.shape, target=target))

    def build(self, **constants: object) -> Kernel:
        """The kernel of the IR, by annotations alone; `Constant` parameters are given here.

        Raises:
            ReftileError: a parameter is an array, whose rank and strides a launch would say.
        """
        given = {**self.defaults, **constants}
        specs = tuple(self._spec(p, given) for p in self.parameters)
        return self.kernel_for(Signature(specs))

    def _spec(self, parameter: Parameter, constants: Mapping[str, object]) -> Spec:
        if parameter.pointer is not None:
            return PointerSpec(parameter.name, parameter.pointer.dtype)
        if parameter.scalar is not None:
            return ScalarSpec(parameter.name, parameter.scalar.dtype)
        if parameter.name in constants:
            return ConstantSpec(parameter.name, constants[parameter.name])
        raise ReftileError(
            Diagnosis(
                "lang.pipe.build",
                f"the type of `{parameter.name}` is not known without arguments",
                function_source(self.function).head(),
                "annotate it (Pointer[float16], i32), or use `specialise(*args)`",
            )
        )

    def specialise(self, *args: object, **keywords: object) -> Specialised:
        """Trace the kernel for arguments, or find it in the cache. Arrays may lie on a device.

        Raises:
            ReftileError: the kernel, or an argument, is wrong.
        """
        values = self.arguments(args, keywords)
        pairs = zip(self.parameters, values, strict=True)
        if not any(device_array(v, p.name) for p, v in pairs):
            return super().specialise(*values)
        found, flat = specialise_with_devices(self.parameters, values)
        return Specialised(self.kernel_for(found), flat)

    def kernel_for(self, signature: Signature) -> Kernel:
        """The kernel of the IR for a signature: from the cache while what it captured stays."""
        signature = Signature(tuple(map(_plain, signature.parameters)))
        candidates = self._cache.setdefault(signature.key, [])
        for captures, kernel in candidates:
            if captures.hold():
                return kernel
        kernel, captures = self._trace(signature)
        candidates.append((captures, kernel))
        return kernel

    def _trace(self, signature: Signature) -> tuple[Kernel, Captures]:
        function = self.function
        source = function_source(function)
        kernel = make_kernel(function.__name__, signature.ir_arguments(), "pipe", source.head())
        kernel.argument_attributes = _argument_attributes(signature)
        given: dict[str, object | None] = {
            "target": self.shape.target,
            "warps": self.shape.warps,
            "cluster": self.shape.cluster,
            "progress": self.shape.progress,
        }
        kernel.attributes.update(
            {k: cast("Attribute", v) for k, v in given.items() if v is not None}
        )
        found: list[BlockShape] = []

        def bind(t: Trace) -> dict[str, object]:
            found.append(shape_of(t))
            return bind_arguments(t, signature)

        captures = trace_body(function, kernel, Options(tokens="none"), bind)
        shape = found[0]
        shape.finish(kernel)
        if "warps" not in kernel.attributes:
            raise ReftileError(
                Diagnosis(
                    "lang.pipe.warps",
                    f"`{self.__name__}` does not say how many warps a block has",
                    source.head(),
                    "@pipe.kernel(warps=4), or `with Kernel(..., threads=128)`",
                )
            )
        simplify(kernel)
        verify(kernel)
        if shape.grid is not None:
            self._traced.grids[kernel] = shape.grid
        return kernel, captures

    # Launching

    def own_grid(self, found: Specialised) -> tuple[int, int, int] | None:
        """The grid that the kernel says it needs for these arguments."""
        grid = self._traced.grids.get(found.kernel)
        if grid is None:
            return None
        arguments = dict(zip(found.kernel.arguments, found.values, strict=True))
        x, y, z = (*(evaluate_scalar(v, arguments) for v in grid), 1, 1)[:3]
        return x, y, z

    def grid_of(self, found: Specialised) -> tuple[int, int, int]:
        """The grid that the kernel says it needs.

        Raises:
            ReftileError: it says none.
        """
        grid = self.own_grid(found)
        if grid is None:
            raise ReftileError(
                Diagnosis(
                    "lang.kernel.call",
                    f"the kernel `{self.__name__}` does not say its grid",
                    function_source(self.function).head(),
                    f"launch it with one: {self.__name__}[grid](...)",
                )
            )
        return grid

    def __call__(self, *args: object, **keywords: object) -> object:
        """Launch over the grid that the kernel says itself; options as for `kernel[grid]`."""
        names = {p.name for p in self.parameters}
        options: dict[str, Any] = {
            k: keywords.pop(k)
            for k in ("backend", "check", "schedule", "seed", "stream")
            if k in keywords and k not in names
        }
        found = self.specialise(*self.arguments(args, keywords))
        return run(found, self.grid_of(found), **options)


def _argument_attributes(signature: Signature) -> tuple[dict[str, Attribute], ...]:
    """Those of arrays; pointers have none."""
    found: list[dict[str, Attribute]] = []
    for leaf in signature.leaves():
        if isinstance(leaf, PointerSpec):
            found.append({})
        else:
            found.extend(Signature((leaf,)).argument_attributes())
    return tuple(found)


def _plain(spec: Spec) -> Spec:
    """Without what is assumed of tile kernels: one pipe kernel serves all sizes and alignments."""
    match spec:
        case ArraySpec():
            ones = (1,) * len(spec.shape)
            return replace(spec, pointer_divisible=1, shape_divisible=ones, stride_divisible=ones)
        case GroupSpec():
            return replace(spec, items=tuple(map(_plain, spec.items)))
        case _:
            return spec


def bind_arguments(t: Trace, signature: Signature) -> dict[str, object]:
    """The parameters as values of the language. Nothing is assumed: the host checks at launch."""
    arguments = iter(t.kernel.arguments)
    return {spec.name: _bind(spec, arguments) for spec in signature.parameters}


def _bind(spec: Spec, arguments: Iterator[Value]) -> object:
    match spec:
        case ConstantSpec():
            return spec.value
        case ScalarSpec():
            return Tile(next(arguments), spec.dtype)
        case PointerSpec():
            return Pointer(next(arguments), spec.dtype)
        case GroupSpec():
            items = [_bind(item, arguments) for item in spec.items]
            if hasattr(spec.kind, "_fields"):
                return spec.kind(*items)
            return items if issubclass(spec.kind, list) else tuple(items)
        case ArraySpec():
            pointer = next(arguments)

            def sizes(known: tuple[int | None, ...]) -> tuple[Index, ...]:
                return tuple(
                    size if size is not None else Tile(next(arguments), spec.index_dtype)
                    for size in known
                )

            shape = sizes(spec.shape)
            strides = sizes(spec.strides)
            array = Array(spec.name, spec.dtype, pointer, shape, strides, spec.index_dtype)
            return GlobalArray(array)


def pipe_kernel(function: Callable[..., object], shape: Shape) -> PipeKernel:
    """Make a kernel of a function."""
    if shape.target not in tuple(TARGETS):
        known = ", ".join(TARGETS)
        raise fail("lang.pipe.target", f"there is no target {shape.target!r} (there are: {known})")
    return PipeKernel(function, shape)


def _extents(cluster: object) -> tuple[int, ...]:
    """The blocks of a cluster along three axes."""
    given = tuple(cast("Sequence[object]", cluster)) if isinstance(cluster, (tuple, list)) else ()
    if not 1 <= len(given) <= 3 or any(type(e) is not int for e in given):
        raise fail("lang.pipe.cluster", f"`cluster` is one to three integers, found {cluster!r}")
    return cast("tuple[int, ...]", (*given, 1, 1)[:3])


@overload
def kernel(function: Callable[..., object], /) -> PipeKernel: ...


@overload
def kernel(
    *,
    target: str = "sm_90a",
    warps: int | None = None,
    cluster: Sequence[int] | None = None,
    progress: str | None = None,
) -> Callable[[Callable[..., object]], PipeKernel]: ...


def kernel(
    function: Callable[..., object] | None = None,
    /,
    *,
    target: str = "sm_90a",
    warps: int | None = None,
    cluster: Sequence[int] | None = None,
    progress: str | None = None,
) -> PipeKernel | Callable[[Callable[..., object]], PipeKernel]:
    """Mark a function as a kernel of the `pipe` level. Its code is read, and never run.

    target: "sm_80", "sm_90a" or "gfx942". warps: of a block, unless `Kernel(threads=...)` says it.
    cluster: blocks along each axis that reach each other. progress: as for tile kernels.
    """
    if warps is not None and type(warps) is not int:
        raise fail("lang.pipe.warps", f"`warps` is an integer, found {warps!r}")
    shape = Shape(target, warps, None if cluster is None else _extents(cluster), progress)

    def decorate(inner: Callable[..., object]) -> PipeKernel:
        return pipe_kernel(inner, shape)

    return decorate if function is None else decorate(function)
