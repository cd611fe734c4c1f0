"""Every place where reftile reaches into cuTile Python: this file, and no other.

What cuTile has no public interface for, at the versions that were looked at:

- the driver is found through the module `cuda.tile._load_libcuda`, imported at the first use;
- a kernel is compiled by its method `_compile`, which the launcher calls with a signature and which
  returns what the driver loads, the symbol, and two things that only GPUs need;
- the compiler for GPUs and the Tile IR that it takes are looked up by two functions of
  `cuda.tile._compile`, which cuTile's own tests ask too;
- a kernel's Python function is its attribute `_pyfunc`, and its options `_compiler_options`;
- tensors of torch are taken through `torch._C._to_dlpack`, called with the tensor alone.

Everything else is public: `cuda.tile.launch` and `cuda.tile.compilation`.

Source: cuda-tile 1.6.0 and 1.7.0, the package and its C++ extension.
"""

from __future__ import annotations

import inspect
import io
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

from reftile.interop.cutile_dlpack import claim_cuda
from reftile.interop.cutile_driver import HostDriver
from reftile.ir.diagnostics import fail

PINNED: dict[str, tuple[str, object]] = {"1.6.0": ("13.4", []), "1.7.0": ("13.4", ())}
"""The versions of cuda-tile that this works with: the newest Tile IR that each writes, and what its
`_compile` returns last when there is nothing."""

_LOADER = "cuda.tile._load_libcuda"

Lend = Callable[[object], None]
"""Told of every tensor of torch that cuTile is about to take."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A kernel for one signature.

    bytecode: of CUDA Tile IR. names: one for each of its arguments, from the author's parameters.
    """

    bytecode: bytes
    name: str
    names: tuple[str, ...]


Keep = Callable[[Compiled], tuple[bytes, str]]
"""Takes what was compiled, and returns what the driver will be given, and the symbol."""


def load_cutile() -> ModuleType:
    """Import cuda.tile, at a version that was looked at.

    Raises:
        ReftileError: it is not installed, or another version.
    """
    try:
        module = import_module("cuda.tile")
    except ImportError as error:
        raise fail(
            "cutile.missing",
            f"cuTile Python cannot be imported: {error}",
            hint=f"pip install cuda-tile=={newest_version()}",
        ) from None
    version = str(getattr(module, "__version__", "of unknown version"))
    if version not in PINNED:
        raise fail(
            "cutile.version",
            f"cuda-tile {version} is installed, and reftile knows the insides of "
            f"{' and '.join(PINNED)}",
            hint=f"pip install cuda-tile=={newest_version()}, or export the kernel with "
            "cuda.tile.compilation.export_kernel and use `reftile run`",
        )
    return module


def newest_version() -> str:
    """The newest version that this works with."""
    return list(PINNED)[-1]


def is_kernel(value: object) -> bool:
    """True for a function marked with @ct.kernel."""
    return isinstance(value, load_cutile().kernel)


def compile_kernel(kernel: Any, signature: Any, architecture: str) -> Compiled:
    """Have cuTile compile a kernel to bytecode; its own errors pass through."""
    module = load_cutile()
    version, _ = PINNED[module.__version__]
    file = io.BytesIO()
    module.compilation.export_kernel(
        kernel,
        [signature],
        file,
        gpu_code=architecture,
        output_format="tileir_bytecode",
        bytecode_version=version,
    )
    name = str(kernel._pyfunc.__name__)
    return Compiled(file.getvalue(), name, _argument_names(kernel, signature))


def _argument_names(kernel: Any, signature: Any) -> tuple[str, ...]:
    parameters = inspect.signature(kernel._pyfunc).parameters
    return tuple(
        name
        for parameter, constraint in zip(parameters, signature.parameters, strict=False)
        for name in _names_of(parameter, constraint)
    )


def _names_of(name: str, constraint: Any) -> Iterator[str]:
    """What a parameter becomes, by cuTile's calling convention."""
    match type(constraint).__name__:
        case "ArrayConstraint":
            yield name
            for what in ("extent", "stride"):
                yield from (f"{name}_{what}{axis}" for axis in range(constraint.ndim))
        case "ScalarConstraint":
            yield name
        case "ListConstraint":
            yield from (name, f"{name}_length")
        case "TupleConstraint":
            for i, item in enumerate(constraint.items):
                yield from _names_of(f"{name}_{i}", item)
        case "DataclassConstraint":
            names: Sequence[str] = list(constraint.cls.__dataclass_fields__)
            for field, item in zip(names, constraint.fields, strict=True):
                yield from _names_of(f"{name}_{field}", item)
        case _:
            return


