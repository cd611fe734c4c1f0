"""`atomic_add`, `atomic_max`, `atomic_min`: a fragment combined with what memory holds."""

from __future__ import annotations

from reftile.ir.core import Value
from reftile.lang import arithmetic
from reftile.lang.names.atomics import atomic_mode
from reftile.lang.names.registry import Name
from reftile.lang.pipe.arrays import Region, as_region
from reftile.lang.pipe.common import error
from reftile.lang.pipe.copying import change_region, further_of, need_share
from reftile.lang.pipe.fragments import need_fragment
from reftile.lang.pipe.values import TileView
from reftile.lang.trace import Trace
from reftile.lang.values import Tile, describe


def _combination(what: str) -> Name[..., object]:
    def implementation(t: Trace, target: object, source: object, /) -> None:
        region, fragment = as_region(t, target), need_fragment(t, source, "source")
        if not isinstance(region, Region):
            raise error(
                t,
                "type",
                f"`target` must be a region of an array, found {describe(region)}",
                f"atomic_{what}(C[row, column], fragment)",
            )
        need_share(t, fragment)
        mode = atomic_mode(t, what, region.dtype)

        def combine(
            tile: Tile, view: TileView, index: tuple[Value, ...], before: Value
        ) -> tuple[Value, ...]:
            return t.op(
                "atomic_red_view_tko",
                view.value,
                index,
                tile.value,
                before,
                ordering="relaxed",
                scope="device",
                mode=mode,
            ).results

        tile = arithmetic.convert(t, fragment.read(t), region.dtype)
        change_region(t, tile, region, combine, further_of(t, fragment))

    implementation.__name__ = f"atomic_{what}"
    implementation.__doc__ = (
        f"Combine a fragment with a region of an array by atomic {what}, element by element.\n\n"
        "Regions begin at a multiple of the tile, and elements outside the array are left out, as"
        " in `copy`. Blocks may combine with the same elements."
    )
    return Name(implementation)


atomic_add, atomic_max, atomic_min = map(_combination, ("add", "max", "min"))
