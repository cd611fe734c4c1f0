"""Launchers: one generated Python function for each kernel, all that can be ready made ready.

A launch packs the numbers and tensor maps into one buffer and calls cuLaunchKernelEx. What takes
time on the host is Python itself, so the function is generated straight-line, with no loop and no
dispatch. What the arguments must be is checked once for each set of addresses and numbers;
the element type of a tensor of torch, and all that other libraries say of an array, each time. A
launch like the last one is found by comparing, one like an earlier one in a dictionary.
"""

from __future__ import annotations

import ctypes
import operator
import struct
import sys
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

from reftile.ir.diagnostics import ReftileError, fail
from reftile.lang.backends import read_grid
from reftile.lower.host import HostPlan, ScalarParameter, TensorMapParameter
from reftile.rt import devices, driver
from reftile.rt.arguments import TORCH_NAMES, DeviceArray, check_dtype, is_torch, read_array
from reftile.rt.jit import Function
from reftile.rt.parameters import (
    array_arguments,
    check_extents,
    code_of,
    is_read_by_host,
    place_parameters,
)
from reftile.rt.recent import note_launcher
from reftile.rt.streams import read_stream
from reftile.rt.tensor_map import encode

KEPT = 4096
"""Sets of arguments, and tensor maps, that a launcher remembers; beyond it they are made anew."""

KEPT_BLOCKS = 256
"""Launches that a launcher keeps ready to repeat, about a kilobyte each."""

MOST_BLOCKS = (2**31 - 1, 65535, 65535)
"""Extents of a grid (CUDA programming guide, technical specifications)."""

Launch = Callable[..., None]
Grid = Sequence[int]


