"""`@kernel`: a Python function that is launched over a grid of blocks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import FunctionType
from typing import cast, overload

from reftile.ir.core import Kernel
from reftile.ir.diagnostics import Diagnosis, ReftileError, fail
from reftile.lang.annotations import Parameter, read_parameters
from reftile.lang.backends import Specialised, run
from reftile.lang.captures import Captures
from reftile.lang.enums import ByTarget
from reftile.lang.program import trace_kernel
from reftile.lang.signature import Signature, specialise
from reftile.lang.source import function_source
from reftile.lang.trace import Options

Hint = int | ByTarget[int] | None


@dataclass(frozen=True, slots=True)
class Hints:
    """What a compiler may use and nothing depends on; a value, or one by target."""

    num_ctas: Hint = None
    occupancy: Hint = None
    opt_level: Hint = 3
    num_worker_warps: Hint = None


class KernelFunction:
    """A kernel. `kernel[grid](*args)` launches it.

    function: the Python function; its code is never run, only read.
    """

    is_reftile_kernel = True

    def __init__(
        self,
        function: Callable[..., object],
        hints: Hints,
        tokens: str = "auto",
        progress: str = "none",
    ) -> None:
        if not isinstance(function, FunctionType):
            raise fail("lang.kernel", f"@kernel marks functions, found {function!r}")
        if function.__name__ == "<lambda>" or inspect.iscoroutinefunction(function):
            raise fail(
                "lang.kernel",
                f"@kernel marks functions that `def` defines, found {function!r}",
                hint="a lambda or a coroutine cannot be a kernel",
            )
        self.function = function
        self.hints = hints
        self.tokens = tokens
        self.progress = progress
        self.__name__ = function.__name__
        self.__qualname__ = function.__qualname__
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__
        self.__wrapped__ = function
        self._parameters: tuple[Parameter, ...] | None = None
        self._cache: dict[object, list[tuple[Captures, Kernel]]] = {}

    def __repr__(self) -> str:
        return f"<kernel {self.__qualname__}>"

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Kernels are not called."""
        raise ReftileError(
            Diagnosis(
                "lang.kernel.call",
                f"the kernel `{self.__name__}` cannot be called",
                function_source(self.function).head(),
                f"launch it: {self.__name__}[grid](...)",
            )
        )

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """What the annotations say."""
        if self._parameters is None:
            self._parameters = read_parameters(self.function)
        return self._parameters

    def __getitem__(self, grid: object) -> Launcher:
        """`kernel[grid]`: call it with the kernel's arguments to launch it."""
        return Launcher(self, grid)

    def replace_hints(self, **hints: Hint) -> KernelFunction:
        """The same kernel with other hints, and a cache of its own."""
        return KernelFunction(
            self.function, replace(self.hints, **hints), self.tokens, self.progress
        )

    def with_tokens(self, tokens: str) -> KernelFunction:
        """The same kernel with tokens inserted (`auto`), or only its own (`none`)."""
        _check_tokens(tokens)
        return KernelFunction(self.function, self.hints, tokens, self.progress)

    # From arguments to the IR

    def arguments(self, args: Sequence[object], keywords: dict[str, object]) -> tuple[object, ...]:
        """The values of all parameters in order, defaults included."""
        try:
            bound = inspect.signature(self.function).bind(*args, **keywords)
        except TypeError as error:
            raise ReftileError(
                Diagnosis(
                    "lang.arguments",
                    f"`{self.__name__}`: {error}",
                    function_source(self.function).head(),
                    "its parameters are " + ", ".join(p.name for p in self.parameters),
                )
            ) from None
        bound.apply_defaults()
        return tuple(bound.arguments[p.name] for p in self.parameters)

    @property
    def defaults(self) -> dict[str, object]:
        """The values of parameters that may be left out."""
        found = inspect.signature(self.function).parameters
        return {n: p.default for n, p in found.items() if p.default is not p.empty}

    def own_grid(self, found: Specialised) -> tuple[int, int, int] | None:
        """The grid that the kernel says it needs; None if the launch says it."""
        return None

    def specialise(self, *args: object, **keywords: object) -> Specialised:
        """Trace the kernel for arguments, or find it in the cache.

        Raises:
            ReftileError: the kernel, or an argument, is wrong.
        """
        values = self.arguments(args, keywords)
        try:
            signature, flat = specialise(self.parameters, values)
        except ReftileError as error:
            raise self._locate(error) from None
        return Specialised(self.kernel_for(signature), flat)

    def trace(self, *args: object, **keywords: object) -> Kernel:
        """The kernel of the IR for arguments."""
        return self.specialise(*args, **keywords).kernel

    def kernel_for(self, signature: Signature) -> Kernel:
        """The kernel of the IR for a signature: from the cache while what it captured stays."""
        candidates = self._cache.setdefault(signature.key, [])
        for captures, kernel in candidates:
            if captures.hold():
                return kernel
        kernel, captures = trace_kernel(
            self.function, signature, Options(tokens=self.tokens), self._attributes()
        )
        candidates.append((captures, kernel))
        return kernel

    def _attributes(self) -> dict[str, object]:
        found: dict[str, object] = {}
        for name in ("num_ctas", "occupancy", "num_worker_warps"):
            value = getattr(self.hints, name)
            if isinstance(value, int):
                found[name] = value
            elif isinstance(value, ByTarget):
                choice = cast("ByTarget[int]", value)
                found[name] = {**choice.by_target, "default": choice.default or 0}
        if self.progress != "none":
            found["progress"] = self.progress
        return found

    def _locate(self, error: ReftileError) -> ReftileError:
        found = error.diagnosis
        if found.span.source.text:
            return error
        return ReftileError(replace(found, span=function_source(self.function).head()))


