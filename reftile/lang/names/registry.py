"""How a name of the language is defined: a function that builds operations."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from reftile.ir.diagnostics import fail
from reftile.lang.trace import Trace

P = ParamSpec("P")
R = TypeVar("R", covariant=True)


class Name(Generic[P, R]):
    """A function of the language. It is called in kernels; on the host it says that it cannot be.

    on_host: what a call outside kernels computes, for the few that can.
    """

    def __init__(
        self,
        implementation: Callable[Concatenate[Trace, P], R],
        on_host: Callable[..., object] | None = None,
    ) -> None:
        self.implementation = implementation
        self.on_host = on_host
        self.__name__ = implementation.__name__.rstrip("_") or implementation.__name__
        self.__doc__ = implementation.__doc__
        self.__module__ = "reftile.lang"
        self.__qualname__ = self.__name__

    @property
    def __signature__(self) -> inspect.Signature:
        signature = inspect.signature(self.implementation)
        return signature.replace(parameters=list(signature.parameters.values())[1:])

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """What a kernel gets; type checkers are told nothing, as Python sees another value."""
        if self.on_host is not None:
            return self.on_host(*args, **kwargs)
        raise fail(
            "lang.outside",
            f"`{self.__name__}` can only be called in a kernel",
            hint="mark the function with @reftile.kernel and launch it",
        )

    def trace(
        self, t: Trace, arguments: Sequence[object], keywords: Mapping[str, object]
    ) -> object:
        """Build the operations of a call, after matching its arguments with the signature."""
        try:
            inspect.signature(self.implementation).bind(t, *arguments, **keywords)
        except TypeError as error:
            raise t.error(
                "arguments",
                f"`{self.__name__}`: {error}",
                f"its signature is {self.__name__}{_without_types(self.__signature__)}",
            ) from None
        return self.implementation(t, *arguments, **keywords)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"<reftile.lang.{self.__name__}>"


def _without_types(signature: inspect.Signature) -> inspect.Signature:
    """The parameters and their defaults: what a call may look like."""
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    return signature.replace(parameters=plain, return_annotation=inspect.Signature.empty)


def name(implementation: Callable[Concatenate[Trace, P], R]) -> Name[P, R]:
    """Make a name of the language from the function that builds its operations."""
    return Name(implementation)


def host_name(
    on_host: Callable[..., object],
) -> Callable[[Callable[Concatenate[Trace, P], R]], Name[P, R]]:
    """Make a name that can be called outside kernels too, where it calls `on_host`."""

    def decorate(implementation: Callable[Concatenate[Trace, P], R]) -> Name[P, R]:
        return Name(implementation, on_host)

    return decorate