# Putting the host's driver in


@contextmanager
def host_driver(driver: HostDriver, keep: Keep, lend: Lend) -> Generator[None]:
    """Have cuTile launch on the host while the context lasts.

    cuTile asks for the driver once in a process: after a first launch here, the process cannot
    launch on a GPU any more, and the other way round.

    Raises:
        ReftileError: cuTile has a GPU's driver already.
    """
    module = load_cutile()
    loader = sys.modules.get(_LOADER)
    if loader is not None and not hasattr(loader, "reftile_driver"):
        raise fail(
            "cutile.driver",
            "cuTile has loaded a GPU's driver in this process, and keeps it",
            hint="start the program again, and enter the context before the first launch",
        )
    stand_in: Any = ModuleType(_LOADER)
    stand_in.cuGetProcAddress_v2_ptrptr = driver.lookup_address
    stand_in.reftile_driver = driver
    _, nothing = PINNED[module.__version__]
    dispatcher: Any = module.kernel
    compile_for_gpu = dispatcher._compile

    def compile_for_host(
        kernel: Any, signature: Any, _context: object, capability: tuple[int, int] | None = None
    ) -> tuple[bytes, str, None, object]:
        major, minor = capability or driver.compute_capability
        code, symbol = keep(compile_kernel(kernel, signature, f"sm_{major}{minor}"))
        return code, symbol, None, nothing

    sys.modules[_LOADER] = stand_in
    dispatcher._compile = compile_for_host
    try:
        with _torch_tensors(lend):
            yield
    finally:
        dispatcher._compile = compile_for_gpu


@contextmanager
def compiler_not_needed() -> Generator[None]:
    """Answer who asks for NVIDIA's compiler where it is not installed: reftile does without it."""
    module: Any = import_module("cuda.tile._compile")
    find, newest = module._find_compiler_bin, module._get_max_supported_bytecode_version
    try:
        find()
    except FileNotFoundError as error:
        missing = error
    else:
        yield
        return

    def refuse(*_args: object) -> None:
        raise missing

    def answer(*_args: object, **_named: object) -> object:
        return version

    major_minor, _ = PINNED[load_cutile().__version__]
    version = getattr(module.BytecodeVersion, f"V_{major_minor.replace('.', '_')}")
    module._find_compiler_bin = lambda: SimpleNamespace(path="not installed", run=refuse)
    module._get_max_supported_bytecode_version = answer
    try:
        yield
    finally:
        module._find_compiler_bin = find
        module._get_max_supported_bytecode_version = newest


_lenders: list[Lend] = []


@contextmanager
def _torch_tensors(lend: Lend) -> Generator[None]:
    """Have tensors of torch on the CPU pass for tensors on a GPU, towards cuTile alone.

    cuTile keeps the function that it finds first, so the function stays useful afterwards.
    """
    _lenders.append(lend)
    try:
        try:
            inside: Any = import_module("torch._C")
        except ImportError:
            yield
            return
        original = inside._to_dlpack
        if not hasattr(original, "reftile_original"):
            inside._to_dlpack = _lending(original)
        try:
            yield
        finally:
            inside._to_dlpack = getattr(original, "reftile_original", original)
    finally:
        _lenders.pop()


def _lending(original: Callable[..., Any]) -> Callable[..., Any]:
    def to_dlpack(tensor: Any, **rest: Any) -> Any:
        frame = inspect.currentframe()
        caller = frame.f_back.f_code.co_filename if frame and frame.f_back else ""
        if rest or not _lenders or caller.endswith("torch/_tensor.py"):
            return original(tensor, **rest)
        if tensor.device.type == "cpu":
            _lenders[-1](tensor)
        capsule = original(tensor)
        claim_cuda(capsule)
        return capsule

    to_dlpack.reftile_original = original  # type: ignore[attr-defined]
    return to_dlpack
