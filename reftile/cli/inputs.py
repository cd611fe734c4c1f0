"""Kernels and arguments named on the command line.

A kernel is `FILE.tile`, `FILE.tile:name`, the same of CUDA Tile IR bytecode, or `FILE.py:function`.
An argument is one of

    f32[64,128]              random numbers (normal, or small integers for an integer type)
    f32[64,128]=VALUE        zeros, ones, arange, random, a number, or uninitialised
    @data.npy  @data.npz:x   an array from a file
    128   0.5   true         a scalar
    NAME=...                 any of these for the argument called NAME
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from reftile.interop.read import read_bytecode
from reftile.interop.sections import is_bytecode
from reftile.ir.core import Kernel, Module
from reftile.ir.diagnostics import NOWHERE, Diagnosis, ReftileError
from reftile.ir.dtypes import DTYPES, DType, numpy_dtype
from reftile.ir.parse import parse

LARGEST_ARRAY_BYTES = 1 << 33
"""An array of the command line at most: beyond it a typing mistake is likelier than a wish."""
LARGEST_PROGRAM_BYTES = 1 << 28
BYTECODE_SUFFIXES = (".tilebc", ".tileirbc")

_ARRAY = re.compile(r"(\w+)\[([\d, ]*)\](?:=(.+))?$")
_NAMED = re.compile(r"([A-Za-z_]\w*)=(.+)$", re.S)


def bad(message: str, hint: str = "", rule: str = "input") -> ReftileError:
    """The error (to be raised) for a wrong input."""
    return ReftileError(Diagnosis(f"cli.{rule}", message, NOWHERE, hint))


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a file.

    Raises:
        ReftileError: it cannot be read, or is too large to be a program.
    """
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_PROGRAM_BYTES + 1)
    except OSError as error:
        raise bad(f"{path}: {error.strerror or error}") from None
    if len(data) > LARGEST_PROGRAM_BYTES:
        raise bad(f"{path} has more than {LARGEST_PROGRAM_BYTES} bytes")
    return data


def split_name(where: str) -> tuple[Path, str]:
    """`FILE:name` as (FILE, name); the name is "" if there is none."""
    head, colon, tail = where.rpartition(":")
    if colon and re.fullmatch(r"[A-Za-z_][\w.]*", tail) and head:
        return Path(head), tail
    return Path(where), ""


def load_module(path: Path) -> Module:
    """Read a file of text IR, or of CUDA Tile IR bytecode."""
    data = read_bytes(path)
    if path.suffix in BYTECODE_SUFFIXES or is_bytecode(data):
        return read_bytecode(data, str(path))
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise bad(f"{path} is not UTF-8 text") from None
    return parse(text, str(path))


def pick_kernel(module: Module, name: str, path: Path) -> Kernel:
    """Return the kernel called `name`, or the only one of the module."""
    names = [k.name for k in module.kernels]
    if not names:
        raise bad(f"{path} holds no kernel")
    if not name and len(names) > 1:
        raise bad(
            f"{path} holds several kernels", f"write {path}:{names[0]} (or {', '.join(names[1:])})"
        )
    if name and name not in names:
        raise bad(f"{path} holds no kernel `{name}`", f"it holds {', '.join(names)}")
    return module.kernel(name or None)


