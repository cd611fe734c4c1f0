"""The language of kernels: Python functions on tiles, traced into the tile IR.

`import reftile.lang as ct` gives the names that cuTile Python has, and some of our own; they are
listed in `reftile.lang.language` and loaded when the first of them is used.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reftile.lang.language import *  # noqa: F403


def __getattr__(name: str) -> object:
    if name.startswith("__") and name != "__all__":
        raise AttributeError(name)
    if find_spec(f"{__name__}.{name}") is not None:
        # `from reftile.lang import arithmetic` asks here first, while modules are half loaded.
        return import_module(f"{__name__}.{name}")
    try:
        value = getattr(import_module(f"{__name__}.language"), name)
    except AttributeError:
        raise AttributeError(f"the language has no name `{name}`") from None
    globals()[name] = value  # the next time, this function is not asked
    return value


def __dir__() -> list[str]:
    return list(import_module(f"{__name__}.language").__all__)
