"""Write docs/findings/cutile_suite.json and .md from what the plugin wrote about cuTile's tests.

    python tools/cutile_report.py RESULTS    # a folder with the files below, as far as it has them
    python tools/cutile_report.py            # only the page, from the committed data

The files may be compressed, as .jsonl.gz; a file `commit` says which reftile it was.

strict.jsonl, forgiving.jsonl, unspecified.jsonl: `--reftile-results` of runs with
`--reftile-strict`, without options, and with `--reftile-unspecified`. no_tokens.jsonl: with
`--reftile-no-tokens`; no_tokens_values.jsonl: what raced there, with `--reftile-unchecked` too.
A run of `unspecified` over the cases that fail by `poison.output` is enough.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "findings"
DATA, PAGE, REASONS = (
    FOLDER / f"cutile_{name}" for name in ("suite.json", "suite.md", "reasons.toml")
)
SUITE = {
    "repository": "https://github.com/NVIDIA/cutile-python",
    "commit": "9c3ee3c (release notes of 1.6)",
    "package": "cuda-tile 1.6.0",
    "target": "compute capability 10.0, CUDA Tile IR 13.4",
}
MODES = {
    "strict": "every check",
    "forgiving": "false `div_by` on strides of axes of one element only warns",
    "unspecified": "and unspecified values that are left in an array only warn",
}
OWNERS = {
    "cutile": "cuTile's compiler or test",
    "specification": "the specification is silent",
    "reftile": "reftile",
    "host": "no GPU is there",
}
Line = dict[str, Any]


def read_lines(path: Path) -> dict[str, Line]:
    """By case, its last line."""
    packed = path.with_name(f"{path.name}.gz")
    if packed.exists():
        text = gzip.decompress(packed.read_bytes()).decode()
    elif path.exists():
        text = path.read_text()
    else:
        return {}
    lines: list[Line] = [json.loads(line) for line in text.splitlines()]
    return {line["case"]: line for line in lines}


def read_reasons() -> list[dict[str, str]]:
    """The reasons, in the order in which they are tried."""
    return tomllib.loads(REASONS.read_text())["reason"]


def reason_of(line: Line, reasons: list[dict[str, str]]) -> str:
    """The name of the first reason that fits a case.

    Raises:
        ValueError: none does.
    """
    ending = " ".join([*line.get("rules", ()), str(line.get("error")), str(line.get("message"))])
    for reason in reasons:
        place = re.search(reason.get("case", ""), line["case"])
        if place and re.search(reason["error"], f"{ending} {line['case']}"):
            return reason["name"]
    raise ValueError(f"no reason fits {line['case']}: {ending}")


def collect(folder: Path) -> dict[str, Any]:
    """The data of the page, from the files of a folder."""
    reasons = read_reasons()
    modes = {mode: read_lines(folder / f"{mode}.jsonl") for mode in MODES}
    if modes["unspecified"]:
        modes["unspecified"] = modes["forgiving"] | modes["unspecified"]
    counts = {mode: dict(Counter(x["outcome"] for x in found.values()))
              for mode, found in modes.items() if found}  # fmt: skip
    failed: dict[str, dict[str, str]] = {}
    for mode, found in modes.items():
        for case, line in sorted(found.items()):
            if line["outcome"] == "failed":
                failed.setdefault(case, {})[mode] = reason_of(line, reasons)
    judged = {
        case: "; ".join(line["judged"])
        for case, line in sorted(modes["forgiving"].items())
        if line.get("judged") and line["outcome"] == "passed"
    }
    skipped = Counter(
        str(line.get("message", "")).removeprefix("Skipped: ")
        for line in modes["forgiving"].values()
        if line["outcome"] == "skipped"
    )
    commit = folder / "commit"
    return {
        "suite": SUITE | ({"reftile": commit.read_text().strip()} if commit.exists() else {}),
        "counts": counts,
        "failed": failed,
        "judged": judged,
        "skipped": dict(skipped.most_common()),
        "tokens": tokens(folder),
    }


def races(line: Line) -> bool:
    """True if a case failed by a race."""
    return any(rule.startswith("race.") for rule in line.get("rules", ()))


def tokens(folder: Path) -> dict[str, Any]:
    """What happens without cuTile's token order."""
    found = read_lines(folder / "no_tokens.jsonl")
    with_tokens = read_lines(folder / "forgiving.jsonl")
    raced = {
        case: line["rules"]
        for case, line in found.items()
        if races(line) and not races(with_tokens.get(case, {}))
    }
    values = read_lines(folder / "no_tokens_values.jsonl")
    values = {case: line for case, line in values.items() if case in raced}
    files = Counter(case.partition("::")[0] for case in raced)
    return {
        "files": sorted({case.partition("::")[0] for case in found}),
        "cases": sum(line["outcome"] in ("passed", "failed") for line in found.values()),
        "raced": len(raced),
        "rules": dict(Counter(rule for rules in raced.values() for rule in rules)),
        "by_file": dict(files.most_common()),
        "values": dict(Counter(line["outcome"] for line in values.values())),
        "others": {
            case: ", ".join(line.get("rules", [line["error"]]))
            for case, line in sorted(values.items())
            if line["outcome"] == "failed"
        },
    }


