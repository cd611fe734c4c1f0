"""A plugin of pytest that runs cuTile Python's own tests on reftile, without a GPU.

    pytest -p reftile.interop.cutile_pytest PATH/test

The tests are of cuTile's repository at the version that is installed. What they launch runs on the
interpreter with every check on; tensors that they put on "cuda" are on the CPU.

    --reftile-strict        also fail for a false promise about the stride of an axis of one element
    --reftile-unspecified   only warn of unspecified values that are left in an array
    --reftile-no-tokens     have cuTile leave its token order out (its own switch for tests)
    --reftile-unchecked     only compute
    --reftile-arch 10.0     the compute capability to compile for
    --reftile-limit 60      seconds that a case may take
    --reftile-results FILE  add a line of JSON for each case, and leave out those that are there
    --reftile-only FILE     only the cases that failed by a rule in such a file
    --reftile-rule race.    how the names of these rules begin
"""

from __future__ import annotations

import atexit
import json
import os
import re
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Generator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import pytest

from reftile.interop.cutile import Host, on_host
from reftile.interop.cutile_driver import HostDriver
from reftile.interop.cutile_hooks import compiler_not_needed
from reftile.interop.cutile_judge import Judge
from reftile.interop.cutile_torch import cuda_on_cpu
from reftile.ir.diagnostics import ReftileError, ReftileErrors

SWITCH = "CUDA_TILE_TESTING_DISABLE_TOKEN_ORDER"
"""cuTile's own: its compiler then orders no memory operation."""
CHILD = "REFTILE_CUTILE_CHILD"
"""Set for the processes that a test starts: the options, as JSON."""


class Setting:
    """The contexts that are open while the tests run."""

    def __init__(
        self, forgive: list[str], architecture: tuple[int, int], check: bool = True
    ) -> None:
        self.stack = ExitStack()
        self.host: Host = self.stack.enter_context(
            on_host(backend="interp", check=check, forgive=forgive, architecture=architecture)
        )
        self.stack.enter_context(compiler_not_needed())
        driver: HostDriver = self.host.driver
        self.stack.enter_context(cuda_on_cpu(driver))

    def close(self) -> None:
        """Put everything back."""
        self.stack.close()


def start_in_child() -> None:
    """Set a process up that a test started; called as that process begins."""
    options = json.loads(os.environ[CHILD])
    setting = Setting(options["forgive"], tuple(options["architecture"]), options["check"])
    atexit.register(setting.close)


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """The options of this plugin, and one of a plugin that is not needed here."""
    group = parser.getgroup("reftile", "cuTile's tests on reftile")
    group.addoption("--reftile-strict", action="store_true", help="hold cuTile to every promise")
    group.addoption("--reftile-unspecified", action="store_true", help="unspecified values warn")
    group.addoption("--reftile-no-tokens", action="store_true", help="leave the token order out")
    group.addoption("--reftile-unchecked", action="store_true", help="only compute")
    group.addoption("--reftile-arch", default="10.0", metavar="X.Y", help="compute capability")
    group.addoption("--reftile-limit", type=int, default=60, metavar="S", help="seconds for a case")
    group.addoption("--reftile-results", metavar="FILE", help="add results here, and go on there")
    group.addoption("--reftile-only", metavar="FILE", help="only what failed by a rule there")
    group.addoption("--reftile-rule", default="race.", metavar="NAME", help="how the rule begins")
    if not _has_benchmark(pluginmanager):
        group.addoption("--benchmark-sort", help="of pytest-benchmark, not used")


class BenchmarkHooks:
    """What the tests' conftest expects of pytest-benchmark, which is not needed here."""

    def pytest_benchmark_update_json(
        self, config: object, benchmarks: object, output_json: object
    ) -> None:
        """Never called."""

    def pytest_benchmark_update_machine_info(self, config: object, machine_info: object) -> None:
        """Never called."""


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Accept the hooks of pytest-benchmark without it."""
    if not _has_benchmark(pluginmanager):
        pluginmanager.add_hookspecs(BenchmarkHooks)


def _has_benchmark(pluginmanager: pytest.PytestPluginManager) -> bool:
    """True if pytest-benchmark takes part; it is loaded after this plugin."""
    return find_spec("pytest_benchmark") is not None and not pluginmanager.is_blocked("benchmark")


_SETTING = pytest.StashKey["Setting"]()


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Set the process up before their conftest is imported, which asks for a GPU."""
    options = early_config.known_args_namespace
    if options.reftile_no_tokens:
        os.environ[SWITCH] = "1"
    major, minor = (int(part) for part in options.reftile_arch.split("."))
    forgive = [] if options.reftile_strict else ["unit_stride"]
    if options.reftile_unspecified:
        forgive.append("unspecified")
    check = not options.reftile_unchecked
    setting = Setting(forgive, (major, minor), check)
    early_config.stash[_SETTING] = setting
    child = {"forgive": forgive, "architecture": [major, minor], "check": check}
    _prepare_children(child, setting.stack)


def pytest_configure(config: pytest.Config) -> None:
    """Watch the cases."""
    setting = config.stash[_SETTING]
    config.pluginmanager.register(CutileSuite(config, setting), "reftile-cutile-suite")


