"""`reftile import` and `reftile export`: CUDA Tile IR bytecode."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from reftile.cli.inputs import bad, load_module, read_bytes, split_name
from reftile.cli.output import FOUND, Exit, Output, print_diagnosis
from reftile.cli.run import Request, load, progress_bar
from reftile.interop.read import read_bytecode
from reftile.interop.versions import parse_version, version_text
from reftile.interop.write import oldest_version, write_bytecode
from reftile.ir.core import Module
from reftile.ir.diagnostics import Diagnosis, ReftileError, ReftileErrors
from reftile.ir.print import show

if TYPE_CHECKING:
    from rich.console import Console

SUFFIXES = ("*.tilebc", "*.tileirbc")
"""The files of a folder that `import --check` reads."""


def import_file(output: Output, paths: list[Path], target: Path | None) -> None:
    """Print or write the text form of a bytecode file."""
    if len(paths) != 1:
        raise bad(f"{len(paths)} files to print", "name one, or use --check")
    path = paths[0]
    text = show(read_bytecode(read_bytes(path), str(path)))
    if target is None:
        output.result({"text": text}, lambda console: print(text, end=""))
        return
    _write(target, text.encode())
    output.result({"file": str(target)}, lambda console: console.print(f"wrote {target}"))


def check_files(output: Output, paths: list[Path]) -> None:
    """Read and verify bytecode files, and those in folders.

    Raises:
        Exit: with code 1, after printing what is wrong.
    """
    files = list(_files(paths))
    findings: list[Diagnosis] = []
    failed = kernels = 0
    with progress_bar("import") as progress:
        for i, path in enumerate(files):
            try:
                kernels += len(read_bytecode(read_bytes(path), str(path)).kernels)
            except ReftileErrors as error:
                failed += 1
                note = (f"in {path}", None)
                findings += [_noted(d, note) for d in error.diagnoses]
            except ReftileError as error:
                failed += 1
                findings.append(error.diagnosis)
            if progress is not None:
                progress(i + 1, len(files))
    data: dict[str, object] = {
        "files": len(files),
        "kernels": kernels,
        "failed": failed,
        "findings": [d.to_json() for d in findings],
    }

    def render(console: Console) -> None:
        for finding in findings:
            print_diagnosis(console, finding)
        console.print(f"{len(files)} files, {kernels} kernels, {failed} files with findings")

    output.result(data, render)
    if failed:
        raise Exit(FOUND)


def _noted(diagnosis: Diagnosis, note: tuple[str, None]) -> Diagnosis:
    return Diagnosis(
        diagnosis.rule,
        diagnosis.message,
        diagnosis.span,
        diagnosis.hint,
        (*diagnosis.notes, note),
        diagnosis.severity,
        diagnosis.data,
    )


def _files(paths: list[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from sorted(p for suffix in SUFFIXES for p in path.rglob(suffix))
        else:
            yield path


def export(output: Output, request: Request, version: str, target: Path) -> None:
    """Write a kernel or module as bytecode; without a version, in the oldest that can hold it."""
    module = _module(request)
    number = parse_version(version) if version else oldest_version(module)
    data = write_bytecode(module, number)
    _write(target, data)
    found: dict[str, object] = {
        "file": str(target),
        "version": version_text(number),
        "bytes": len(data),
        "kernels": [k.name for k in module.kernels],
    }
    text = f"wrote {target}: Tile IR {version_text(number)}, {len(data)} bytes"
    output.result(found, lambda console: console.print(text))


def _module(request: Request) -> Module:
    path, name = split_name(request.where)
    if path.suffix == ".py":
        loaded = load(request)
        return Module([loaded.kernel(loaded.values)[0]])
    module = load_module(path)
    if name:
        kept = [k for k in module.kernels if k.name == name]
        if not kept:
            raise bad(f"{path} holds no kernel `{name}`")
        return Module(kept, module.globals, module.name)
    return module


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise bad(f"{path}: {error.strerror or error}") from None
