"""Machine code of CPU kernels: compiled by numba once, kept on disk, loaded by LLVM alone.

What is kept is the object code of the one function of a kernel. Loading it takes llvmlite and no
numba, so that a process that compiles nothing starts quickly.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import platform
import sys
import threading
import time
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from reftile.lower.cpu import emit
from reftile.lower.cpu.emit import Program
from reftile.rt.cache import Cache, default_folder, key_of

_SYMBOL = "reftile_cpu_kernel"
_FUNCTIONS = "reftile.lower.cpu.functions"
_MODULES = ("machine", "numbers", "arithmetic", "exact", "elementary", "ordering")
_PATIENCE_SECONDS = 2.0
_TRIM_EVERY = 64
_lock = threading.Lock()


@dataclass(slots=True)
class Code:
    """A function that is ready: `function(parameters, scratch)`. seconds: it took to compile."""

    address: int
    function: Any
    seconds: float
    engine: Any


_SIGNATURE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)


class CodeCache(Cache):
    """The cache of CPU code, in a folder of its own; it is not trimmed every time."""

    stored = 0

    def __init__(self) -> None:
        super().__init__(default_folder() / "cpu")

    def trim(self) -> None:
        """Remove the least recently used entries, now and then."""
        CodeCache.stored += 1
        if CodeCache.stored % _TRIM_EVERY == 0:
            super().trim()


def load_code(program: Program, name: str, cache: Cache | None = None) -> Code:
    """The machine code of a program, from the cache if it is there."""
    cache = cache if cache is not None else CodeCache()
    key = key_of("cpu", program.source, _identity())
    entry = cache.find(key)
    seconds = 0.0
    if entry is not None:
        data, symbol = entry.code, str(entry.about["symbol"])
    else:
        start = time.perf_counter()
        with _lock, _Progress(name):
            data, symbol = _compile(program.source)
        seconds = time.perf_counter() - start
        cache.store(key, data, {"kind": "cpu", "symbol": symbol, "seconds": seconds})
    with _lock:
        engine = _link(data)
        address = engine.get_function_address(symbol)
    return Code(address, _SIGNATURE(address), seconds, engine)


@cache
def _identity() -> str:
    """What the code depends on besides its source."""
    binding = _binding()
    folder = Path(emit.__file__).parent / "functions"
    sources = [file.read_bytes() for file in sorted(folder.rglob("*.py"))]
    host = f"{binding.get_host_cpu_name()} {binding.get_host_cpu_features().flatten()}"
    return key_of(version("numba"), version("llvmlite"), platform.machine(), host, *sources)


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


def _compile(source: str) -> tuple[bytes, str]:
    """Object code of the function `run`, and its symbol."""
    compiler: Any = import_module(f"{_FUNCTIONS}.compiler")
    return compiler.compile_source(source, _names())


class _Progress:
    """A line on the terminal while compiling takes long."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.timer = threading.Timer(_PATIENCE_SECONDS, self._show)
        self.shown = False

    def _show(self) -> None:
        self.shown = True
        sys.stderr.write(f"reftile: compiling `{self.name}` for the CPU ...")
        sys.stderr.flush()

    def __enter__(self) -> None:
        if sys.stderr.isatty():
            self.timer.daemon = True
            self.timer.start()

    def __exit__(self, *error: object) -> None:
        self.timer.cancel()
        if self.shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
