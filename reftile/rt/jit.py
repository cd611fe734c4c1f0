"""PTX into machine code by the driver's own assembler, kept in the cache, and loaded.

The assembler's remarks are read: one that says products were serialised (C75xx) makes an error,
since the kernel would run at a fraction of its speed.
"""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from reftile.ir.diagnostics import fail
from reftile.rt import driver
from reftile.rt.cache import Cache, key_of

CODE_VERSION = "1"
"""Part of every key; raised when what is stored changes its meaning."""

LOG_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Resources:
    """What the assembler says of one kernel.

    remarks: its warnings. seconds: what assembling took; 0 when found in the cache.
    """

    registers: int
    spill_bytes: int
    remarks: tuple[str, ...]
    seconds: float


def read_log(log: str) -> tuple[int, int, tuple[str, ...]]:
    """Registers, bytes spilled and remarks out of the assembler's verbose log."""
    registers = [int(n) for n in re.findall(r"[Uu]sed (\d+) registers", log)]
    spills = [int(n) for n in re.findall(r"(\d+) bytes spill stores", log)]
    remarks = [
        line.strip() for line in log.splitlines() if re.search(r"\bC75\d\d\b|[Ww]arning", line)
    ]
    return max(registers, default=0), sum(spills), tuple(remarks)


class Function:
    """A loaded kernel. Keeps its module loaded for as long as it lives."""

    def __init__(self, code: bytes, entry: str, shared_bytes: int, resources: Resources) -> None:
        # The image must end in a zero byte when it is text, and costs nothing when it is not.
        self._image = ctypes.create_string_buffer(code, len(code) + 1)
        self._module = driver.call(
            "loading the kernel", "cuModuleLoadData", ctypes.addressof(self._image)
        )
        self.handle: Any = driver.call(
            f"finding `{entry}`", "cuModuleGetFunction", self._module, entry.encode()
        )
        self.entry, self.shared_bytes, self.resources = entry, shared_bytes, resources
        if shared_bytes > 48 << 10:
            bindings = driver.bindings()
            which = bindings.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            driver.call(
                f"asking for {shared_bytes} bytes of shared memory",
                "cuFuncSetAttribute",
                self.handle,
                which,
                shared_bytes,
            )

    def resident_clusters(self, threads: int) -> int:
        """Blocks of this kernel that one multiprocessor holds at once."""
        return int(
            driver.call(
                "asking for the occupancy",
                "cuOccupancyMaxActiveBlocksPerMultiprocessor",
                self.handle,
                threads,
                self.shared_bytes,
            )
        )


def load(ptx: str, entry: str, shared_bytes: int, cache: Cache | None, device: int = 0) -> Function:
    """Assemble PTX, or find it in the cache, and load it.

    cache: None assembles afresh and keeps nothing.

    Raises:
        ReftileError: no driver, the PTX is refused (`cuda.ptx`), or products were serialised
            (`cuda.serialised`).
    """
    driver.ensure_context(device)
    version = driver.call("asking the driver for its version", "cuDriverGetVersion")
    key = key_of(CODE_VERSION, ptx, driver.target(device), version)
    entry_found = cache.find(key) if cache is not None else None
    if entry_found is not None:
        about = entry_found.about
        remarks = tuple(about["remarks"])
        resources = Resources(about["registers"], about["spill_bytes"], remarks, 0.0)
        return Function(entry_found.code, entry, shared_bytes, resources)
    code, resources = assemble(ptx)
    refuse_serialised(resources)
    if cache is not None:
        about = {
            "entry": entry,
            "registers": resources.registers,
            "spill_bytes": resources.spill_bytes,
            "remarks": list(resources.remarks),
            "seconds": resources.seconds,
        }
        cache.store(key, code, about)
    return Function(code, entry, shared_bytes, resources)


def refuse_serialised(resources: Resources) -> None:
    """Raise if the assembler waits for every product before it starts the next."""
    serialised = [r for r in resources.remarks if re.search(r"\bC75\d\d\b", r)]
    if serialised:
        raise fail("cuda.serialised", f"the assembler serialised products: {serialised[0]}")


def assemble(ptx: str) -> tuple[bytes, Resources]:
    """Assemble PTX for the current device by the driver; return machine code and what was said."""
    bindings = driver.bindings()
    option = bindings.CUjit_option
    information, errors = bytearray(LOG_BYTES), bytearray(LOG_BYTES)
    options = {
        option.CU_JIT_INFO_LOG_BUFFER: information,
        option.CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES: LOG_BYTES,
        option.CU_JIT_ERROR_LOG_BUFFER: errors,
        option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES: LOG_BYTES,
        option.CU_JIT_LOG_VERBOSE: 1,
    }
    start = perf_counter()
    state = driver.call(
        "starting the assembler",
        "cuLinkCreate",
        len(options),
        list(options),
        list(options.values()),
    )
    try:
        text = ptx.encode() + b"\0"
        kind = bindings.CUjitInputType.CU_JIT_INPUT_PTX
        status = bindings.cuLinkAddData(state, kind, text, len(text), b"kernel.ptx", 0, [], [])
        if status[0] != bindings.CUresult.CUDA_SUCCESS:
            raise _refused(errors)
        status = bindings.cuLinkComplete(state)
        if status[0] != bindings.CUresult.CUDA_SUCCESS:
            raise _refused(errors)
        code = ctypes.string_at(int(status[1]), int(status[2]))
    finally:
        bindings.cuLinkDestroy(state)
    registers, spills, remarks = read_log(_text(information))
    return code, Resources(registers, spills, remarks, perf_counter() - start)


def _text(log: bytearray) -> str:
    return log.split(b"\0", 1)[0].decode(errors="replace")


def _refused(errors: bytearray) -> Exception:
    lines = _text(errors).strip().splitlines()
    return fail(
        "cuda.ptx",
        f"the driver's assembler refused the PTX: {lines[0] if lines else 'no message'}",
        hint="this is a fault of reftile, or the driver is too old for the target",
    )
