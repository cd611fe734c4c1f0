"""A `pipe` kernel into one that can be launched: from the cache on disk, or lowered and assembled.

The cache is asked before anything is lowered. Its key is the text of the kernel, the plan, the
target, the driver and what reftile's own files are, so that a hit needs neither passes nor checks.
docs/decisions/0007-what-the-cache-keeps.md says why an entry is PTX at first and a cubin later.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import Any

import reftile.lower.ptx.assemble as ptxas
from reftile.ir.core import Kernel
from reftile.ir.diagnostics import Bug, ReftileError, fail
from reftile.ir.print import show
from reftile.ir.verify import mark_verified
from reftile.lower.explain.examine import explain
from reftile.lower.explain.facts import Explanation
from reftile.lower.host import HostPlan, plan_from_json
from reftile.lower.pipeline import lower_copy
from reftile.lower.ptx.assemble import Report
from reftile.rt import devices
from reftile.rt.cache import Cache, Entry, key_of
from reftile.rt.jit import Function, Resources, load, load_module, refuse_serialised
from reftile.rt.launcher import Grid, Launch, Launcher

_PACKAGE = Path(__file__).resolve().parents[1]
_FOLDERS = ("ir", "layout", "lower", "rt")


@cache
def own_version(package: Path = _PACKAGE) -> str:
    """A digest of the names, sizes and times of the files that decide what code a kernel becomes.

    A version number alone would not notice that somebody changed a pass.
    """
    digest = sha256()
    for folder in _FOLDERS:
        for line in sorted(_states(os.path.join(package, folder), folder)):
            digest.update(line.encode())
    return digest.hexdigest()


def _states(folder: str, name: str) -> Iterator[str]:
    """A line for each file of ours in a folder, and in those inside it."""
    if not os.path.isdir(folder):
        return
    with os.scandir(folder) as found:
        for item in found:
            if item.name.endswith((".py", ".toml")):
                status = item.stat()
                yield f"{name}/{item.name} {status.st_size} {status.st_mtime_ns}\n"
            elif item.name != "__pycache__" and item.is_dir():
                yield from _states(item.path, f"{name}/{item.name}")


def cache_key(kernel: Kernel, plan: str, target: str) -> str:
    """The key of what a kernel becomes on a target with the driver that is here."""
    return key_of(show(kernel), plan, target, devices.driver_version(), own_version())


def check_level(kernel: Kernel) -> None:
    """Refuse a kernel of a level that cannot be lowered.

    Raises:
        ReftileError: `cuda.level`.
    """
    if kernel.level == "pipe":
        return
    hint = "no pass makes pipe kernels of tile kernels yet: run it on the backend interp or cpu"
    raise fail(
        "cuda.level",
        f"`{kernel.name}` is a {kernel.level} kernel, and CUDA runs pipe kernels",
        kernel.span,
        hint if kernel.level == "tile" else "give the pipe kernel that it was made of",
    )


@dataclass(slots=True)
class Compiled:
    """A kernel on a device. Call it as `compiled(grid, args, stream)`.

    kind: "ptx", or "cubin" if the machine code itself came from the cache or ptxas.
    from_disk: whether the cache had it. seconds: what each step took.
    """

    kernel: Kernel
    target: str
    ptx: str
    host: HostPlan
    function: Function
    launcher: Launcher
    kind: str
    from_disk: bool
    seconds: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def device(self) -> int:
        """The number of the device."""
        return self.function.device

    @property
    def resources(self) -> Resources:
        """What the assembler said of the kernel."""
        return self.function.resources

    def explain(self) -> Explanation:
        """What the kernel became and why, with the registers that the driver gave it."""
        known = self.resources
        report = Report(
            known.registers, known.spill_bytes, self.host.shared_bytes, 0, known.remarks, ""
        )
        return explain(self.kernel, report)[0]

    @property
    def launch(self) -> Launch:
        """The function that queues a launch of the kinds of arguments last seen: the fast way."""
        return self.launcher.launch

    def __call__(self, grid: Grid, args: Sequence[Any], stream: Any = 0) -> None:
        """Queue one launch; see Launcher."""
        self.launcher(grid, args, stream)


def compile_kernel(
    kernel: Kernel, device: int | None = None, *, plan: str = "", cached: Cache | None = None
) -> Compiled:
    """Compile a kernel for a device and load it there; the kernel is left as it is.

    device: a number; by default the one whose context is current, else 0.
    plan: the decisions that led to this kernel, if it was made from another; part of the key.
    cached: where to look first and what to keep it in; None compiles afresh.

    Raises:
        ReftileError: the kernel is wrong, is for another target, or the driver refuses.
    """
    check_level(kernel)
    if device is None:
        device = devices.current_device() or 0
    target = str(kernel.attributes.get("target", ""))
    devices.check_target(kernel.name, target, device)
    start = perf_counter()
    seconds: dict[str, float] = {}
    key = cache_key(kernel, plan, target) if cached is not None else ""
    entry = cached.find(key) if cached is not None else None
    seconds["looking in the cache"] = perf_counter() - start
    if entry is not None:
        known = _from_entry(kernel, target, entry, device, cached, key, seconds)
        if known is not None:
            mark_verified(kernel)
            return known
    start = perf_counter()
    lowered = lower_copy(kernel, target)
    seconds["passes"] = perf_counter() - start
    start = perf_counter()
    function = load(lowered.ptx, lowered.host.entry, lowered.host.shared_bytes, device)
    seconds["assembling"] = perf_counter() - start
    if cached is not None:
        about = _about(kernel, target, "ptx", lowered.host, function.resources)
        cached.store(key, function.ptx.encode(), about)
    launcher = Launcher(lowered.host, function, device)
    return Compiled(
        kernel, target, function.ptx, lowered.host, function, launcher, "ptx", False, seconds
    )


# The cache


def _about(
    kernel: Kernel, target: str, kind: str, host: HostPlan, resources: Resources
) -> dict[str, Any]:
    return {
        "kernel": kernel.name,
        "target": target,
        "kind": kind,
        "driver": devices.driver_version(),
        "host": host.to_json(),
        "registers": resources.registers,
        "spill_bytes": resources.spill_bytes,
        "remarks": list(resources.remarks),
        "seconds": resources.seconds,
    }


def _from_entry(
    kernel: Kernel,
    target: str,
    entry: Entry,
    device: int,
    cached: Cache | None,
    key: str,
    seconds: dict[str, float],
) -> Compiled | None:
    """Load what the cache had; None if it cannot be used."""
    about = entry.about
    start = perf_counter()
    try:
        host = plan_from_json(about["host"])
        kind, ptx_bytes = str(about["kind"]), int(about.get("ptx_bytes", len(entry.code)))
        resources = Resources(
            int(about["registers"]),
            int(about["spill_bytes"]),
            tuple(map(str, about["remarks"])),
            float(about["seconds"]),
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    # A cubin stands behind the PTX that it was made of.
    ptx, cubin = entry.code[:ptx_bytes], entry.code[ptx_bytes:]
    with devices.on_device(device):
        try:
            module, log = load_module(cubin or ptx)
        except ReftileError:
            if not cubin:
                raise
            # A driver that cannot read a newer assembler's code reads the text.
            kind, cubin = "ptx", b""
            module, log = load_module(ptx)
        refuse_serialised(resources)
        function = Function(module, host.entry, host.shared_bytes, resources, device)
    seconds["loading"] = perf_counter() - start
    if log and cached is not None:
        _keep_cubin(kernel, target, host, ptx.decode(), cached, key)
    launcher = Launcher(host, function, device)
    return Compiled(kernel, target, ptx.decode(), host, function, launcher, kind, True, seconds)


def _keep_cubin(
    kernel: Kernel, target: str, host: HostPlan, ptx: str, cached: Cache, key: str
) -> None:
    """The driver had to assemble again: its own cache is off or full. Keep a cubin, if ptxas can.

    With `REFTILE_PTXAS=0` the entry stays text.
    """
    if os.environ.get("REFTILE_PTXAS") == "0" or ptxas.find_ptxas() is None:
        return
    try:
        code, report = ptxas.assemble(ptx, target, allow_spills=1 << 20)
    except (Bug, ReftileError):
        return
    resources = Resources(report.registers, report.spill_bytes, report.remarks, 0.0)
    data = ptx.encode()
    about = {**_about(kernel, target, "cubin", host, resources), "ptx_bytes": len(data)}
    cached.store(key, data + code, about)
