"""Machine code of CPU kernels: compiled by numba once, kept on disk, loaded by LLVM alone.

What is kept is the object code of the one function of a kernel. Loading it takes llvmlite and no
numba, so that a process that compiles nothing starts quickly. What numba made of the functions that
kernels call is kept beside it, for the next kernel.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import platform
import time
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from reftile.lower.cpu import emit
from reftile.lower.cpu.emit import Program
from reftile.rt.cache import CPU_FOLDER, Cache, default_folder, key_of
from reftile.rt.cpu.progress import ProgressLine

_SYMBOL = "reftile_cpu_kernel"
_FUNCTIONS = "reftile.lower.cpu.functions"
_MODULES = ("machine", "numbers", "arithmetic", "exact", "elementary", "ordering")
_TRIM_EVERY = 64
_TOLD = ("CPU_NAME", "CPU_FEATURES", "ENABLE_AVX", "OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE")
"""Variables of numba that change machine code."""


@dataclass(slots=True)
class Code:
    """A function that is ready: `function(parameters, scratch)`. seconds: it took to compile."""

    address: int
    function: Any
    seconds: float
    engine: Any


_SIGNATURE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)


class CodeCache(Cache):
    """The cache of CPU code, in a folder of its own; it is not trimmed every time.

    Every entry says which key it is of: one that came there under another name is not loaded.
    """

    stored = 0

    def __init__(self) -> None:
        super().__init__(default_folder() / CPU_FOLDER)

    def code_of(self, key: str) -> bytes | None:
        """What was kept under a key, or None."""
        entry = self.find(key)
        return entry.code if entry is not None and entry.about.get("key") == key else None

    def keep(self, key: str, code: bytes, kind: str, name: str) -> None:
        """Keep code, if the folder can be written to."""
        self.store(key, code, {"key": key, "kind": kind, "kernel": name, "target": "cpu"})

    def trim(self) -> None:
        """Remove the least recently used entries, now and then."""
        CodeCache.stored += 1
        if CodeCache.stored % _TRIM_EVERY == 0:
            super().trim()


@dataclass(frozen=True, slots=True)
class _Functions:
    """The cache as the shelf of the functions that kernels call."""

    cache: CodeCache

    def find(self, name: str) -> bytes | None:
        return self.cache.code_of(self._key(name))

    def store(self, name: str, data: bytes) -> None:
        self.cache.keep(self._key(name), data, "function", name.partition(" ")[0])

    def _key(self, name: str) -> str:
        return key_of("cpu function", name, _identity())


def load_code(program: Program, name: str) -> Code:
    """The machine code of a program, from the cache if it is there.

    Not for two threads at once: LLVM's linker and numba's compiler are one for all.
    """
    cache = CodeCache()
    key = key_of("cpu", program.source, _identity())
    data = cache.code_of(key)
    seconds = 0.0
    if data is None:
        start = time.perf_counter()
        with ProgressLine(name):
            data = _compile(program.source, cache)
        seconds = time.perf_counter() - start
        cache.keep(key, data, "kernel", name)
    engine = _link(data)
    address = engine.get_function_address(_SYMBOL)
    return Code(address, _SIGNATURE(address), seconds, engine)


@cache
def _identity() -> str:
    """What the code depends on besides its source."""
    return key_of(version("numba"), version("llvmlite"), _processor(), *_sources())


def _processor() -> str:
    """The processor, and what the environment tells numba of it."""
    binding = _binding()
    found = f"{binding.get_host_cpu_name()} {binding.get_host_cpu_features().flatten()}"
    told = [os.environ.get(f"NUMBA_{name}") for name in _TOLD]
    return f"{platform.machine()} {found} {told}"


def _sources() -> list[bytes]:
    """Every file that functions of kernels stand in."""
    folder = Path(emit.__file__).parent / "functions"
    return [file.read_bytes() for file in sorted(folder.rglob("*.py"))]


@cache
def _binding() -> Any:
    binding: Any = import_module("llvmlite.binding")
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    library = ctypes.util.find_library("m")
    if library is not None:
        binding.load_library_permanently(library)
    return binding


def _link(data: bytes) -> Any:
    binding = _binding()
    machine = binding.Target.from_default_triple().create_target_machine(jit=True)
    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), machine)
    engine.add_object_file(binding.ObjectFileRef.from_data(data))
    engine.finalize_object()
    return engine


def namespace() -> dict[str, Any]:
    """What the source of a kernel may name."""
    found: dict[str, Any] = {}
    for module in _MODULES:
        found.update(vars(import_module(f"{_FUNCTIONS}.{module}")))
    numba: Any = import_module("numba")
    kinds = {"i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64"}
    kinds |= {"f32": "float32", "f64": "float64"}
    found.update({short: getattr(numba, long) for short, long in kinds.items()})
    found.update(inf=float("inf"), nan=float("nan"), __builtins__=__builtins__)
    return found


@cache
def _names() -> dict[str, Any]:
    return namespace()


def _compile(source: str, cache: CodeCache) -> bytes:
    """Object code of the function `run`, whose symbol is `_SYMBOL`."""
    compiler: Any = import_module(f"{_FUNCTIONS}.compiler")
    return compiler.compile_source(source, _names(), _SYMBOL, _Functions(cache))
