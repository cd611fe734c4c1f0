# pyright: basic, reportAttributeAccessIssue=false, reportPrivateImportUsage=false
"""The code of functions that kernels call, kept where the one who compiles says.

numba's own cache is not used: it takes code for new until the file of the function changes, though
the code holds what other files define; two processes that write at once may leave one signature
with the code of another; and a damaged file is an error.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from numba import njit
from numba.core.caching import _Cache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps


class Shelf(Protocol):
    """Where code is kept, by names that say function, signature and processor."""

    def find(self, name: str) -> bytes | None:
        """What was put there, whole, or None."""

    def store(self, name: str, data: bytes) -> None:
        """Keep it, if that can be."""


_shelf: ContextVar[Shelf | None] = ContextVar("shelf", default=None)


@contextmanager
def kept_on(shelf: Shelf | None) -> Generator[None]:
    """What is compiled in here is looked for on a shelf, and put there."""
    token = _shelf.set(shelf)
    try:
        yield
    finally:
        _shelf.reset(token)


def kept(function: Any, **options: Any) -> Any:
    """A function that numba compiles, with the options of `njit`, and that is kept."""
    made = njit(error_model="numpy", **options)(function)
    made._cache = _Kept(function)
    return made


class _Kept(_Cache):
    """What numba asks for the code of one function."""

    def __init__(self, function: Any) -> None:
        self.name = f"{function.__module__}.{function.__qualname__}"

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        shelf = _shelf.get()
        data = shelf.find(self._key(sig, target_context)) if shelf is not None else None
        if data is None:
            return None
        target_context.refresh()
        return CompileResult._rebuild(target_context, *pickle.loads(data))

    def save_overload(self, sig: Any, data: Any) -> None:
        shelf = _shelf.get()
        if shelf is not None:
            shelf.store(self._key(sig, data.target_context), dumps(data._reduce()))

    def _key(self, sig: Any, target_context: Any) -> str:
        python = sys.version_info[:2]
        return f"{self.name} {sig} {target_context.codegen().magic_tuple()} {python}"

    @property
    def cache_path(self) -> str:
        """No folder of numba's."""
        return ""

    def enable(self) -> None:
        """It is."""

    def disable(self) -> None:
        """It is not."""

    def flush(self) -> None:
        """Nothing waits to be written."""
