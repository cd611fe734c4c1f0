"""`reftile doctor`: what this machine can run, and why not the rest."""

from __future__ import annotations

import os
import platform
import sys
from ctypes import CDLL, byref, c_int
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from typing import TYPE_CHECKING

from reftile.cli.output import Output
from reftile.ir.diagnostics import ReftileError
from reftile.rt.cache import all_caches, default_folder
from reftile.rt.devices import device_count, device_name, driver_version, target
from reftile.rt.driver import bindings

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True, slots=True)
class Ability:
    """One thing reftile can do somewhere: whether here, and what is missing or was found."""

    name: str
    available: bool
    detail: str
    remedy: str = ""

    def to_json(self) -> dict[str, object]:
        """Plain data for `--json`."""
        return {
            "name": self.name,
            "available": self.available,
            "detail": self.detail,
            "remedy": self.remedy,
        }


def examine() -> list[Ability]:
    """Look at this machine. Nothing is installed, changed or left running."""
    return [
        _python(),
        _package("interpreter", "numpy", "runs and checks kernels on this CPU", ""),
        _package("narrow dtypes", "ml_dtypes", "bf16, fp8 and fp4 arrays", "ml_dtypes"),
        _package("CPU compiler", "numba", "JIT-compiled kernels on this CPU", "numba"),
        _nvidia(),
        _amd(),
        _tool("ptxas", "nvidia-cuda-nvcc", "assembles PTX with no GPU", "reftile[ptxas]"),
        _tool("nvdisasm", "nvidia-cuda-nvdisasm", "shows machine code", "reftile[ptxas]"),
        _cache(),
        _package("SMT solver", "z3", "explores larger litmus tests", "reftile[smt]"),
        _package(
            "cuTile", "cuda.tile", "exports cuTile kernels to run them here", "reftile[tile-ir]"
        ),
        _package("conformance", "mpmath", "runs the conformance suites", "reftile[conformance]"),
    ]


def _python() -> Ability:
    cores = os.cpu_count() or 1
    detail = f"Python {platform.python_version()} on {platform.machine()}, {cores} cores"
    return Ability("python", sys.version_info >= (3, 11), detail, "Python 3.11 or later")


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def _package(name: str, module: str, use: str, extra: str) -> Ability:
    try:
        found = find_spec(module) is not None
    except (ImportError, ValueError):
        found = False
    distribution = {"z3": "z3-solver", "cuda.tile": "cuda-tile"}.get(module, module)
    if found:
        return Ability(name, True, f"{distribution} {_version(distribution)}: {use}")
    return Ability(name, False, f"{distribution} is not installed: {use}", f"pip install {extra}")


def _tool(name: str, distribution: str, use: str, extra: str) -> Ability:
    version = _version(distribution)
    if version:
        return Ability(name, True, f"{distribution} {version}: {use}")
    return Ability(name, False, f"{distribution} is not installed: {use}", f"pip install {extra}")


def _cache() -> Ability:
    """Whether compiled kernels can be kept."""
    folder = default_folder()
    entries = [entry for cache in all_caches() for entry in cache.entries()]
    detail = f"{folder}: {len(entries)} entries, {sum(e.bytes for e in entries)} bytes"
    parent = next(p for p in (folder, *folder.parents) if p.exists())
    if parent.is_dir() and os.access(parent, os.W_OK):
        return Ability("kernel cache", True, detail)
    remedy = "REFTILE_CACHE names another folder"
    return Ability("kernel cache", False, f"{parent} cannot be written to", remedy)


def _nvidia() -> Ability:
    """Ask the driver itself; a binding that imports says nothing about a device."""
    library = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        driver = CDLL(library)
    except OSError:
        return Ability("NVIDIA GPU", False, f"{library} was not found", "install NVIDIA's driver")
    status = driver.cuInit(0)
    if status:
        return Ability("NVIDIA GPU", False, f"the driver answers error {status} to cuInit", "")
    count, version = c_int(), c_int()
    driver.cuDeviceGetCount(byref(count))
    driver.cuDriverGetVersion(byref(version))
    release = f"CUDA {version.value // 1000}.{version.value % 1000 // 10}"
    if count.value == 0:
        return Ability("NVIDIA GPU", False, f"driver for {release}, but no device", "")
    try:
        bindings()
        names = [f"{device_name(i)} ({target(i)})" for i in range(device_count())]
        detail = f"{', '.join(names)}, driver {driver_version()} for {release}"
    except ReftileError as error:
        found = error.diagnosis
        detail = f"{count.value} device(s), driver for {release}, but {found.message}"
        return Ability("NVIDIA GPU", False, detail, found.hint)
    return Ability("NVIDIA GPU", True, f"{detail}: `--backend cuda` runs pipe kernels")


def _amd() -> Ability:
    """Probe the runtime; the bindings import without one and report success for missing calls."""
    for library in ("libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so"):
        try:
            runtime = CDLL(library)
        except OSError:
            continue
        count = c_int()
        status = runtime.hipGetDeviceCount(byref(count))
        if status or count.value == 0:
            return Ability(
                "AMD GPU", False, f"{library} answers {status}, {count.value} devices", ""
            )
        return Ability("AMD GPU", True, f"{count.value} device(s) through {library}")
    return Ability("AMD GPU", False, "libamdhip64.so was not found", "install ROCm")


def report(output: Output) -> None:
    """Print what was found."""
    abilities = examine()

    def render(console: Console) -> None:
        from rich.markup import escape
        from rich.table import Table

        table = Table(box=None, pad_edge=False, show_header=False)
        for ability in abilities:
            mark = "[green]yes[/]" if ability.available else "[red]no[/]"
            detail = ability.detail + (
                f"  ({ability.remedy})" if ability.remedy and not ability.available else ""
            )
            table.add_row(mark, ability.name, escape(detail))
        console.print(table)

    output.result({"abilities": [a.to_json() for a in abilities]}, render)