class Launcher:
    """Launches one loaded kernel.

    `launcher(grid, args, stream)`: args are one for each argument of the kernel, device arrays (or
    addresses) for pointers and numbers for scalars. It returns once the launch is queued.

    launch: the same as a plain function, for the last kinds of arguments seen; a little faster.
    """

    def __init__(self, plan: HostPlan, function: Function, device: int = 0) -> None:
        self.plan, self.function, self.device = plan, function, device
        self.fields = place_parameters(plan)
        self.recent_grids: deque[Grid] = deque(maxlen=4)
        self._arrays = array_arguments(plan)
        # The arguments that decide whether others fit, and what the tensor maps are.
        self._telling = [n for n in plan.arguments if n in self._arrays or is_read_by_host(plan, n)]
        self._variants: dict[tuple[type, ...], Launch] = {}
        self._maps: dict[tuple[int, ...], bytes] = {}
        self._known: dict[tuple[Any, ...], tuple[bytes, ...]] = {}
        self._free: list[tuple[Any, ...]] = []
        self._seen: set[tuple[Any, ...]] = set()
        self._blocks: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self.launch: Launch = self._first
        note_launcher(self)

    def __call__(self, grid: Grid, args: Sequence[Any], stream: Any = 0) -> None:
        """Queue one launch.

        Raises:
            ReftileError: an argument does not fit, or the driver refuses.
        """
        self.launch(grid, args, stream)

    def _first(self, grid: Grid, args: Sequence[Any], stream: Any = 0) -> None:
        """Launch with the function for these kinds of arguments, generated if there is none."""
        self._check_count(args)
        kinds = tuple(map(type, args))
        if kinds not in self._variants:
            self._variants[kinds] = self._generate(args)
        self.launch = self._variants[kinds]
        self.launch(grid, args, stream)

    def _check_count(self, args: Any) -> None:
        if not isinstance(args, (tuple, list)):
            raise fail("cuda.argument", f"the arguments must be a tuple, found {args!r}")
        count = len(cast("Sequence[Any]", args))
        if count != len(self.plan.arguments):
            names = ", ".join(self.plan.arguments)
            raise fail(
                "cuda.argument", f"`{self.plan.entry}` takes ({names}), found {count} values"
            )

    def source(self, args: Sequence[Any]) -> str:
        """The text of the function for arguments of these kinds."""
        names = [f"a{i}" for i in range(len(self.plan.arguments))]
        values = list(names)
        dtypes = self._torch_dtypes(args)
        guards: list[str] = []
        reads: list[str] = []
        shapes: list[str] = []
        for i, argument in enumerate(self.plan.arguments):
            if argument not in self._arrays:
                continue
            # A dtype of torch is also what tells a tensor from anything else.
            if f"t{i}" not in dtypes:
                guards.append(f"a{i}.__class__ is not k{i}")
            elif isinstance(dtypes[f"t{i}"], tuple):
                guards.append(f"a{i}.dtype not in t{i}")
            else:
                guards.append(f"a{i}.dtype is not t{i}")
            if type(args[i]) is int:
                continue
            values[i] = f"p{i}"
            if is_torch(args[i]):
                reads.append(f"p{i} = a{i}.data_ptr()")
            else:
                reads.append(f"p{i}, s{i} = read(a{i}, {i})")
                shapes.append(f"s{i}")
        at = dict(zip(self.plan.arguments, values, strict=True))
        by_value = [p for p in self.plan.parameters if not isinstance(p, TensorMapParameter)]
        maps = [f"m{i}" for i in range(len(self.plan.parameters) - len(by_value))]
        packed = [*(at[p.name] for p in by_value), *maps]
        telling = [at[n] for n in self._telling]
        exact: list[str] = []
        for i, parameter in enumerate(by_value):
            exact.append(at[parameter.name])
            if _kind(parameter) == "f":
                # Floats by their bytes: -0.0 is equal to 0.0.
                exact[-1] = f"e{i}"
                reads.append(f"e{i} = exact({at[parameter.name]})")
        # Other numbers as what they are now: a tensor of torch can change later. One that is equal
        # to the last launch's needs no look.
        kinds = {p.name: _kind(p) for p in by_value}
        numbers = [
            f"{at[name]} = {'bool' if kinds.get(name) == 'i1' else 'index'}({at[name]})"
            for name in dict.fromkeys((*self._telling, *kinds))
            if kinds.get(name) != "f" and name not in self._arrays
        ]
        used = dict.fromkeys((*telling, *exact, *shapes))
        parts = [*used, "grid", "stream"]
        before = [f"l{i}" for i in range(len(parts))]
        changed = [f"{now} != {then}" for now, then in zip(used, before, strict=False)]
        changed.append(f"grid is not {before[-2]} and grid != {before[-2]}")
        # Streams of some libraries cannot be compared with others; the same object is the same.
        changed.append(f"stream is not {before[-1]}")
        slow = [
            f"given = {_listed([*telling, *shapes])}",
            "try: maps = known[given]",
            "except KeyError: maps = None",
            "if maps is None: maps = prepare(given, args)",
            f"{_listed(maps)} = maps" if maps else "",
            "try: slot = take()",
            "except IndexError: slot = new_slot()",
            "buffer, config, state, start = slot",
            f"pack(buffer, 0, {', '.join(packed)})" if packed else "",
            "if grid != state[0]: set_grid(config, state, grid)",
            "if stream is not state[1]: set_stream(config, state, stream)",
            "status = start()[0]",
            "if status is not success: failed(status, slot, grid)",
            # Not before: it may have been launched again.
            "keep(key, slot)",
            "return",
        ]
        lines = [
            f"{_listed(names)} = args" if names else "",
            *([f"if {' or '.join(guards)}: return other(grid, args, stream)"] if guards else []),
            *reads,
            f"{', '.join(before)}, slot, start = last",
            f"if {' or '.join(changed)}:",
            *(f"    {line}" for line in numbers),
            f"    key = {_listed(parts)}",
            "    try: kept = blocks[key]",
            "    except KeyError: start = None",
            "    except TypeError: start = key = None",
            "    else: slot, start = (last := kept)[-2:]",
            "if start is None:",
            *(f"    {line}" for line in slow if line),
            "status = start()[0]",
            "if status is not success: failed(status, slot, grid)",
            "return",
        ]
        body = "".join(f"        {line}\n" for line in lines if line)
        return (
            f"last = (None,) * {len(parts) - 1} + (known, None, None)  # no stream is `known`\n"
            f"def launch(grid, args, stream=0):\n    global last\n    try:\n{body}"
            "    except expected as error: wrong = error\n"
            "    explain(wrong, grid, args, stream, launch)\n"
        )

    def _torch_dtypes(self, args: Sequence[Any]) -> dict[str, Any]:
        """The dtype of torch that an argument must have, or a tuple where several fit."""
        torch: Any = sys.modules.get("torch")
        found: dict[str, Any] = {}
        for array in self.plan.arrays:
            i = self.plan.arguments.index(array.name)
            names = TORCH_NAMES.get("f32" if array.dtype == "tf32" else array.dtype, ())
            if is_torch(args[i]):
                dtypes = tuple(d for n in names if (d := getattr(torch, n, None)) is not None)
                if dtypes:
                    found[f"t{i}"] = dtypes[0] if len(dtypes) == 1 else dtypes
        return found

    def _generate(self, args: Sequence[Any]) -> Launch:
        bindings = driver.bindings()
        for i, argument in enumerate(self.plan.arguments):
            # A wrong array is refused here, so that it makes no function of its own.
            if argument in self._arrays and type(args[i]) is not int:
                self._check_array(args[i], argument)
        names: dict[str, Any] = {
            "other": self._other,
            "known": self._known,
            "prepare": self._prepare,
            "take": self._free.pop,
            "blocks": self._blocks,
            "keep": self._keep,
            "exact": struct.Struct("<d").pack,
            "index": operator.index,
            "new_slot": self._new_slot,
            "pack": struct.Struct(self.fields.format).pack_into,
            "set_grid": self._set_grid,
            "set_stream": _set_stream,
            "success": bindings.CUresult.CUDA_SUCCESS,
            "failed": self._failed,
            "explain": self._explain,
            "expected": (AttributeError, TypeError, ValueError, OverflowError, struct.error),
            "read": self._read,
            **{f"k{i}": type(a) for i, a in enumerate(args)},
            **self._torch_dtypes(args),
        }
        exec(compile(self.source(args), f"<launcher of {self.plan.entry}>", "exec"), names)
        return names["launch"]

    def _other(self, grid: Grid, args: Sequence[Any], stream: Any) -> None:
        """Arguments of other kinds than the last: find their function."""
        self._check_count(args)
        for i, argument in enumerate(self.plan.arguments):
            if argument in self._arrays and type(args[i]) is not int:
                self._check_array(args[i], argument)
        self._first(grid, args, stream)

    def _read(self, value: Any, index: int) -> tuple[int, object]:
        """The address of an array that is not torch's, and what else its fitness depends on."""
        array = read_array(value, f"`{self.plan.arguments[index]}`")
        return array.address, (
            array.dtype, array.shape, array.strides, array.read_only, array.bytes_behind
        )  # fmt: skip

    # Once for each set of arguments

    def _prepare(self, given: tuple[Any, ...], args: Sequence[Any]) -> tuple[bytes, ...]:
        """Check the arguments, and find or make the tensor maps.

        given: the values of the telling arguments, addresses for arrays, and what else tells.
        """
        arguments = dict(zip(self._telling, given, strict=False))
        arrays: dict[str, DeviceArray] = {}
        for name, value in zip(self.plan.arguments, args, strict=True):
            if name in self._arrays and type(value) is not int:
                arrays[name] = self._check_array(value, name)
        why = self.plan.broken_requirement(arguments)
        if why is not None:
            raise fail("cuda.requirement", f"`{self.plan.entry}` cannot take this: {why}")
        maps: list[bytes] = []
        for i, parameter in enumerate(self.plan.parameters):
            if isinstance(parameter, TensorMapParameter):
                maps.append(self._map(i, parameter, arguments, arrays.get(parameter.base)))
        if len(self._known) >= KEPT:
            self._known.clear()
        self._known[given] = found = tuple(maps)
        return found

    def _check_array(self, value: Any, name: str) -> DeviceArray:
        array = read_array(value, f"`{name}`")
        device = array.device
        if device is None and array.address:
            device = devices.device_of_address(array.address)
        if device is not None and device != self.device:
            raise fail(
                "cuda.other_device",
                f"`{name}` lies on device {device}, and the kernel was loaded on {self.device}",
                hint="move the array, or compile the kernel for that device",
            )
        described = next((a for a in self.plan.arrays if a.name == name), None)
        if described is not None:
            check_dtype(array, described.dtype, f"`{name}`")
            if array.read_only and described.written:
                raise fail(
                    "cuda.read_only",
                    f"`{name}` may only be read, and the kernel writes to it",
                    hint="give a copy; arrays of JAX never change, so give one of another library",
                )
        return array

    def _map(
        self,
        index: int,
        parameter: TensorMapParameter,
        arguments: dict[str, Any],
        array: DeviceArray | None,
    ) -> bytes:
        extents, strides = parameter.evaluate(arguments)
        address = arguments[parameter.base]
        if array is not None:
            check_extents(parameter.base, array, extents, strides)
        key = (index, address, *extents, *strides)
        made = self._maps.get(key)
        if made is None:
            with devices.on_device(self.device):
                made = encode(
                    address,
                    parameter.dtype,
                    extents,
                    strides,
                    parameter.box,
                    parameter.swizzle,
                    parameter.fill,
                    parameter.base,
                )
            if len(self._maps) >= KEPT:
                self._maps.clear()
            self._maps[key] = made
        return made

    # Buffers: a launch takes one and gives it back, so that threads do not share any. What was
    # launched twice keeps its own, which nobody writes to any more.

    def _keep(self, key: tuple[Any, ...] | None, slot: tuple[Any, ...]) -> None:
        if key is None or key not in self._seen:
            if len(self._seen) >= KEPT:
                self._seen.clear()
            if key is not None:
                self._seen.add(key)
            self._free.append(slot)
            return
        if len(self._blocks) >= KEPT_BLOCKS:
            self._blocks.clear()
        self._blocks[key] = (*key, slot, slot[-1])

    def _new_slot(self) -> tuple[Any, ...]:
        bindings = driver.bindings()
        size = max(1, self.fields.size)
        store = ctypes.create_string_buffer(size + 64)
        base = ctypes.addressof(store) + (-ctypes.addressof(store)) % 64
        addresses = [base + offset for offset in self.fields.offsets]
        pointers = (ctypes.c_void_p * max(1, len(addresses)))(*addresses)
        config = bindings.CUlaunchConfig()
        config.gridDimX = config.gridDimY = config.gridDimZ = 1
        config.blockDimX, config.blockDimY, config.blockDimZ = self.plan.threads, 1, 1
        config.sharedMemBytes = self.plan.shared_bytes
        config.hStream = bindings.CUstream(0)
        config.numAttrs = 0
        buffer = (ctypes.c_char * size).from_address(base)
        # The state keeps alive what the addresses point into.
        state = [object(), 0, store, pointers]
        start = partial(
            bindings.cuLaunchKernelEx, config, self.function.handle, ctypes.addressof(pointers), 0
        )
        return buffer, config, state, start

    def _set_grid(self, config: Any, state: list[Any], grid: Grid) -> None:
        sizes = read_grid(grid)
        x, y, z = (*sizes, 1, 1)[:3]
        for size, most, cluster in zip((x, y, z), MOST_BLOCKS, self.plan.cluster, strict=True):
            if size > most or size % cluster:
                multiple = f" in clusters of {self.plan.cluster}" if size % cluster else ""
                raise fail(
                    "cuda.grid",
                    f"`{self.plan.entry}` cannot run over a grid of {sizes}{multiple}",
                    hint="each extent is a multiple of the cluster's"
                    if multiple
                    else f"at most {MOST_BLOCKS} blocks; let a block do more than one tile",
                )
        config.gridDimX, config.gridDimY, config.gridDimZ = x, y, z
        state[0] = sizes
        if sizes not in self.recent_grids:
            self.recent_grids.append(sizes)

    # What went wrong

    def _failed(self, status: Any, slot: tuple[Any, ...], grid: Grid) -> None:
        bindings = driver.bindings()
        _, config, _, start = slot
        name = driver.short_name(status)
        if name in ("INVALID_CONTEXT", "INVALID_HANDLE", "NOT_INITIALIZED"):
            # This thread has no context yet, or another device's: launch in ours.
            with devices.on_device(self.device):
                status = start()[0]
            if status == bindings.CUresult.CUDA_SUCCESS:
                return
            self._check_stream(int(config.hStream))
        resources = self.function.resources
        notes = (
            ()
            if driver.is_lost(status)
            else (
                f"{self.plan.threads} threads of {resources.registers} registers, "
                f"{self.plan.shared_bytes} bytes of shared memory",
            )
        )
        doing = f"launching `{self.plan.entry}` over {tuple(grid)}"
        raise driver.error_of(bindings, status, doing, notes)

    def _check_stream(self, stream: int) -> None:
        """Refuse a stream of another device."""
        try:
            device = devices.device_of_stream(stream)
        except ReftileError:
            return  # It is no stream at all; the driver's own words stand.
        if device is not None and device != self.device:
            raise fail(
                "cuda.other_device",
                f"the stream is of device {device}, and `{self.plan.entry}` is compiled for "
                f"device {self.device}",
                hint="give a stream of the kernel's device",
            )

    def _explain(
        self, error: Exception, grid: Grid, args: Sequence[Any], stream: Any, failed: Launch
    ) -> None:
        """Say which argument is wrong; those of other kinds than the last have another function."""
        self._check_count(args)
        read_grid(grid)
        if failed is not self._variants.get(tuple(map(type, args))):
            self._other(grid, args, stream)
            return
        scalars = {p.name: p for p in self.plan.parameters if isinstance(p, ScalarParameter)}
        for name in (*self._telling, *scalars):
            value, parameter = args[self.plan.arguments.index(name)], scalars.get(name)
            try:
                if name not in self._arrays and _kind(parameter) == "i":
                    operator.index(value)
                if parameter is not None:
                    struct.pack(f"<{code_of(parameter)}", value)
            except (struct.error, TypeError, OverflowError, ValueError):
                dtype = parameter.dtype if parameter is not None else "an integer"
                raise fail(
                    "cuda.argument", f"`{name}` takes {dtype}, found {value!r:.80}"
                ) from None
        for name in self._arrays:
            value = args[self.plan.arguments.index(name)]
            if type(value) is int and not 0 <= value < 1 << 64:
                raise fail("cuda.argument", f"`{name}` is no address: {value}") from None
        raise error


def _listed(names: Sequence[str]) -> str:
    """Names as a tuple."""
    return f"({', '.join(names)}{',' * (len(names) == 1)})"


def _kind(parameter: object) -> str:
    """`f` for a floating-point number, `i1` for a truth value, `i` for all else."""
    dtype = parameter.dtype if isinstance(parameter, ScalarParameter) else "i"
    return dtype if dtype == "i1" else dtype[0]


def _set_stream(config: Any, state: list[Any], stream: Any) -> None:
    config.hStream = driver.bindings().CUstream(read_stream(stream))
    state[1] = stream