def load_python_object(path: Path, name: str) -> Any:
    """Run a Python file as a module and return what it calls `name`.

    Raises:
        ReftileError: the file does not run, or has no such name.
    """
    if not path.exists():
        raise bad(f"{path}: no such file")
    # Under a name of its own: a user's `numpy.py` must not become everybody's.
    spec = importlib.util.spec_from_file_location(f"_reftile_file_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise bad(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except ReftileError:
        raise
    except Exception as error:
        raise bad(f"{path} does not run: {type(error).__name__}: {error}") from None
    finally:
        sys.path.pop(0)
    if not hasattr(module, name):
        kernels = [n for n, v in vars(module).items() if type(v).__module__.startswith("reftile.")]
        hint = f"it has {', '.join(kernels)}" if kernels else ""
        raise bad(f"{path} has no `{name}`", hint)
    return getattr(module, name)


def parse_grid(text: str) -> tuple[int, int, int]:
    """`4`, `4,2` or `4,2,1` as three numbers of blocks.

    Raises:
        ReftileError: not one to three positive integers of at most 2**24 - 1.
    """
    parts = text.replace("x", ",").split(",")
    if not 1 <= len(parts) <= 3 or not all(p.strip().isdigit() for p in parts):
        raise bad(f"`{text}` is not a grid", "write 4, or 4,2, or 4,2,1")
    sizes = [int(p) for p in parts]
    if not all(0 < s < 1 << 24 for s in sizes):
        raise bad(f"`{text}` is not a grid: each extent lies between 1 and {(1 << 24) - 1}")
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


class Arguments:
    """Arguments of one launch: positional values, and values by name."""

    def __init__(self, texts: list[str], seed: int) -> None:
        self.positional: list[Any] = []
        self.named: dict[str, Any] = {}
        random = np.random.default_rng(seed)
        for text in texts:
            match = _NAMED.match(text)
            if match is not None and _ARRAY.match(text) is None:
                self.named[match[1]] = parse_argument(match[2], random)
            else:
                self.positional.append(parse_argument(text, random))

    def for_kernel(self, names: list[str], optional: Mapping[str, Any] | None = None) -> list[Any]:
        """The values in the order of `names`; `optional` has those of arguments left out.

        Raises:
            ReftileError: one is missing, or one too many was given.
        """
        unknown = set(self.named) - set(names)
        if unknown:
            raise bad(
                f"the kernel has no argument {', '.join(sorted(unknown))}",
                f"it has {', '.join(names)}",
            )
        queue = list(self.positional)
        values: list[Any] = []
        for name in names:
            if name in self.named:
                values.append(self.named[name])
            elif queue:
                values.append(queue.pop(0))
            elif optional is not None and name in optional:
                values.append(optional[name])
            else:
                raise bad(
                    f"no value for the argument `{name}`", f"the kernel takes {', '.join(names)}"
                )
        if queue:
            raise bad(f"{len(queue)} argument(s) too many", f"the kernel takes {', '.join(names)}")
        return values


def parse_argument(text: str, random: np.random.Generator) -> Any:
    """Return the array or scalar that `text` describes; the module's docstring has the forms."""
    if text.startswith("@"):
        return _from_file(text[1:])
    match = _ARRAY.match(text)
    if match is not None:
        return _array(match[1], match[2], match[3] or "random", random)
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text, 0)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        hint = "write f32[64,128], f32[64]=zeros, @file.npy, 128 or 0.5"
        raise bad(f"`{text}` is not an argument", hint) from None


def _from_file(where: str) -> NDArray[Any]:
    path, name = split_name(where)
    try:
        loaded = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise bad(f"{path}: {error}") from None
    if isinstance(loaded, np.ndarray):
        return cast("NDArray[Any]", loaded)
    if name not in loaded:
        raise bad(f"{path} has no array `{name}`", f"it has {', '.join(loaded)}")
    return loaded[name]


def _array(
    dtype_name: str, shape_text: str, fill: str, random: np.random.Generator
) -> NDArray[Any]:
    if dtype_name not in DTYPES:
        raise bad(f"`{dtype_name}` is not a dtype", f"one of {', '.join(DTYPES)}")
    dtype = DTYPES[dtype_name]
    shape = tuple(int(t) for t in shape_text.split(",") if t.strip())
    size = 1
    for extent in shape:
        size *= extent
    if size * dtype.bits > LARGEST_ARRAY_BYTES * 8:
        raise bad(f"{dtype_name}[{shape_text}] takes {size * dtype.bits // 8} bytes")
    target = numpy_dtype(dtype)
    if fill == "zeros":
        return np.zeros(shape, target)
    if fill == "ones":
        return np.ones(shape, target)
    if fill == "arange":
        return np.arange(size).reshape(shape).astype(target)
    if fill == "random":
        return _random(shape, dtype, random).astype(target)
    try:
        return np.full(shape, float(fill) if dtype.kind == "float" else int(fill, 0)).astype(target)
    except ValueError:
        hint = "zeros, ones, arange, random or a number"
        raise bad(f"`{fill}` does not fill an array", hint) from None


def _random(shape: tuple[int, ...], dtype: DType, random: np.random.Generator) -> NDArray[Any]:
    if dtype.name == "i1":
        return random.integers(0, 2, shape)
    if dtype.kind == "int":
        return random.integers(-8, 8, shape)
    return random.standard_normal(shape)
