"""Values of a dialect of the language: what their attributes, items and assignments mean."""

from __future__ import annotations

from reftile.lang.trace import Trace
from reftile.lang.values import Foreign


class ForeignValue(Foreign):
    """A value of a dialect that can be read, indexed and assigned to."""

    def attribute(self, t: Trace, name: str) -> object:
        """`value.name`; asked for names in `attributes` only."""
        raise NotImplementedError

    def item(self, t: Trace, index: object) -> object:
        """`value[index]`."""
        raise t.error("subscript", f"{self.describe()} cannot be indexed")

    def set_item(self, t: Trace, index: object, value: object) -> None:
        """`value[index] = value`."""
        raise t.error("subscript", f"items of {self.describe()} cannot be assigned")
