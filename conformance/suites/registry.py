"""The suites by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from reftile.conformance.cases import Case
from reftile.conformance.suites import (
    atomics,
    control,
    elementwise,
    kernels,
    launches,
    matrices,
    memory,
    pointers,
    poison,
    reductions,
    small_kernels,
    structural,
    texts,
)
from reftile.conformance.suites.common import Settings

Maker = Callable[[Settings], Iterator[Case]]

SUITES: Mapping[str, tuple[Maker, ...]] = {
    "ops": (
        elementwise.cases,
        structural.cases,
        pointers.cases,
        reductions.cases,
        matrices.cases,
        memory.cases,
        atomics.cases,
        control.cases,
        launches.cases,
    ),
    "reject": (texts.rejects,),
    "trap": (texts.traps, poison.cases),
    "kernels": (kernels.cases, small_kernels.cases),
    "litmus": (),  # asked in another way: see `litmus.questions`
}


def make_cases(suite: str, settings: Settings) -> Iterator[Case]:
    """The cases of a suite.

    Raises:
        KeyError: there is no such suite; its argument says which there are.
    """
    if suite not in SUITES:
        raise KeyError(f"no suite is called `{suite}` (there are: {', '.join(SUITES)})")
    for maker in SUITES[suite]:
        yield from maker(settings)
