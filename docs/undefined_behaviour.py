"""Run the examples of undefined_behaviour.md, and keep its outputs and its table current.

python docs/undefined_behaviour.py division-by-zero   # run one
python docs/undefined_behaviour.py                    # rewrite the page
python docs/undefined_behaviour.py --check            # say whether it is current
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reftile.interp.launch import interpret
from reftile.ir.diagnostics import ReftileError, ReftileErrors
from reftile.ir.parse import parse

PAGE = Path(__file__).with_suffix(".md")
FRAME = """tile kernel @example(%p: tile<ptr<f32>>, %q: tile<ptr<i32>>) {{
  %t = make_token : token
  %zero = constant {{value = 0}} : tile<i32>
  %one = constant {{value = 1}} : tile<i32>
{body}
  return
}}
"""
SECTION = re.compile(
    r"^### (?P<title>.+)\n\n"
    r"- Specification: (?P<says>.+(?:\n  .+)*)\n"
    r"- reftile: (?P<does>.+(?:\n  .+)*)\n"
    r"- Check: (?P<check>.+)\n\n"
    r"```tile(?: blocks=(?P<blocks>\d+))?\n(?P<body>(?:.+\n)+)```\n\n"
    r"```text\n(?P<output>(?:.*\n)*?)```$",
    re.M,
)
TABLE = re.compile(r"(?<=<!-- table -->\n).*?(?=<!-- end -->)", re.S)
RULE = re.compile(r"`([a-z_]+\.[a-z_]+)`")


@dataclass(frozen=True, slots=True)
class Case:
    """One section of the page."""

    title: str
    says: str
    check: str
    blocks: int
    body: str

    @property
    def name(self) -> str:
        """As in links to the section."""
        return re.sub(r"[^a-z0-9 -]", "", self.title.lower()).replace(" ", "-")

    @property
    def text(self) -> str:
        """The whole kernel."""
        lines = "".join(f"  {line}\n" for line in self.body.splitlines())
        return FRAME.format(body=lines.rstrip("\n"))


def read_cases(page: str) -> list[Case]:
    """The sections of a page, in its order."""
    return [
        Case(m["title"], m["says"], m["check"], int(m["blocks"] or 1), m["body"])
        for m in SECTION.finditer(page)
    ]


def run(case: Case) -> str:
    """What a checked run says, or what it leaves in memory and prints."""
    p: Any = np.arange(8, dtype=np.float32)
    q: Any = np.zeros(8, np.int32)
    try:
        report = interpret(parse(case.text), case.blocks, [p, q])
    except ReftileErrors as errors:
        return "".join(f"error[{d.rule}]: {d.message}\n" for d in errors.diagnoses[:1])
    except ReftileError as error:
        return f"error[{error.diagnosis.rule}]: {error.diagnosis.message}\n"
    stored = [f"{name} = {found.tolist()}\n" for name, found in (("p", p), ("q", q))]
    return "".join([*report.printed, *stored])


def build(page: str) -> str:
    """The page with the outputs and the table as they should be.

    Raises:
        ValueError: a section's check does not find what its example does.
    """
    cases = {case.title: case for case in read_cases(page)}

    def section(match: re.Match[str]) -> str:
        case = cases[match["title"]]
        output = run(case)
        wanted = RULE.findall(case.check)
        found = re.findall(r"^error\[(.+?)\]", output, re.M)
        if wanted[:1] != found[:1]:
            raise ValueError(f"{case.title}: the check is {wanted[:1]}, and the run says {output}")
        return match[0][: match.start("output") - match.start()] + output + "```"

    rows = [
        f"| [{c.title}](#{c.name}) | {' '.join(c.says.split())} | {c.check} |\n"
        for c in cases.values()
    ]
    table = "| case | specification | check |\n|---|---|---|\n" + "".join(rows)
    return TABLE.sub(lambda _: table, SECTION.sub(section, page))


def main(arguments: list[str]) -> int:
    """The command; returns what the process exits with."""
    page = PAGE.read_text(encoding="utf-8")
    names = [a for a in arguments if not a.startswith("--")]
    for case in read_cases(page):
        if case.name in names:
            print(case.text, run(case), sep="\n", end="")
    if names:
        return 0
    built = build(page)
    if "--check" in arguments:
        if built != page:
            print("undefined_behaviour.md is not current: run python docs/undefined_behaviour.py")
        return int(built != page)
    PAGE.write_text(built, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
