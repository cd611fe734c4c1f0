"""Have programs of torch that ask for the device "cuda" get the CPU.

Only what cuTile's programs use: where tensors are made and moved, streams, events, and graphs of
launches. Everything is put back when the context ends.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from reftile.interop.cutile_driver import ATTRIBUTES, HostDriver

LOOKING = {"__get__", "data_ptr", "dim", "element_size", "numel", "size", "stride"}
"""What a recorded graph may do with tensors besides launches: nothing is computed."""

_CUDA = re.compile(r"cuda(:\d+)?")


@contextmanager
def cuda_on_cpu(driver: HostDriver) -> Generator[None]:
    """Answer for torch's GPU with the CPU, while the context lasts.

    driver: says which compute capability the GPU would have, and records graphs.
    """
    torch: Any = import_module("torch")
    mode: Any = _make_mode(torch, driver)
    names = _replacements(driver)
    kept = {name: getattr(torch.cuda, name) for name in names}
    for name, value in names.items():
        setattr(torch.cuda, name, value)
    mode.__enter__()
    try:
        yield
    finally:
        mode.__exit__(None, None, None)
        for name, value in kept.items():
            setattr(torch.cuda, name, value)


def _make_mode(torch: Any, driver: HostDriver) -> object:
    overrides: Any = import_module("torch.overrides")
    cpu = torch.device("cpu")

    def on_cpu(value: Any) -> Any:
        if isinstance(value, str):
            return cpu if _CUDA.fullmatch(value) else value
        if isinstance(value, torch.device):
            return cpu if value.type == "cuda" else value
        return value

    class CudaOnCpu(overrides.TorchFunctionMode):
        """Replaces the device among the arguments, and does what torch's CPU lacks."""

        def __torch_function__(
            self,
            func: Callable[..., Any],
            types: Sequence[type],
            args: Sequence[Any] = (),
            kwargs: Mapping[str, Any] | None = None,
        ) -> Any:
            named = dict(kwargs or {})
            if func is torch.Tensor.cuda:
                return args[0]
            name = str(getattr(func, "__name__", func))
            if driver.captured is not None and name not in LOOKING:
                raise RuntimeError(
                    f"torch.{name} in a recorded graph: only launches of cuTile are recorded here"
                )
            if "device" in named:
                named["device"] = on_cpu(named["device"])
            if func in (torch.abs, torch.Tensor.abs) and args[0].dtype is torch.bool:
                return args[0].clone()
            if func is torch.mm and named.get("out_dtype") is not None:
                wide = named.pop("out_dtype")
                return func(*(tensor.to(wide) for tensor in args), **named)
            return func(*map(on_cpu, args), **named)

    return CudaOnCpu()


class HostStream(int):
    """The one stream: whatever is put there is done at once.

    A number, since cuTile takes that for a stream, and torch's own class cannot be made without a
    driver where torch was built for CUDA.
    """

    cuda_stream = 1
    device_index = 0

    def __new__(cls, *_args: object, **_named: object) -> HostStream:
        return super().__new__(cls, cls.cuda_stream)

    @property
    def device(self) -> Any:
        """Where it runs."""
        torch: Any = import_module("torch")
        return torch.device("cpu")

    def __repr__(self) -> str:
        return "<the host's stream>"

    def wait_stream(self, stream: object) -> None:
        """Nothing is under way."""

    def synchronize(self) -> None:
        """Nothing is under way."""


def _replacements(driver: HostDriver) -> dict[str, Any]:
    """By name, what stands in `torch.cuda`."""

    class HostEvent:
        """A time on the host's clock."""

        def __init__(self, **_named: object) -> None:
            self.seconds = 0.0

        def record(self, stream: object = None) -> None:
            self.seconds = time.perf_counter()

        def synchronize(self) -> None: ...

        def elapsed_time(self, end: HostEvent) -> float:
            return 1e3 * (end.seconds - self.seconds)

    class HostGraph:
        """Launches that were recorded."""

        def __init__(self) -> None:
            self.steps: list[Callable[[], None]] = []

        def replay(self) -> None:
            for step in self.steps:
                step()

    @contextmanager
    def graph(target: HostGraph, **_named: object) -> Generator[None]:
        driver.captured = []
        try:
            yield
            target.steps = driver.captured
        finally:
            driver.captured = None

    @contextmanager
    def nothing(_what: object) -> Generator[None]:
        yield

    def answer(value: object) -> Callable[..., object]:
        def function(device: object = None) -> object:
            return value

        return function

    stream = HostStream()
    properties = SimpleNamespace(
        name="reftile on the host",
        multi_processor_count=ATTRIBUTES[16],
        L2_cache_size=ATTRIBUTES[38],
        major=driver.compute_capability[0],
        minor=driver.compute_capability[1],
        total_memory=1 << 32,
    )
    return {
        "CUDAGraph": HostGraph,
        "Event": HostEvent,
        "Stream": HostStream,
        "current_device": answer(0),
        "current_stream": answer(stream),
        "default_stream": answer(stream),
        "device": nothing,
        "device_count": answer(1),
        "get_device_capability": answer(driver.compute_capability),
        "get_device_name": answer(properties.name),
        "get_device_properties": answer(properties),
        "graph": graph,
        "is_available": answer(True),
        "set_device": answer(None),
        "stream": nothing,
        "synchronize": answer(None),
        "empty_cache": answer(None),
    }
