"""What was compiled, in one file that can be taken to another machine.

A zip archive: `manifest.json` says for which target, by which compiler, and what was refused and
why; beside it lies the machine code of each program, named by the SHA-256 of its bytecode.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from reftile.conformance.tileiras.compiler import Compiled, Target

from reftile.ir.diagnostics import fail

MANIFEST = "manifest.json"
KIND = "reftile-tileiras-bundle"


def key_of(bytecode: bytes) -> str:
    """The name of a program in a bundle."""
    return hashlib.sha256(bytecode).hexdigest()


@dataclass
class Bundle:
    """Programs by the key of their bytecode. tileiras: the version of the compiler."""

    target: Target
    tileiras: str = ""
    programs: dict[str, Compiled] = field(default_factory=dict)

    def find(self, bytecode: bytes) -> Compiled | None:
        """What became of a program; None if it is not in the bundle."""
        return self.programs.get(key_of(bytecode))

    def add(self, bytecode: bytes, compiled: Compiled) -> None:
        """Keep what became of a program."""
        self.programs[key_of(bytecode)] = compiled

    def write(self, path: Path) -> None:
        """Write the file; the old one stays whole until the new one is complete.

        Raises:
            ReftileError: `tileiras.bundle`: the file cannot be written.
        """
        manifest: dict[str, Any] = {
            "kind": KIND,
            "target": asdict(self.target),
            "tileiras": self.tileiras,
            "programs": len(self.programs),
            "refused": {k: c.refused for k, c in sorted(self.programs.items()) if c.refused},
        }
        part = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            self._write(part, manifest)
            part.replace(path)
        except OSError as error:
            raise fail("tileiras.bundle", f"{path}: {error.strerror or error}") from None

    def _write(self, part: Path, manifest: dict[str, Any]) -> None:
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(MANIFEST, json.dumps(manifest, indent=1))
            for key, compiled in sorted(self.programs.items()):
                if compiled.cubin:
                    archive.writestr(f"{key}.cubin", compiled.cubin)


def read_bundle(path: Path) -> Bundle:
    """Read a bundle.

    Raises:
        ReftileError: `tileiras.bundle`: there is no such file, or it is something else.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            manifest = json.loads(archive.read(MANIFEST))
            if manifest["kind"] != KIND:
                raise ValueError(f"its kind is {manifest['kind']!r}")
            bundle = Bundle(Target(**manifest["target"]), manifest["tileiras"])
            for key, reason in manifest["refused"].items():
                bundle.programs[key] = Compiled(refused=reason)
            for name in archive.namelist():
                if name.endswith(".cubin"):
                    bundle.programs[name.removesuffix(".cubin")] = Compiled(archive.read(name))
    except OSError as error:
        raise fail("tileiras.bundle", f"{path}: {error.strerror or error}") from None
    except (zipfile.BadZipFile, ValueError, KeyError, TypeError) as error:
        hint = "make one: reftile conformance compile bundle.zip"
        raise fail("tileiras.bundle", f"{path} is no bundle: {error}", hint=hint) from None
    return bundle