@dataclass(frozen=True, slots=True)
class Launcher:
    """A kernel with a grid."""

    kernel: KernelFunction
    grid: object

    def __call__(self, *args: object, **keywords: object) -> object:
        """Launch. The options of `launch` are options unless they are parameters."""
        names = {p.name for p in self.kernel.parameters}
        options = {
            k: keywords.pop(k)
            for k in ("backend", "check", "schedule", "seed", "stream")
            if k in keywords and k not in names
        }
        values = self.kernel.arguments(args, keywords)
        return run(self.kernel.specialise(*values), self.grid, **options)  # type: ignore[arg-type]


def _check_tokens(tokens: str) -> None:
    if tokens not in ("auto", "none"):
        raise fail("lang.tokens", f"tokens are `auto` or `none`, found {tokens!r}")


@overload
def kernel(function: Callable[..., object], /) -> KernelFunction: ...


@overload
def kernel(
    *,
    num_ctas: Hint = None,
    occupancy: Hint = None,
    opt_level: Hint = 3,
    num_worker_warps: Hint = None,
    tokens: str = "auto",
    progress: str = "none",
) -> Callable[[Callable[..., object]], KernelFunction]: ...


def kernel(
    function: Callable[..., object] | None = None,
    /,
    *,
    num_ctas: Hint = None,
    occupancy: Hint = None,
    opt_level: Hint = 3,
    num_worker_warps: Hint = None,
    tokens: str = "auto",
    progress: str = "none",
) -> KernelFunction | Callable[[Callable[..., object]], KernelFunction]:
    """Mark a function as a kernel. Its code is read when it is first launched, and never run.

    num_ctas, occupancy, opt_level, num_worker_warps: hints for compilers.
    tokens: `auto` inserts the order that the text suggests; `none` inserts nothing, so that memory
        operations are ordered by `token=` alone, and kernels without it race.
    progress: what the kernel needs of other blocks: `none`, `occupancy_bound`, `cooperative`.
    """
    _check_tokens(tokens)
    hints = Hints(num_ctas, occupancy, opt_level, num_worker_warps)

    def decorate(inner: Callable[..., object]) -> KernelFunction:
        return KernelFunction(inner, hints, tokens, progress)

    return decorate if function is None else decorate(function)