def render(data: dict[str, Any]) -> str:
    """The page."""
    suite: dict[str, str] = data["suite"]
    lines = [
        "# cuTile Python's own tests on reftile\n",
        f"The tests of <{suite['repository']}> at {suite['commit']}",
        f"with {suite['package']}, compiled for {suite['target']}, run on",
        "the interpreter with every check and the race detector on, no GPU present",
        f"(see [cuTile Python](../cutile.md)){at(suite)}. Written by `tools/cutile_report.py`.\n",
        "| mode | passed | failed | of those not skipped | skipped | expected to fail |",
        "|---|---|---|---|---|---|",
        *(count_row(mode, found) for mode, found in data["counts"].items()),
        "",
        *sound_share(data),
        "Skipped are cases that want NVIDIA's internal extension, another GPU, or a package:\n",
        "| skipped | reason |",
        "|---|---|",
        *(f"| {n} | {text} |" for text, n in data["skipped"].items()),
        "",
        *failures(data["failed"]),
        *judgements(data["judged"]),
        *token_lines(data["tokens"]),
    ]
    return "\n".join(lines) + "\n"


def at(suite: dict[str, str]) -> str:
    """Which reftile it was."""
    return f", reftile at {suite['reftile'][:7]}" if "reftile" in suite else ""


def sound_share(data: dict[str, Any]) -> list[str]:
    """How many of the programs that are right pass."""
    owners = {reason["name"]: reason["owner"] for reason in read_reasons()}
    lines: list[str] = []
    for mode, found in data["counts"].items():
        failed = [m[mode] for m in data["failed"].values() if mode in m]
        wrong = sum(owners[name] == "cutile" for name in failed)
        passed, right = found.get("passed", 0), found.get("passed", 0) + len(failed) - wrong
        lines.append(f"{passed} of {right} ({100 * passed / max(right, 1):.2f} %) in *{mode}*")
    return ["Without the cases that are wrong themselves there pass", ",\n".join(lines) + ".", ""]


def count_row(mode: str, found: dict[str, int]) -> str:
    """One mode."""
    passed, failed = found.get("passed", 0), found.get("failed", 0)
    share = 100 * passed / max(passed + failed, 1)
    rest = f"{found.get('skipped', 0)} | {found.get('xfailed', 0)}"
    return f"| **{mode}**: {MODES[mode]} | {passed} | {failed} | {share:.2f} % | {rest} |"


def failures(failed: dict[str, dict[str, str]]) -> list[str]:
    """Why cases do not pass, and which."""
    lines = ["## What does not pass\n", "| reason | whose | " + " | ".join(MODES) + " |"]
    lines.append("|---|---|" + "---|" * len(MODES))
    counts = Counter((mode, name) for modes in failed.values() for mode, name in modes.items())
    reasons = [r for r in read_reasons() if any(name == r["name"] for _, name in counts)]
    for reason in reasons:
        numbers = " | ".join(str(counts[mode, reason["name"]]) for mode in MODES)
        lines.append(f"| `{reason['name']}` | {OWNERS[reason['owner']]} | {numbers} |")
    for owner, text in OWNERS.items():
        own = {r["name"] for r in reasons if r["owner"] == owner}
        sums = (sum(counts[mode, name] for name in own) for mode in MODES)
        lines.append(f"| *all* | {text} | " + " | ".join(map(str, sums)) + " |")
    lines += [
        "",
        "A case has 60 seconds; those that wait for a lock, launch thousands of kernels, loop",
    ]
    lines += ["a million times or have a grid of two million blocks have 420. Data is random."]
    for reason in reasons:
        lines += ["", f"**`{reason['name']}`**: {reason['text']}."]
        if "program" in reason:
            file = "tests/interop/test_cutile_findings.py"
            lines.append(f"The least program: `{reason['program']}` in `{file}`.")
    lines += ["", "Each case by name, with its reason in each mode, is in `cutile_suite.json`.\n"]
    return lines


def judgements(judged: dict[str, str]) -> list[str]:
    """The cases that demand equal bits and do not have them."""
    return [
        "## Equal bits\n",
        f"{len(judged)} cases demand the bits of torch and pass by the "
        "[accuracy class](../reference/accuracy.md) of their operations",
        "instead: both results may be off by the class's limit, and so apart by twice that. The",
        "expected value is torch's on a CPU here, which rounds otherwise than on a GPU; its square",
        "root of f32 is not always the nearest.\n",
        "| case | apart |",
        "|---|---|",
        *(f"| `{case}` | {text} |" for case, text in judged.items()),
        "",
    ]


def token_lines(found: dict[str, Any]) -> list[str]:
    """What the detector finds without tokens."""
    if not found["cases"]:
        return []
    values = found["values"]
    right = values.get("passed", 0)
    lines = [
        "## Without tokens\n",
        "With `CUDA_TILE_TESTING_DISABLE_TOKEN_ORDER=1`, cuTile's own switch, its compiler orders",
        f"nothing. Of {found['cases']} cases of {len(found['files'])} files that were run so,",
        f"the detector flags **{found['raced']}**: their tokens matter. Run again without checks,",
        f"{right} of them pass on their values: what is missing, a test of values does not see.",
        "",
        "| rule | cases |",
        "|---|---|",
        *(f"| `{rule}` | {n} |" for rule, n in found["rules"].items()),
        "",
        "| file | flagged |",
        "|---|---|",
        *(f"| `{name}` | {n} |" for name in found["files"] if (n := found["by_file"].get(name))),
    ]
    if found["others"]:
        lines += [
            "",
            "The others end with wrong values, or with a finding without checks too: a lock",
        ]
        lines += [
            "between blocks always runs checked, and an access out of bounds is never done.",
            "",
        ]
        lines += [f"- `{case}`: `{rule}`" for case, rule in found["others"].items()]
    return lines


def main(arguments: list[str]) -> int:
    """The command; returns what the process exits with."""
    if arguments:
        data = collect(Path(arguments[0]))
        DATA.write_text(json.dumps(data, indent=1) + "\n")
    PAGE.write_text(render(json.loads(DATA.read_text())))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
