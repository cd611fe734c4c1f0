"""From the text of a program to machine code, by way of Tile IR bytecode."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from reftile.conformance.backend import Unsupported, valid_module

from reftile.interop.write import oldest_version, write_bytecode
from reftile.ir.core import Module
from reftile.ir.diagnostics import ReftileError, fail
from reftile.rt.cache import default_folder

LONGEST = 120.0
"""Seconds that one program may take to compile; most take a fifth of one."""


@dataclass(frozen=True)
class Target:
    """What to compile for: a name that `tileiras --gpu-name` takes, and its `-O` level."""

    gpu: str = "sm_90"
    opt: int = 3


OPT_LEVELS = range(4)


def check_target(target: Target) -> None:
    """Refuse what `tileiras` has no code for.

    Raises:
        ReftileError: `tileiras.target`.
    """
    names = target_names()
    if target.gpu not in names:
        hint = f"one of {', '.join(names)}"
        raise fail("tileiras.target", f"tileiras does not compile for `{target.gpu}`", hint=hint)
    if target.opt not in OPT_LEVELS:
        raise fail("tileiras.target", f"the levels of tileiras are 0 to 3, found {target.opt}")


@cache
def target_names() -> tuple[str, ...]:
    """The GPUs that the compiler says it knows."""
    done = subprocess.run([find_tileiras(), "--help"], capture_output=True, text=True)
    return tuple(dict.fromkeys(re.findall(r"=(sm_\d+\w?)", done.stdout)))


@dataclass(frozen=True)
class Compiled:
    """Machine code (an ELF image), or why there is none."""

    cubin: bytes = b""
    refused: str = ""


@cache
def find_tileiras() -> Path:
    """The compiler: on the path, or that of the package nvidia-cuda-tileiras.

    Raises:
        ReftileError: `tileiras.missing`.
    """
    on_path = shutil.which("tileiras")
    if on_path:
        return Path(on_path)
    for folder in sys.path:
        for found in sorted(Path(folder).glob("nvidia/cu*/bin/tileiras")):
            return found
    raise fail(
        "tileiras.missing",
        "NVIDIA's compiler `tileiras` is not installed",
        hint="pip install nvidia-cuda-tileiras, or give a bundle: --backend tileiras:FILE",
    )


@cache
def tileiras_version() -> str:
    """The compiler's version, such as `13.5.37`."""
    done = subprocess.run([find_tileiras(), "--version"], capture_output=True, text=True)
    found = re.search(r"V?(\d+\.\d+\.\d+)", done.stdout)
    return found.group(1) if found else "unknown"


def to_bytecode(text: str, kernel: str) -> bytes:
    """The program as bytecode, in the oldest version that can hold it.

    Raises:
        Diagnosed: the program is not valid. Unsupported: Tile IR cannot say it.
    """
    return module_to_bytecode(_alone(valid_module(text, kernel), kernel))


def module_to_bytecode(module: Module) -> bytes:
    """A module as bytecode, in the oldest version that can hold it.

    Raises:
        Unsupported: Tile IR cannot say it.
    """
    try:
        return write_bytecode(module, oldest_version(module))
    except ReftileError as error:
        raise Unsupported(f"Tile IR: {error.diagnosis.message}") from None


def _alone(module: Module, kernel: str) -> Module:
    if len(module.kernels) == 1:
        return module
    return Module([k for k in module.kernels if k.name == kernel], module.globals, module.name)


@cache
def environment() -> dict[str, str]:
    """What `tileiras` runs in: beside an assembler of its own, no other toolkit is named.

    It asks CUDA_HOME, CUDA_PATH and CUDA_ROOT first, and an older ptxas refuses its code.
    """
    own = find_tileiras().resolve().parent
    if not (own / "ptxas").exists():
        return dict(os.environ)
    kept = {k: v for k, v in os.environ.items() if k not in ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT")}
    return kept | {"PATH": os.pathsep.join((str(own), kept.get("PATH", "")))}


EMPTY = "tile kernel @empty() {\n  return\n}\n"


@cache
def check_tileiras(target: Target) -> None:
    """See that the compiler works here at all, so that a refusal says something of a program.

    Raises:
        ReftileError: `tileiras.broken`: it refuses a kernel that does nothing.
    """
    found = _run(to_bytecode(EMPTY, "empty"), target)
    if not found.cubin:
        raise fail(
            "tileiras.broken",
            f"`tileiras` does not compile an empty kernel for {target.gpu}: {found.refused}",
            hint="it needs ptxas of its own version: pip install nvidia-cuda-tileiras",
        )


def compile_bytecode(bytecode: bytes, target: Target) -> Compiled:
    """Run `tileiras`; what it does not compile, and why, is an answer too.

    Raises:
        ReftileError: `tileiras.broken`: it compiles nothing here.
    """
    check_tileiras(target)
    return _run(bytecode, target)


def _run(bytecode: bytes, target: Target) -> Compiled:
    with tempfile.TemporaryDirectory(prefix="reftile-tileiras-") as folder:
        source, image = Path(folder) / "program.tilebc", Path(folder) / "program.cubin"
        source.write_bytes(bytecode)
        command = [find_tileiras(), "--gpu-name", target.gpu, f"-O{target.opt}"]
        try:
            # A session of its own: Ctrl-C ends the run, and is no crash of the compiler.
            done = subprocess.run(
                [*command, source, "-o", image],
                capture_output=True,
                text=True,
                timeout=LONGEST,
                start_new_session=True,
                env=environment(),
            )
        except subprocess.TimeoutExpired:
            return Compiled(refused=f"tileiras did not end within {LONGEST:.0f} s")
        if done.returncode == 0 and image.exists():
            return Compiled(image.read_bytes())
        return Compiled(refused=_reason(done.returncode, done.stderr or done.stdout))


def compile_once(bytecode: bytes, target: Target) -> Compiled:
    """As `compile_bytecode`, which is not asked again for what the disk keeps.

    `REFTILE_CACHE` names another folder than the user's; one that cannot be written keeps nothing.
    """
    key = hashlib.sha256(bytecode).hexdigest()
    folder = default_folder() / f"tileiras-{tileiras_version()}-{target.gpu}-O{target.opt}"
    image, refusal = folder / f"{key}.cubin", folder / f"{key}.refused"
    with suppress(OSError):
        return Compiled(image.read_bytes())
    with suppress(OSError):
        return Compiled(refused=refusal.read_text("utf-8"))
    found = compile_bytecode(bytecode, target)
    place, data = (image, found.cubin) if found.cubin else (refusal, found.refused.encode())
    part = folder / f".{place.name}.{os.getpid()}"
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        part.write_bytes(data)
        part.replace(place)
    return found


def _reason(status: int, said: str) -> str:
    """The first thing that the compiler said; a crash is said to be one."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    first = next((line for line in lines if "error" in line), lines[0] if lines else "")
    first = re.sub(r"^.*?error: (error at offset \d+: )?", "", first)
    how = f"tileiras crashed (signal {-status})" if status < 0 else "tileiras"
    return f"{how}: {first or f'exit status {status}'}"
