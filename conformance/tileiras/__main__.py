"""Hold NVIDIA's compiler against everything, and write down what disagrees.

    python -m reftile.conformance.tileiras out/ --fuzz 300               # all on one machine
    python -m reftile.conformance.tileiras out/ --bundle bundle.zip      # compiled elsewhere
    python -m reftile.conformance.tileiras out/ --interpreted negf=absf  # a planted fault, no GPU

Writes `summary.json`, the verdict of every case as `SUITE.jsonl`, and `findings.json`: what
disagrees in the same way, each with a program made smaller for as long as it does. Whose fault it
is stays to be said. Where `tileiras` is installed, programs are compiled as they come, in all
processes at once, and kept on the disk.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from reftile.conformance import report
from reftile.conformance.cases import BUDGETS
from reftile.conformance.progress import terminal_progress
from reftile.conformance.runner import Progress, Result, Results, unrun
from reftile.conformance.tileiras.build import SUITES
from reftile.conformance.tileiras.campaign import Reductions, Seeds, Suite, make_backend
from reftile.conformance.tileiras.interpreted import Uncompiled
from reftile.conformance.tileiras.reduce import Finding, group
from reftile.conformance.tileiras.workers import Make, Work, do_all

from reftile.ir.diagnostics import Bug, ReftileError
from reftile.ir.ops import OPS


def main() -> int:
    """Return 1 if something disagrees, 2 if it cannot be run, 130 after Ctrl-C."""
    options = _options()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.interpreted is not None:
        make: Make = partial(Uncompiled, None, options.interpreted)
    else:
        make = partial(make_backend, tuple(options.bundle), options.gpu)
    try:
        backend = make()
        info = backend.info()
    except ReftileError as error:
        print(error, file=sys.stderr)
        return 2
    backend.device.close()
    print(f"{info.name} {info.version} on {info.device}", flush=True)
    with terminal_progress() as progress:
        campaign = Campaign(make, options, progress)
        campaign.summary["backend"] = asdict(info) | {"accumulate": {}}
        try:
            for name in filter(None, options.suite.split(",")):
                campaign.run_suite(name)
            if options.fuzz:
                campaign.run_fuzzer(options.seed, options.fuzz)
        except KeyboardInterrupt:
            print("stopped", file=sys.stderr)
            return 130
        except (ReftileError, Bug) as error:
            print(error, file=sys.stderr)
            return 2
        finally:
            campaign.write()
    return int(bool(campaign.findings))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m reftile.conformance.tileiras")
    parser.add_argument("folder", type=Path, help="where to write what was found")
    parser.add_argument(
        "--bundle", type=Path, action="append", default=[], help="compiled programs"
    )
    parser.add_argument("--gpu", default="sm_90", help="what to compile for")
    parser.add_argument("--suite", default=",".join(SUITES))
    parser.add_argument("--budget", default="default", choices=BUDGETS)
    parser.add_argument("--filter", default="", help="a regular expression for ids")
    parser.add_argument("--time-limit", type=float, help="seconds for each suite, and the fuzzer")
    parser.add_argument("--litmus-runs", type=int, default=0, help="instances of each test")
    parser.add_argument("--fuzz", type=int, default=0, help="seeds of the fuzzer to try")
    parser.add_argument("--seed", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=0, help="processes; 0 for one on each core")
    parser.add_argument("--reduce", type=float, default=20.0, help="seconds for each finding")
    parser.add_argument("--reduce-limit", type=float, help="seconds for all of a suite's findings")
    parser.add_argument(
        "--interpreted",
        metavar="OP=OP,...",
        type=_faults,
        help="no GPU: interpret, some operations as others",
    )
    options = parser.parse_args()
    unknown = sorted(set(filter(None, options.suite.split(","))) - set(SUITES))
    if unknown:
        parser.error(f"there is no suite `{unknown[0]}` (there are: {', '.join(SUITES)})")
    return options


def _faults(text: str) -> dict[str, str]:
    """Operations, and which to take for them."""
    found: dict[str, str] = {}
    for pair in filter(None, text.split(",")):
        op, _, other = pair.partition("=")
        unknown = [name for name in (op, other) if name not in OPS]
        if unknown:
            raise argparse.ArgumentTypeError(f"`{pair}`: there is no operation `{unknown[0]}`")
        found[op] = other
    return found


@dataclass
class Campaign:
    """What was found so far; it is on the disk after each step."""

    make: Make
    options: argparse.Namespace
    progress: Progress | None = None
    summary: dict[str, Any] = field(default_factory=lambda: {"suites": {}})
    findings: list[Finding] = field(default_factory=list[Finding])

    def write(self) -> None:
        """Write the summary and the findings."""
        folder: Path = self.options.folder
        (folder / "summary.json").write_text(json.dumps(self.summary, indent=1))
        found = [one.to_json() for one in self.findings]
        (folder / "findings.json").write_text(json.dumps(found, indent=1))

    def run_suite(self, name: str) -> None:
        """Run the cases of a suite, then reduce what disagrees."""
        options = self.options
        suite = Suite(name, options.budget, options.filter, options.litmus_runs)
        backend = self.make()
        cases = suite.prepare(backend)
        backend.device.close()
        results = Results(self.summary["backend"], options.budget, 0)
        found: dict[int, Result] = {}
        start = time.perf_counter()
        try:
            for number, result in self._do(suite, len(cases), options.time_limit, name):
                found[number] = result
        finally:
            results.results = [found.get(i) or unrun(c) for i, c in enumerate(cases)]
            results.seconds = time.perf_counter() - start
            self._report(name, results)
        if options.reduce:
            self._reduce(suite, results.results)

    def _report(self, name: str, results: Results) -> None:
        counts = results.summary() | {"seconds": round(results.seconds, 1)}
        self.summary["suites"][name] = counts
        print(f"{name}: {counts}", flush=True)
        report.write_jsonl(results, self.options.folder / f"{name}.jsonl")
        self.write()

    def _reduce(self, suite: Suite, results: Sequence[Result]) -> None:
        groups = tuple(group(results))
        work = Reductions(suite, groups, self.options.reduce)
        limit = self.options.reduce_limit
        found: dict[int, Finding] = {}
        for number, finding in self._do(work, len(groups), limit, "reduce"):
            found[number] = finding
            self._add(finding)
        for number, members in enumerate(groups):
            if number not in found:
                note = "there was no time to reduce it"
                self._add(Finding.of(members, note=note))
        self.summary["suites"][suite.name]["findings"] = len(groups)
        self.summary["suites"][suite.name]["reduced"] = sum(bool(f.text) for f in found.values())
        self.write()

    def _add(self, finding: Finding) -> None:
        self.findings.append(finding)
        sizes = "{} operations, of {}".format(*reversed(finding.operations))
        print(f"{finding.kind} {finding.ids[0]} ({len(finding.ids)}): {sizes}", flush=True)

    def run_fuzzer(self, first: int, count: int) -> None:
        """Run programs of the fuzzer, and reduce those that disagree."""
        start = time.perf_counter()
        counts: Counter[str] = Counter()
        work = Seeds(first, count, self.options.reduce)
        limit = self.options.time_limit
        try:
            for _, (kind, finding) in self._do(work, count, limit, "fuzz"):
                counts[kind] += 1
                if finding is not None:
                    self._add(finding)
        finally:
            seconds = round(time.perf_counter() - start, 1)
            self.summary["fuzz"] = dict(counts.most_common()) | {"seconds": seconds}
            print(f"fuzz: {self.summary['fuzz']}", flush=True)

    def _do(self, work: Work, count: int, limit: float | None, what: str) -> Any:
        pieces = do_all(self.make, work, count, self.options.jobs, limit)
        for done, (number, found) in enumerate(pieces, 1):
            if self.progress is not None:
                self.progress(done, count, what)
            if done % 500 == 0:
                print(f"{what}: {done} of {count}", file=sys.stderr, flush=True)
                with suppress(OSError):
                    self.write()
            yield number, found


if __name__ == "__main__":
    sys.exit(main())
