"""Hold NVIDIA's compiler against everything, and write down what disagrees.

    python -m reftile.conformance.tileiras out/ --bundle bundle.zip --fuzz 300

Writes `summary.json`, the verdict of every case as `cases.jsonl`, and `disagreements.json`, each
with a program: those of the fuzzer made smaller for as long as they disagree, where `tileiras` is
installed beside the GPU.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from reftile.conformance import report
from reftile.conformance.cases import BUDGETS
from reftile.conformance.runner import run_suites
from reftile.conformance.tileiras import fuzz
from reftile.conformance.tileiras.backend import TileirasBackend
from reftile.conformance.tileiras.build import SUITES
from reftile.conformance.tileiras.bundle import Bundle, read_bundle
from reftile.conformance.tileiras.compiler import Target, find_tileiras

from reftile.ir.diagnostics import ReftileError

REDUCE_SECONDS = 20.0


def main() -> int:
    """Return 1 if something disagrees, 2 if there is nothing to run on."""
    parser = argparse.ArgumentParser(prog="python -m reftile.conformance.tileiras")
    parser.add_argument("folder", type=Path, help="where to write what was found")
    parser.add_argument(
        "--bundle", type=Path, action="append", default=[], help="compiled programs"
    )
    parser.add_argument("--suite", default=",".join(SUITES))
    parser.add_argument("--budget", default="default", choices=BUDGETS)
    parser.add_argument("--time-limit", type=float, help="seconds for each suite")
    parser.add_argument("--fuzz", type=int, default=0, help="seeds of the fuzzer to try")
    parser.add_argument("--seed", type=int, default=0, help="the first of them")
    options = parser.parse_args()
    suites = options.suite.split(",")
    unknown = sorted(set(suites) - set(SUITES))
    if unknown:
        parser.error(f"there is no suite `{unknown[0]}` (there are: {', '.join(SUITES)})")
    options.folder.mkdir(parents=True, exist_ok=True)
    try:
        backend = make_backend(options.bundle)
        info = backend.info()
    except ReftileError as error:
        print(error.diagnosis.message, file=sys.stderr)
        return 2
    print(f"{info.name} {info.version} on {info.device}")
    summary: dict[str, Any] = {"backend": asdict(info) | {"accumulate": {}}, "suites": {}}
    disagreements: list[dict[str, Any]] = []
    for suite in suites:
        limit = options.time_limit
        results = run_suites(backend, [suite], options.budget, time_limit=limit)
        summary["suites"][suite] = results.summary() | {"seconds": round(results.seconds, 1)}
        print(f"{suite}: {summary['suites'][suite]}", flush=True)
        report.write_jsonl(results, options.folder / f"{suite}.jsonl")
    if options.fuzz:
        start = time.perf_counter()
        found = fuzz.compare(backend, options.seed, options.fuzz)
        summary["fuzz"] = dict(found.counts) | {"seconds": round(time.perf_counter() - start, 1)}
        print(f"fuzz: {summary['fuzz']}", flush=True)
        for one in found.disagreements:
            if backend.live:
                one = fuzz.reduce(backend, one, REDUCE_SECONDS)
            disagreements.append(asdict(one))
            print(f"seed {one.seed}: {one.what}\n{one.text}", flush=True)
    (options.folder / "summary.json").write_text(json.dumps(summary, indent=1))
    (options.folder / "disagreements.json").write_text(json.dumps(disagreements, indent=1))
    bad = sum(s[v] for s in summary["suites"].values() for v in ("fail", "error", "flaky"))
    return int(bool(bad or disagreements))


def make_backend(paths: list[Path]) -> TileirasBackend:
    """The backend with the programs of some bundles; what is in none is compiled, if it can be."""
    backend = TileirasBackend()
    backend.bundle = Bundle(Target())
    for path in paths:
        bundle = read_bundle(path)
        backend.bundle.target, backend.bundle.tileiras = bundle.target, bundle.tileiras
        backend.bundle.programs |= bundle.programs
    try:
        find_tileiras()
    except ReftileError:
        if not paths:
            raise
        backend.live = False
    return backend


if __name__ == "__main__":
    sys.exit(main())
