"""`reftile show`: a kernel as text, at any level, after any pass."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from reftile.cli.inputs import bad, split_name
from reftile.cli.output import Output
from reftile.cli.run import Request, load
from reftile.ir.core import Kernel
from reftile.ir.diagnostics import fail
from reftile.ir.passes import PassRun
from reftile.ir.print import show
from reftile.ir.targets import TARGETS
from reftile.ir.verify import verify
from reftile.lower.clone import clone_kernel
from reftile.lower.cpu.emit import generate
from reftile.lower.disassemble import disassemble
from reftile.lower.pipeline import PIPE_TO_SIMT, Lowered, lower
from reftile.lower.ptx.assemble import assemble, find_ptxas

if TYPE_CHECKING:
    from rich.console import Console

LEVELS = ("tile", "pipe", "simt", "ptx", "sass", "cpu")
PASSES = tuple(p.__name__ for p in PIPE_TO_SIMT)


@dataclass(frozen=True, slots=True)
class Wish:
    """What to show: a level, the pass to stop after, another target, a plan."""

    level: str = ""
    after: str = ""
    target: str = ""
    plan: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Shown:
    """A text, and what was done to get it."""

    kernel: str
    level: str
    target: str
    text: str
    passes: tuple[PassRun, ...] = ()


def run(output: Output, request: Request, wish: Wish) -> None:
    """Print a kernel; the passes that ran go to stderr with their times."""
    path, _ = split_name(request.where)
    _check(wish)
    loaded = load(request, path.suffix == ".py", wish.target)
    kernel, _ = loaded.kernel(loaded.values)
    if not wish.after and wish.level in ("", kernel.level) and not wish.target:
        found = Shown(kernel.name, kernel.level, _target_of(kernel), loaded.text())
    else:
        found = _lowered(retarget(kernel, wish.target), wish)
    data: dict[str, object] = {
        "kernel": found.kernel,
        "level": found.level,
        "target": found.target,
        "text": found.text,
        "passes": [
            {"name": p.name, "ms": 1e3 * p.seconds, "verify_ms": 1e3 * p.verify_seconds}
            for p in found.passes
        ],
    }

    def render(console: Console) -> None:
        sys.stdout.write(found.text)
        sys.stdout.flush()
        for done in found.passes:
            print(
                f"{done.name:16} {1e3 * done.seconds:7.1f} ms, "
                f"verified in {1e3 * done.verify_seconds:.1f} ms",
                file=sys.stderr,
            )

    output.result(data, render)


def _check(wish: Wish) -> None:
    if wish.level and wish.level not in LEVELS:
        raise bad(f"there is no level `{wish.level}`", f"one of {', '.join(LEVELS)}")
    if wish.after and wish.after not in PASSES:
        raise bad(f"there is no pass `{wish.after}`", f"one of {', '.join(PASSES)}")
    if wish.plan:
        raise bad(
            "no pass takes a plan yet", "a pipe kernel holds the decisions: stages, roles, engines"
        )


def _target_of(kernel: Kernel) -> str:
    return str(kernel.attributes.get("target", ""))


def retarget(kernel: Kernel, target: str) -> Kernel:
    """The kernel for another target whose operations are the same; "" leaves it as it is.

    Raises:
        ReftileError: there is no such target, or it has other operations.
    """
    own = _target_of(kernel)
    if not target or target == own:
        return kernel
    if target not in TARGETS:
        raise bad(f"there is no target `{target}`", f"one of {', '.join(TARGETS)}")
    if kernel.level != "pipe":
        raise bad(f"a {kernel.level} kernel names no target", "only pipe kernels are lowered")
    if own not in TARGETS or TARGETS[target].instructions != TARGETS[own].instructions:
        alike = [name for name in TARGETS if _same(name, own)]
        raise fail(
            "show.target",
            f"`{kernel.name}` is written for {own}, whose operations {target} does not have",
            kernel.span,
            f"it can be shown for {', '.join(alike)}" if alike else "",
        )
    return replace(clone_kernel(kernel), attributes={**kernel.attributes, "target": target})


def _same(name: str, own: str) -> bool:
    return own in TARGETS and TARGETS[name].instructions == TARGETS[own].instructions


def _lowered(kernel: Kernel, wish: Wish) -> Shown:
    level, target = wish.level or "simt", _target_of(kernel)
    if kernel.level == level and not wish.after:
        return Shown(kernel.name, level, target, show(kernel))
    if level == "cpu" and not wish.after:
        verify(kernel)
        return Shown(kernel.name, level, "cpu", generate(kernel).source)
    if kernel.level != "pipe":
        raise fail(
            "show.level",
            f"nothing makes {level} of the {kernel.level} kernel `{kernel.name}` yet",
            kernel.span,
            "pipe kernels are lowered; a tile kernel is shown as `tile`"
            if kernel.level == "tile"
            else "",
        )
    if level == "tile":
        raise fail("show.level", f"`{kernel.name}` is a pipe kernel: nothing makes tile of it")
    verify(kernel)
    found = lower(clone_kernel(kernel), target, keep_text=True)
    runs = tuple(found.passes.runs)
    if wish.after:
        kept = runs[: [r.name for r in runs].index(wish.after) + 1]
        text = kept[-1].text
        left = text.partition(" kernel")[0].split()[-1]
        if wish.level not in ("", left):
            raise bad(f"`{wish.after}` leaves {left}, not {wish.level}", "leave out --level")
        return Shown(kernel.name, left, target, text, kept)
    if level == "simt":
        return Shown(kernel.name, level, target, runs[-1].text, runs)
    text = found.ptx if level == "ptx" else machine_code(found, target)
    return Shown(kernel.name, level, target, text, runs)


def machine_code(found: Lowered, target: str) -> str:
    """What ptxas makes of a kernel, as nvdisasm writes it.

    Raises:
        ReftileError: one of the two is not installed.
    """
    if find_ptxas() is None:
        raise fail("sass.no_assembler", "there is no ptxas", hint="pip install 'reftile[ptxas]'")
    code, _ = assemble(found.ptx, target, allow_spills=1 << 20)
    return disassemble(code)
