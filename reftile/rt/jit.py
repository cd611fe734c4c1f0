"""PTX into a loaded kernel by the driver's own assembler.

The assembler's remarks are read: one that says products were serialised or a register budget was
ignored (C75xx) makes an error, since the kernel would run at a fraction of its speed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from time import perf_counter, time_ns
from typing import Any

from reftile.ir.diagnostics import fail
from reftile.lower.ptx.assemble import with_known_entry
from reftile.rt import devices, driver

LOG_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Resources:
    """What the assembler says of one kernel.

    registers: 0 if the driver did not say. remarks: its warnings. seconds: what loading took.
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
    """A loaded kernel. Keeps its module loaded for as long as it lives.

    ptx: the text that it was assembled of, if the driver did.
    """

    def __init__(
        self,
        module: Any,
        entry: str,
        shared_bytes: int,
        resources: Resources,
        device: int = 0,
        ptx: str = "",
    ) -> None:
        self._module = module
        self.handle: Any = driver.call(
            f"finding `{entry}`", "cuModuleGetFunction", module, entry.encode()
        )
        self.entry, self.shared_bytes, self.resources = entry, shared_bytes, resources
        self.device, self.ptx = device, ptx
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

    def blocks_per_multiprocessor(self, threads: int) -> int:
        """How many blocks of this kernel the driver says a multiprocessor holds at a time."""
        with devices.on_device(self.device):
            found = driver.call(
                "asking for the occupancy",
                "cuOccupancyMaxActiveBlocksPerMultiprocessor",
                self.handle,
                threads,
                self.shared_bytes,
            )
        return int(found)


def load(ptx: str, entry: str, shared_bytes: int, device: int = 0) -> Function:
    """Assemble and load PTX with the driver; the text may get a limit more.

    Raises:
        ReftileError: no driver, the PTX is refused (`cuda.ptx`), or a remark means that the kernel
            would crawl (`cuda.serialised`).
    """
    with devices.on_device(device):
        start = perf_counter()
        module, log = load_module(ptx.encode())
        seconds = perf_counter() - start
        if not log:
            # The driver had it in its own cache; a comment it has not seen makes it speak again.
            log = load_module(f"{ptx}// {time_ns()}\n".encode())[1]
        registers, spills, remarks = read_log(log)
        asked_for = with_known_entry(ptx, remarks)
        if asked_for is not None:
            return load(asked_for, entry, shared_bytes, device)
        resources = Resources(registers, spills, remarks, seconds)
        refuse_serialised(resources)
        return Function(module, entry, shared_bytes, resources, device, ptx)


def refuse_serialised(resources: Resources) -> None:
    """Raise on a remark that means the kernel would run at a fraction of its speed."""
    serialised = [r for r in resources.remarks if re.search(r"\bC75\d\d\b", r)]
    if serialised:
        raise fail("cuda.serialised", f"the assembler objects: {serialised[0]}")


def load_module(code: bytes) -> tuple[Any, str]:
    """Load PTX or a cubin into the current context; return the module and the assembler's log.

    The log is empty when nothing was assembled: it is a cubin, or the driver had the machine code
    in its own cache.
    """
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
    status = bindings.cuModuleLoadDataEx(
        code + b"\0", len(options), list(options), list(options.values())
    )
    if status[0] != bindings.CUresult.CUDA_SUCCESS:
        if _text(errors):
            raise _refused(errors)
        raise driver.error_of(bindings, status[0], "loading the kernel")
    return status[1], _text(information)


def _text(log: bytearray) -> str:
    return log.split(b"\0", 1)[0].decode(errors="replace")


def _refused(errors: bytearray) -> Exception:
    lines = _text(errors).strip().splitlines()
    return fail(
        "cuda.ptx",
        f"the driver's assembler refused the PTX: {lines[0] if lines else 'no message'}",
        hint="this is a fault of reftile, or the driver is too old for the target",
    )
