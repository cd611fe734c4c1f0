"""The BLAS that scipy brings: the addresses of its functions, and how many threads it uses."""

from __future__ import annotations

import ctypes
import os
import threading
from functools import cache
from importlib import import_module
from typing import Any


@cache
def blas_address(name: str) -> int:
    """The address of a function of the BLAS that scipy brings, or 0 without a scipy that works."""
    try:
        module: Any = import_module("scipy.linalg.cython_blas")
    except ImportError:
        return 0
    capsule = module.__pyx_capi__[name]
    api: Any = ctypes.pythonapi
    api.PyCapsule_GetName.restype, api.PyCapsule_GetName.argtypes = (
        ctypes.c_char_p,
        [ctypes.py_object],
    )
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    return int(api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule)))


class _BlasThreads:
    """One thread for BLAS while launches run that call it on threads of their own."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.depth = 0
        self.before = 1
        self.functions: tuple[Any, Any] | None = None

    def __enter__(self) -> None:
        with self.lock:
            self.depth += 1
            if self.depth == 1:
                get, put = self._functions()
                self.before = get()
                if self.before != 1:
                    put(1)

    def __exit__(self, *error: object) -> None:
        with self.lock:
            self.depth -= 1
            if self.depth == 0 and self.before != 1:
                self._functions()[1](self.before)

    def begin_child(self) -> None:
        """In a forked process, where no launch runs."""
        if self.depth and self.before != 1:
            self._functions()[1](self.before)
        self.depth = 0
        self.lock.release()

    def _functions(self) -> tuple[Any, Any]:
        if self.functions is None:
            self.functions = _find_thread_functions()
        return self.functions


def _find_thread_functions() -> tuple[Any, Any]:
    """How many threads scipy's OpenBLAS uses, and the function that sets it."""
    blas_address("sgemm")
    for path in _loaded_libraries():
        # The wheel of NumPy brings an OpenBLAS of its own, which is left alone.
        if "openblas" not in path or "numpy.libs" in path:
            continue
        library = ctypes.CDLL(path)
        for prefix in ("scipy_openblas", "openblas"):
            for suffix in ("", "64_"):
                put = getattr(library, f"{prefix}_set_num_threads{suffix}", None)
                get = getattr(library, f"{prefix}_get_num_threads{suffix}", None)
                if put is not None and get is not None:
                    return get, put
    return (lambda: 1), (lambda count: None)  # type: ignore[misc]


def _loaded_libraries() -> list[str]:
    try:
        with open("/proc/self/maps") as maps:
            return sorted({line.split()[-1] for line in maps if ".so" in line})
    except OSError:
        return []


_blas_threads = _BlasThreads()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_blas_threads.lock.acquire,
        after_in_parent=_blas_threads.lock.release,
        after_in_child=_blas_threads.begin_child,
    )


def one_blas_thread() -> _BlasThreads:
    """While this is entered, scipy's OpenBLAS runs on the threads that call it."""
    return _blas_threads
