"""Write results for others to read:

lines of JSON, JUnit XML, a page with a matrix of operations by types.
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from reftile.conformance.runner import Result, Results
from reftile.conformance.verdicts import BAD, Verdict


def write_jsonl(results: Results, path: Path) -> None:
    """One line for the run, then one for each case."""
    head = {k: v for k, v in results.to_json().items() if k not in ("cells", "not_passed")}
    lines = [json.dumps(head)] + [json.dumps(r.to_json()) for r in results.results]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def read_jsonl(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """(the run, its cases) of a file that `write_jsonl` wrote.

    Raises:
        ValueError: it is no such file.
    """
    lines = path.read_text(encoding="utf-8").splitlines()
    try:
        head, *cases = [json.loads(line) for line in lines]
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not a file of results: {error}") from None
    if not isinstance(head, dict) or head.get("kind") != "reftile-conformance":
        raise ValueError(f"{path} is not a file of results")
    return head, cases


def write_junit(results: Results, path: Path) -> None:
    """JUnit XML: one suite for each of ours, one test case for each case."""
    root = ElementTree.Element("testsuites", name=f"reftile conformance: {results.backend['name']}")
    suites: dict[str, list[Result]] = {}
    for result in results.results:
        suites.setdefault(result.suite, []).append(result)
    for name, members in suites.items():
        counts = {v: sum(r.verdict is v for r in members) for v in Verdict}
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=name,
            tests=str(len(members)),
            failures=str(counts[Verdict.FAIL] + counts[Verdict.FLAKY]),
            errors=str(counts[Verdict.ERROR]),
            skipped=str(sum(counts[v] for v in SKIPPED)),
            time=f"{sum(r.seconds for r in members):.3f}",
        )
        for result in members:
            _junit_case(suite, result)
    ElementTree.indent(root)
    ElementTree.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


SKIPPED = (Verdict.UNSUPPORTED, Verdict.SKIP, Verdict.XFAIL, Verdict.VACUOUS)
"""What JUnit has no better word for."""


def _junit_case(suite: ElementTree.Element, result: Result) -> None:
    case = ElementTree.SubElement(
        suite,
        "testcase",
        classname=f"{result.suite}.{result.op}",
        name=result.id,
        time=f"{result.seconds:.4f}",
    )
    tags = {Verdict.FAIL: "failure", Verdict.FLAKY: "failure", Verdict.ERROR: "error"}
    if result.verdict in tags:
        element = ElementTree.SubElement(case, tags[result.verdict], type=result.verdict.value)
        element.set("message", result.message.split("\n", 1)[0])
        element.text = _printable(result.message)
    elif result.verdict in SKIPPED:
        first = result.message.split("\n", 1)[0]
        ElementTree.SubElement(case, "skipped", message=f"{result.verdict.value}: {first}")


def _printable(text: str) -> str:
    return "".join(c for c in text if c >= " " or c in "\n\t")


# The page


SYMBOLS = {
    "fail": "✗",
    "error": "!",
    "flaky": "~",
    "vacuous": "○",
    "xfail": "x",
    "unsupported": "–",
    "skip": "·",
    "pass": "✓",
}
"""From worst to best: a cell shows the worst of its verdicts."""

STYLE = """
:root { color-scheme: light; }
body { font: 14px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 92rem; padding: 0 1rem;
  color: #1c2430; background: #fff; }
h1 { font-size: 1.4rem; margin: 0 0 .3rem; }
h2 { font-size: 1.05rem; margin: 2rem 0 .5rem; }
.meta { color: #596573; margin: 0 0 1rem; }
.counts span { display: inline-block; padding: .15rem .6rem; margin: 0 .4rem .4rem 0;
  border-radius: .3rem; }
table { border-collapse: collapse; }
th, td { padding: .18rem .4rem; text-align: center; border-bottom: 1px solid #e6e9ee; }
th { font-weight: 600; font-size: 12px; color: #38424f; }
thead th { position: sticky; top: 0; background: #fff; border-bottom: 2px solid #ccd3db; }
tbody th { text-align: left; font: 13px ui-monospace, monospace; }
td { font-size: 12px; white-space: nowrap; }
td.none { color: #c5ccd4; }
.pass { background: #e5f5ea; color: #14683a; }
.fail, .error, .flaky { background: #fde3e1; color: #a31f15; font-weight: 600; }
.unsupported { background: #eef0f3; color: #5c6673; }
.vacuous, .skip { background: #fff6da; color: #7a5a00; }
.xfail { background: #f3e8fb; color: #6a2f92; }
details { margin: .3rem 0; }
summary { cursor: pointer; font-family: ui-monospace, monospace; font-size: 13px; }
pre { background: #f6f8fa; padding: .6rem; overflow: auto; font-size: 12px; }
"""


def write_html(runs: Sequence[Results], path: Path, title: str = "Conformance") -> None:
    """A page that needs nothing else: for each backend a matrix of operations by element types."""
    path.write_text(render_html(runs, title), encoding="utf-8")


def render_html(runs: Sequence[Results], title: str = "Conformance") -> str:
    """The text of the page."""
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width'>",
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head><body>",
        f"<h1>{html.escape(title)}</h1>",
    ]
    for run in runs:
        parts.append(_render_run(run))
    legend = ", ".join(f"{symbol} {name}" for name, symbol in SYMBOLS.items())
    parts.append(
        f"<p class='meta'>A cell shows the worst verdict of its cases and how many passed. "
        f"{legend}.</p>"
    )
    parts.append("</body></html>")
    return "\n".join(parts)


def _render_run(run: Results) -> str:
    name = html.escape(str(run.backend["name"]))
    device = html.escape(str(run.backend["device"]))
    version = html.escape(str(run.backend["version"]))
    chips = [
        f"<span class='{verdict}'>{SYMBOLS[verdict]} {count} {verdict}</span>"
        for verdict, count in run.summary().items()
        if count
    ]
    parts = [
        f"<h2>{name}</h2>",
        f"<p class='meta'>version {version}, {device}; budget {run.budget}, "
        f"seed {run.seed}, {run.seconds:.1f} s; "
        f"{run.unsupported_percentage():.1f} % of cells unsupported</p>",
        f"<p class='counts'>{''.join(chips)}</p>",
        _render_matrix(run),
        _render_failures(run),
    ]
    return "\n".join(parts)


def _render_matrix(run: Results) -> str:
    cells = run.cells()
    ops = list(dict.fromkeys(op for op, _ in cells))
    order = "any i1 i4 i8 i16 i32 i64 f16 bf16 f32 f64 tf32".split()
    found = dict.fromkeys(dtype for _, dtype in cells)
    dtypes = [d for d in order if d in found] + [d for d in found if d not in order]
    head = "".join(f"<th>{html.escape(d)}</th>" for d in dtypes)
    rows = [f"<table><thead><tr><th></th>{head}</tr></thead><tbody>"]
    for op in sorted(ops):
        row = "".join(_render_cell(cells.get((op, d)), op, d) for d in dtypes)
        rows.append(f"<tr><th>{html.escape(op)}</th>{row}</tr>")
    rows.append("</tbody></table>")
    return "\n".join(rows)


def _render_cell(counts: Mapping[str, int] | None, op: str, dtype: str) -> str:
    if counts is None:
        return "<td class='none'></td>"
    worst = next(v for v in SYMBOLS if counts[v])
    total = sum(counts.values())
    detail = ", ".join(f"{n} {v}" for v, n in counts.items() if n)
    text = f"{SYMBOLS[worst]} {counts['pass']}" + ("" if counts["pass"] == total else f"/{total}")
    return f"<td class='{worst}' title='{html.escape(f'{op} {dtype}: {detail}')}'>{text}</td>"


def _render_failures(run: Results) -> str:
    bad = [r for r in run.results if r.verdict in BAD]
    if not bad:
        return ""
    parts = [f"<h2>{len(bad)} not as expected</h2>"]
    for result in bad[:200]:
        first = html.escape(result.message.split("\n", 1)[0])
        parts.append(
            f"<details><summary><span class='{result.verdict.value}'>{result.verdict.value}</span> "
            f"{html.escape(result.id)}: {first}</summary>"
            f"<pre>{html.escape(result.message)}</pre></details>"
        )
    return "\n".join(parts)
