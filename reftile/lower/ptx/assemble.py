"""Assemble PTX with ptxas, and read what it says.

ptxas comes with the package nvidia-cuda-nvcc (extra `ptxas`), else from the PATH. Where there is
neither, the driver assembles when a kernel is loaded; its log has the same lines.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from reftile.ir.diagnostics import Bug, Diagnosis, ReftileError


@dataclass(frozen=True, slots=True)
class Report:
    """What the assembler says of one kernel.

    registers: what a thread enters with or uses, as ptxas counts. spill_bytes: stores and loads of
    registers that did not fit, together. remarks: lines with codes C75xx, about products that it
    had to serialise or budgets that it ignores. log: everything. ptx: the text that was assembled.
    """

    registers: int
    spill_bytes: int
    shared_bytes: int
    barriers: int
    remarks: tuple[str, ...]
    log: str
    ptx: str = ""


def find_ptxas() -> Path | None:
    """The assembler: that of the package first, then that on the PATH."""
    spec = find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec is not None else ():
        for path in sorted(Path(folder).glob("*/bin/ptxas")):
            return path
    found = shutil.which("ptxas")
    return Path(found) if found else None


def read_log(log: str) -> Report:
    """Read the figures off what ptxas -v, or the driver's log, says."""

    def number(pattern: str) -> int:
        return sum(int(n) for n in re.findall(pattern, log))

    remarks = tuple(line.strip() for line in log.splitlines() if re.search(r"\bC75\d\d\b", line))
    return Report(
        registers=max((int(n) for n in re.findall(r"Used (\d+) registers", log)), default=0),
        spill_bytes=number(r"(\d+) bytes spill stores") + number(r"(\d+) bytes spill loads"),
        shared_bytes=number(r"(\d+) bytes smem"),
        barriers=max((int(n) for n in re.findall(r"used (\d+) barriers", log)), default=0),
        remarks=remarks,
        log=log,
    )


def with_known_entry(ptx: str, remarks: Sequence[str]) -> str | None:
    """The text with the limit that tells ptxas how many registers a thread enters with, if it asks.

    Where a kernel needs many it finds out by itself, and its code for attention that hides keys is
    2 to 4 % faster then (H200); so the limit is not always there.
    """
    limit = ".minnctapersm 1"
    if limit in ptx or not any("register count at entry" in remark for remark in remarks):
        return None
    return re.sub(r"^\.reqntid .*$", rf"\g<0>\n{limit}", ptx, count=1, flags=re.M)


def assemble(ptx: str, target: str, allow_spills: int = 0) -> tuple[bytes, Report]:
    """Return machine code (a cubin) and the report; the text may get a limit more.

    Raises:
        Bug: ptxas refuses the text, or remarks C75xx: the text is ours.
        ReftileError: the kernel spills more than `allow_spills` bytes: the program asks for too
        many registers.
    """
    ptxas = find_ptxas()
    if ptxas is None:
        raise ReftileError(
            Diagnosis(
                "ptx.no_assembler",
                "there is no ptxas",
                hint="pip install nvidia-cuda-nvcc, or let the driver assemble",
            )
        )
    with tempfile.TemporaryDirectory() as folder:
        source, result = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        source.write_text(ptx, encoding="utf-8")
        command = [str(ptxas), f"-arch={target}", "-v", str(source), "-o", str(result)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        log = done.stdout + done.stderr
        if done.returncode:
            raise Bug(f"ptxas refuses the text:\n{log}", "ptx.assemble", ptx)
        code = result.read_bytes()
    report = replace(read_log(log), ptx=ptx)
    asked_for = with_known_entry(ptx, report.remarks)
    if asked_for is not None:
        return assemble(asked_for, target, allow_spills)
    if report.remarks:
        raise Bug("\n".join(("ptxas remarks:", *report.remarks)), "ptx.assemble", ptx)
    if report.spill_bytes > allow_spills:
        raise ReftileError(
            Diagnosis(
                "ptx.spills",
                f"{report.spill_bytes} bytes of registers are spilled, {allow_spills} are allowed",
                hint="use smaller tiles, or give the role more registers",
            )
        )
    return code, report