def _prepare_children(options: object, stack: ExitStack) -> None:
    """Have processes that tests start set themselves up."""
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="reftile-cutile-"))
    Path(folder, "sitecustomize.py").write_text(
        "import os\n"
        f"if os.environ.get({CHILD!r}):\n"
        "    from reftile.interop.cutile_pytest import start_in_child\n"
        "    start_in_child()\n"
    )
    kept = {name: os.environ.get(name) for name in (CHILD, "PYTHONPATH")}

    def restore() -> None:
        for name, value in kept.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    stack.callback(restore)
    os.environ[CHILD] = json.dumps(options)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [folder, *_search_path()]))


def _search_path() -> list[str]:
    """Where a child finds what this process found."""
    return [os.environ.get("PYTHONPATH") or "", *(p for p in sys.path if p and Path(p).is_dir())]


class TimeLimit(Exception):
    """A case took longer than it may."""


class CutileSuite:
    """What happens around each case, and what is written about it."""

    def __init__(self, config: pytest.Config, setting: Setting) -> None:
        self.config = config
        self.setting = setting
        self.limit: int = config.option.reftile_limit
        self.judge = Judge(setting.host)
        path: str | None = config.option.reftile_results
        self.path = Path(path) if path else None
        self.counts: Counter[str] = Counter()
        sent: dict[str, Any] | None = getattr(config, "workerinput", None)
        self.is_worker = sent is not None
        self.done: list[str] = (
            sent["reftile_done"] if sent else [line["case"] for line in read_results(self.path)]
        )

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Have a process of pytest-xdist leave out the same, also one that starts later."""
        node.workerinput["reftile_done"] = self.done

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Put everything back."""
        self.judge.close()
        self.setting.close()

    def pytest_report_header(self) -> str:
        """One line on what runs."""
        driver = self.setting.host.driver
        major, minor = driver.compute_capability
        forgiven = ", ".join(sorted(self.setting.host.forgive))
        mode = f"forgiving {forgiven}" if forgiven else "strict"
        mode = mode if self.setting.host.options.check else "unchecked"
        tokens = ", without cuTile's token order" if os.environ.get(SWITCH) else ""
        return f"reftile: cuTile on the host as sm_{major}{minor}, {mode}{tokens}"

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Benchmarks measure a GPU."""
        return True if collection_path.name.startswith("bench_") else None

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out what has a result, or is not asked for."""
        done = set(self.done)
        items[:] = [item for item in items if _case(item.nodeid) not in done]
        only: str | None = self.config.option.reftile_only
        if only is not None:
            start: str = self.config.option.reftile_rule
            lines = [line for line in read_results(Path(only)) if breaks(line, start)]
            wanted = {line["case"] for line in lines}
            items[:] = [item for item in items if _case(item.nodeid) in wanted]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Run a case within its time."""
        self.judge.begin()

        def stop(_signal: int, _frame: object) -> None:
            raise TimeLimit(f"more than {self.limit} s")

        kept = signal.signal(signal.SIGALRM, stop)
        signal.alarm(self.limit)
        try:
            return (yield)
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, kept)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add what is known about a case to its report."""
        report = yield
        judge = self.judge
        found: dict[str, object] = {"launches": judge.launches}
        found |= {"judged": judge.judged} if judge.judged else {}
        found |= {"forgiven": judge.forgiven} if judge.forgiven else {}
        if call.excinfo is not None and report.outcome == "failed":
            found |= _describe(call.excinfo.value)
        report.user_properties.append(("reftile", json.dumps(found)))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write the result of a case."""
        if self.is_worker:
            return
        if report.when == "call" or report.outcome != "passed":
            outcome = "xfailed" if hasattr(report, "wasxfail") else report.outcome
            self.counts[outcome] += 1
            if self.path is not None:
                self._write(report, outcome)

    def _write(self, report: pytest.TestReport, outcome: str) -> None:
        properties = cast("dict[str, str]", dict(report.user_properties))
        line = {
            "case": _case(report.nodeid),
            "outcome": outcome,
            "seconds": round(report.duration, 2),
        }
        line |= json.loads(properties.get("reftile", "{}"))
        if outcome == "skipped" and isinstance(report.longrepr, tuple):
            line["message"] = report.longrepr[2]
        if outcome == "failed" and "message" not in line:
            # Its process ended: pytest-xdist says so, and starts another.
            line |= {"error": "Crash", "message": _first_line(report.longrepr)}
        assert self.path is not None
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def read_results(path: Path | None) -> list[dict[str, Any]]:
    """The lines that `--reftile-results` wrote."""
    if path is None or not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def breaks(line: dict[str, Any], start: str) -> bool:
    """True if a case failed by a rule whose name begins like this."""
    return any(str(rule).startswith(start) for rule in line.get("rules", ()))


def _case(node: str) -> str:
    """A case's name without the folders before the file."""
    path, _, rest = node.partition("::")
    return f"{Path(path).name}::{rest}"


def _describe(error: BaseException) -> dict[str, object]:
    """The kind of an error, its first line, and the rules that were broken."""
    found: dict[str, object] = {"error": type(error).__name__, "message": _first_line(error)}
    if isinstance(error, ReftileErrors):
        found["rules"] = sorted({d.rule for d in error.diagnoses})
    elif isinstance(error, ReftileError):
        found["rules"] = [error.diagnosis.rule]
        found["at"] = str(error.diagnosis.span)
    return found


def _first_line(error: object) -> str:
    text = str(error).strip()
    return re.sub(r"\s+", " ", text[:600])
