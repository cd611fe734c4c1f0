"""Constants of tf32 are the same when they have been printed and read."""

import pytest

from reftile.ir.compare import same
from reftile.ir.parse import parse
from reftile.ir.print import show

TEXT = """tile kernel @k() {
  %a = constant {value = LITERAL} : tile<4xtf32>
  return
}
"""


@pytest.mark.parametrize("literal", ["0x00000117", "0x3F801FFF", "[0x1, 0x2, 0x3F800001, 0x0]"])
def test_the_low_bits_of_a_literal_say_nothing(literal: str) -> None:
    module = parse(TEXT.replace("LITERAL", literal))
    assert same(parse(show(module)), module)
