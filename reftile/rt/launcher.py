"""Launchers: a Python function generated for each kernel, all that can be ready made ready.

A launch packs the numbers into one buffer, finds or makes the tensor maps, and calls
cuLaunchKernelEx. What takes time on the host is Python itself, so the function is generated
straight-line, with no loop and no dispatch.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any

from reftile.ir.diagnostics import fail
from reftile.lower.host import HostPlan, PointerParameter, ScalarParameter, TensorMapParameter
from reftile.rt import driver
from reftile.rt.arguments import is_torch, read_array
from reftile.rt.jit import Function
from reftile.rt.tensor_map import MAP_BYTES, encode

_CODES = {
    "i1": "?", "i8": "b", "i16": "h", "i32": "i", "i64": "q", "f16": "e", "f32": "f", "f64": "d",
}  # fmt: skip
KEPT_MAPS = 4096
"""Tensor maps kept by a launcher; beyond it they are made anew."""

Launch = Callable[..., None]


class Launcher:
    """Launches one loaded kernel.

    `launcher(grid, args, stream=0)`: args are one for each argument of the kernel, device arrays
    for pointers and numbers for scalars. It returns once the launch is queued.
    """

    def __init__(self, plan: HostPlan, function: Function) -> None:
        self.plan, self.function = plan, function
        self._fields = _place(plan)
        self._buffer = ctypes.create_string_buffer(self._fields.size + 64)
        start = ctypes.addressof(self._buffer)
        self._base = start + (-start) % 64
        addresses = [self._base + offset for offset in self._fields.offsets]
        self._pointers = (ctypes.c_void_p * max(1, len(addresses)))(*addresses)
        self._config = self._make_config()
        self._launches: dict[tuple[type, ...], Launch] = {}

    def _make_config(self) -> Any:
        bindings = driver.bindings()
        config = bindings.CUlaunchConfig()
        config.gridDimX = config.gridDimY = config.gridDimZ = 1
        config.blockDimX, config.blockDimY, config.blockDimZ = self.plan.threads, 1, 1
        config.sharedMemBytes = self.plan.shared_bytes
        config.hStream = bindings.CUstream(0)
        config.numAttrs = 0
        return config

    def __call__(self, grid: Sequence[int], args: Sequence[Any], stream: int = 0) -> None:
        """Queue one launch.

        Raises:
            ReftileError: an argument does not fit, or the driver refuses.
        """
        if len(args) != len(self.plan.arguments):
            names = ", ".join(self.plan.arguments)
            raise fail("cuda.argument", f"the kernel takes ({names}), found {len(args)} values")
        types = tuple(map(type, args))
        launch = self._launches.get(types)
        if launch is None:
            launch = self._launches[types] = self._generate(tuple(map(is_torch, args)))
        x, y, z = (*grid, 1, 1)[:3]
        launch(x, y, z, stream, *args)

    def source(self, kinds: Sequence[bool]) -> str:
        """The text of the function for arguments that are torch tensors (True) or not."""
        names = [f"a{i}" for i in range(len(self.plan.arguments))]
        by_name = dict(zip(self.plan.arguments, names, strict=True))
        arrays = _array_arguments(self.plan)
        lines = [f"def launch(x, y, z, stream, {', '.join(names)}):"]
        for name, torch, argument in zip(names, kinds, self.plan.arguments, strict=True):
            if argument in arrays:
                value = (
                    f"{name}.data_ptr() if {name}.is_cuda else refuse({name}, {argument!r})"
                    if torch
                    else f"{name} if type({name}) is int else read({name}, {argument!r}).address"
                )
                lines.append(f"    {name} = {value}")
        if self.plan.requirements:
            lines += [
                f"    given = ({', '.join(names)},)",
                "    if given not in allowed: require(given)",
            ]
        values = [
            by_name[p.name] for p in self.plan.parameters if not isinstance(p, TensorMapParameter)
        ]
        if values:
            lines.append(f"    pack(buffer, skip, {', '.join(values)})")
        for i, parameter in enumerate(self.plan.parameters):
            if isinstance(parameter, TensorMapParameter):
                used = [by_name[n] for n in self.plan.arguments if _uses(parameter, n)]
                key = f"({', '.join([str(i), *used])},)"
                offset = self._fields.offsets[i]
                pairs = ", ".join(f"{n!r}: {by_name[n]}" for n in self.plan.arguments)
                lines += [
                    f"    key = {key}",
                    "    found = maps.get(key)",
                    "    if found is None:",
                    f"        found = make({i}, key, {{{pairs}}})",
                    f"    move(base + {offset}, found, {MAP_BYTES})",
                ]
        lines += [
            "    if x != config.gridDimX: config.gridDimX = x",
            "    if y != config.gridDimY: config.gridDimY = y",
            "    if z != config.gridDimZ: config.gridDimZ = z",
            "    if stream != current[0]: set_stream(stream)",
            "    status = start(config, handle, pointers, 0)[0]",
            "    if status != success: failed(status)",
        ]
        return "\n".join(lines) + "\n"

    def _generate(self, kinds: tuple[bool, ...]) -> Launch:
        bindings = driver.bindings()
        maps: dict[tuple[int, ...], bytes] = {}
        current = [0]
        parameters = self.plan.parameters

        def make(index: int, key: tuple[int, ...], arguments: dict[str, int]) -> bytes:
            parameter = parameters[index]
            assert isinstance(parameter, TensorMapParameter)
            extents, strides = parameter.evaluate(arguments)
            made = encode(
                arguments[parameter.base],
                parameter.dtype,
                extents,
                strides,
                parameter.box,
                parameter.swizzle,
                parameter.fill,
            )
            if len(maps) >= KEPT_MAPS:
                maps.clear()
            maps[key] = made
            return made

        allowed: set[tuple[Any, ...]] = set()

        def require(given: tuple[Any, ...]) -> None:
            arguments = dict(zip(self.plan.arguments, given, strict=True))
            why = self.plan.broken_requirement(arguments)
            if why is not None:
                raise fail("cuda.requirement", f"`{self.plan.entry}` cannot take this: {why}")
            if len(allowed) >= KEPT_MAPS:
                allowed.clear()
            allowed.add(given)

        def set_stream(stream: int) -> None:
            self._config.hStream = bindings.CUstream(stream)
            current[0] = stream

        def failed(status: Any) -> None:
            raise driver.error_of(bindings, status, f"launching `{self.plan.entry}`")

        def refuse(value: Any, name: str) -> int:
            return read_array(value, f"`{name}`").address

        names: dict[str, Any] = {
            "pack": struct.Struct(self._fields.format).pack_into,
            "buffer": self._buffer,
            "skip": self._base - ctypes.addressof(self._buffer),
            "base": self._base,
            "maps": maps,
            "allowed": allowed,
            "require": require,
            "make": make,
            "move": ctypes.memmove,
            "config": self._config,
            "current": current,
            "set_stream": set_stream,
            "start": bindings.cuLaunchKernelEx,
            "handle": self.function.handle,
            "pointers": ctypes.addressof(self._pointers),
            "success": bindings.CUresult.CUDA_SUCCESS,
            "failed": failed,
            "refuse": refuse,
            "read": lambda value, name: read_array(value, f"`{name}`"),  # pyright: ignore
        }
        exec(compile(self.source(kinds), f"<launcher of {self.plan.entry}>", "exec"), names)
        return names["launch"]


class _Fields:
    """Where each parameter lies: numbers and pointers by one struct, maps behind, on 64 bytes."""

    def __init__(self, format: str, offsets: list[int], size: int) -> None:
        self.format, self.offsets, self.size = format, offsets, size


def _place(plan: HostPlan) -> _Fields:
    format, position = "<", 0
    offsets = [0] * len(plan.parameters)
    for i, parameter in enumerate(plan.parameters):
        if isinstance(parameter, TensorMapParameter):
            continue
        code = "Q" if isinstance(parameter, PointerParameter) else _code(parameter)
        size = struct.calcsize(code)
        padding = -position % size
        format += f"{padding}x" * bool(padding) + code
        offsets[i] = position + padding
        position += padding + size
    for i, parameter in enumerate(plan.parameters):
        if isinstance(parameter, TensorMapParameter):
            offsets[i] = position = position + -position % 64
            position += MAP_BYTES
    return _Fields(format, offsets, position)


def _code(parameter: ScalarParameter) -> str:
    code = _CODES.get(parameter.dtype)
    if code is None:
        raise fail(
            "cuda.argument", f"`{parameter.name}`: {parameter.dtype} cannot be passed by value"
        )
    return code


def _array_arguments(plan: HostPlan) -> set[str]:
    pointers = {p.name for p in plan.parameters if isinstance(p, PointerParameter)}
    return pointers | {p.base for p in plan.parameters if isinstance(p, TensorMapParameter)}


def _uses(parameter: TensorMapParameter, name: str) -> bool:
    """True if a map depends on an argument: as its base, or in an extent or stride."""
    texts = (parameter.base, *parameter.extents, *parameter.strides)
    return any(name in _words(text) for text in texts)


def _words(text: str) -> set[str]:
    return set("".join(c if c.isalnum() or c == "_" else " " for c in text).split())
