"""`reftile explain`: what a kernel becomes and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from reftile.cli.inputs import split_name
from reftile.cli.output import Output
from reftile.cli.run import Request, load
from reftile.cli.show import retarget
from reftile.ir.pipe_rules import REGISTERS
from reftile.lower.explain.examine import explain_kernel
from reftile.lower.explain.facts import Explanation, Role, Shared, Step

if TYPE_CHECKING:
    from rich.console import Console


def run(output: Output, request: Request, target: str) -> None:
    """Print the explanation of a pipe kernel."""
    path, _ = split_name(request.where)
    loaded = load(request, path.suffix == ".py", target)
    kernel, _ = loaded.kernel(loaded.values)
    found = explain_kernel(retarget(kernel, target))

    def render(console: Console) -> None:
        for line in lines_of(found):
            console.print(line, markup=False)

    output.result(found.to_json(), render)


def lines_of(found: Explanation) -> Iterator[str]:
    """The explanation as text."""
    extents = "x".join(map(str, found.cluster))
    head = f"{found.kernel} for {found.target} ({found.place})"
    yield f"{head}: {found.warps} warps, cluster {extents}"
    yield ""
    yield "launch"
    yield from (f"  {text}" for text in found.launch)
    yield ""
    yield "roles"
    for role in found.roles:
        last = role.first_warp + role.warps * role.replicas - 1
        budget = f", {role.registers} registers a thread" if role.registers else ""
        replicas = f"{role.replicas} x " if role.replicas > 1 else ""
        yield (
            f"  {role.label}: warps {role.first_warp}-{last} ({replicas}{role.warps} warps)"
            f"{budget}  [{role.place}]"
        )
    yield ""
    yield "registers"
    yield from _registers(found)
    yield ""
    yield "shared memory"
    yield from (_shared(row) for row in found.shared)
    total = " + ".join(str(row.bytes + row.padding) for row in found.shared) or "0"
    share = f"{100 * found.shared_bytes / found.shared_limit:.1f} %"
    yield f"  {total} = {found.shared_bytes} of {found.shared_limit} bytes ({share})"
    yield ""
    yield from _occupancy(found)
    if found.rings:
        yield "stages"
        for ring in found.rings:
            yield f"  %{ring.name}: {ring.stages} of {ring.buffer}  [{ring.place}]"
        yield ""
    for kind, title in (("copy", "copies"), ("product", "products")):
        steps = [step for step in found.steps if step.kind == kind]
        if steps:
            yield title
            for step in steps:
                yield from _step(step)
            yield ""
    if found.barriers:
        yield "barriers"
        for meeting in found.barriers:
            head = f"  %{meeting.name}: {meeting.count} x {meeting.kind}"
            yield f"{head}; {meeting.who}  [{meeting.place}]"
        yield ""
    if found.conditions:
        yield "a launch needs"
        yield from (f"  {text}" for text in found.conditions)


def _registers(found: Explanation) -> Iterator[str]:
    budgets: list[Role] = [role for role in found.roles if role.registers]
    if budgets:
        total = sum(role.threads * (role.registers or 0) for role in budgets)
        terms = " + ".join(f"{role.threads} x {role.registers}" for role in budgets)
        yield f"  {terms} = {total} of {REGISTERS}"
    if found.registers:
        yield f"  a thread enters with {found.registers} ({found.registers_from})"
    else:
        yield f"  what a thread takes is {found.registers_from}"
    if found.spill_bytes is not None:
        yield f"  {found.spill_bytes} bytes spilled"


def _shared(row: Shared) -> str:
    padding = f" behind {row.padding} to align" if row.padding else ""
    each = f"{row.count} x {row.bytes_each} = " if row.count > 1 else ""
    return f"  {row.offset:7}  %{row.name}: {each}{row.bytes}{padding}  [{row.place}]"


def _occupancy(found: Explanation) -> Iterator[str]:
    if found.blocks is None:
        return
    yield f"occupancy: {found.blocks} block(s) on a multiprocessor, limited by {found.limiter}"
    for limit in found.occupancy:
        yield f"  {limit.resource}: {limit.blocks} = {limit.sum}"
    yield ""


def _step(step: Step) -> Iterator[str]:
    size = f", {step.bytes} bytes" if step.bytes else ""
    yield f"  {step.op} {step.what}{size}, by {step.role}  [{step.place}]"
    yield f"    {step.engine}: {step.reason}"
    for name, count in step.instructions:
        yield f"    {count} x {name}"
