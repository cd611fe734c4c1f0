"""Machine code as text, by nvdisasm (package nvidia-cuda-nvdisasm, extra `ptxas`)."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path

from reftile.ir.diagnostics import fail


def find_nvdisasm() -> Path | None:
    """The disassembler: that of the package first, then that on the PATH."""
    spec = find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec is not None else ():
        for path in sorted(Path(folder).glob("*/bin/nvdisasm")):
            return path
    found = shutil.which("nvdisasm")
    return Path(found) if found else None


def disassemble(code: bytes) -> str:
    """The instructions of a cubin, one a line, with labels, without their encodings.

    Raises:
        ReftileError: there is no nvdisasm, or it does not take the code.
    """
    tool = find_nvdisasm()
    if tool is None:
        raise fail(
            "sass.no_disassembler", "there is no nvdisasm", hint="pip install 'reftile[ptxas]'"
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(code)
        command = [str(tool), "-c", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise fail("sass.refused", f"nvdisasm refuses the code: {done.stderr.strip()}")
    kept = [
        re.sub(r"^(\s*)/\*[0-9a-f]{4,}\*/\s*", r"\1", line).rstrip()
        for line in done.stdout.splitlines()
    ]
    return "\n".join(line for line in kept if line.strip()) + "\n"
