"""The import rules: files import downwards, without cycles, and `import reftile` stays cheap.

0  ir.diagnostics, layout.linear
1  ir
2  layout
3  interp | lower | lang | interop     (not one another: they meet in ir)
4  rt                                  (not interp)
5  reftile itself, cli, conformance
"""

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

LAYERS = {
    "reftile.ir.diagnostics": 0,
    "reftile.layout.linear": 0,
    "reftile.ir": 1,
    "reftile.layout": 2,
    "reftile.interp": 3,
    "reftile.lower": 3,
    "reftile.lang": 3,
    "reftile.interop": 3,
    "reftile.rt": 4,
    "reftile": 5,
}
FORBIDDEN = {("reftile.rt", "reftile.interp")}

LOADED_ON_USE = (
    "numba scipy typer rich torch cuda hip mpmath ml_dtypes llvmlite pytest hypothesis".split()
)


# Reading the sources


def read_modules() -> dict[str, ast.Module]:
    """Every module of the package by the name it is imported by; packages end in `.__init__`."""
    modules: dict[str, ast.Module] = {}
    for folder, package in (("reftile", "reftile"), ("conformance", "reftile.conformance")):
        for path in sorted((ROOT / folder).rglob("*.py")):
            inner = path.relative_to(ROOT / folder).with_suffix("").parts
            modules[".".join((package, *inner))] = ast.parse(path.read_text(), str(path))
    return modules


def parse_modules(sources: Mapping[str, str]) -> dict[str, ast.Module]:
    return {name: ast.parse(source) for name, source in sources.items()}


def imports_of(name: str, node: ast.AST, modules: Mapping[str, ast.Module]) -> Iterator[str]:
    """The reftile modules that `node`, an import statement inside module `name`, mentions."""
    match node:
        case ast.Import(names):
            mentioned = [alias.name for alias in names]
        case ast.ImportFrom(base, names, level):
            # The enclosing package of a.b and of a.b.__init__ alike: drop the last part.
            package = name.split(".")[: -level or None] if level else []
            prefix = ".".join([*package, *([base] if base else [])])
            mentioned = [
                submodule if is_module(submodule := f"{prefix}.{alias.name}", modules) else prefix
                for alias in names
            ]
        case _:
            mentioned = []
    for module in mentioned:
        if module == "reftile" or module.startswith("reftile."):
            yield module


def is_module(name: str, modules: Mapping[str, ast.Module]) -> bool:
    return name in modules or f"{name}.__init__" in modules


def import_pairs(modules: Mapping[str, ast.Module]) -> Iterator[tuple[str, str, int]]:
    """(importer, imported, line) for every import of reftile by reftile."""
    for name, tree in modules.items():
        for node in ast.walk(tree):
            for imported in imports_of(name, node, modules):
                yield name.removesuffix(".__init__"), imported, getattr(node, "lineno", 0)


# The rules


def group_of(module: str) -> str:
    """The row of LAYERS that `module` belongs to: its longest prefix there."""
    parts = module.split(".")
    prefixes = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next(prefix for prefix in prefixes if prefix in LAYERS)


def layer_violations(modules: Mapping[str, ast.Module]) -> list[str]:
    violations: list[str] = []
    for importer, imported, line in import_pairs(modules):
        above, below = group_of(importer), group_of(imported)
        downwards = LAYERS[below] < LAYERS[above] and (above, below) not in FORBIDDEN
        if above != below and not downwards:
            violations.append(
                f"{importer}:{line} (layer {LAYERS[above]}) imports "
                f"{imported} (layer {LAYERS[below]})"
            )
    return violations


def local_imports(modules: Mapping[str, ast.Module]) -> list[str]:
    """Imports of reftile inside functions, and imports of it by a string."""
    found: set[str] = set()
    for name, tree in modules.items():
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                for node in ast.walk(function):
                    for imported in imports_of(name, node, modules):
                        found.add(f"{name}: {function.name} imports {imported}")
        for node in ast.walk(tree):
            match node:
                case ast.Call(
                    func=ast.Name(id="import_module" | "__import__")
                    | ast.Attribute(attr="import_module"),
                    args=[ast.Constant(value=str(target)), *_],
                ) if target.split(".")[0] in ("", "reftile"):
                    found.add(f"{name}:{node.lineno} imports {target!r} by a string")
                case _:
                    pass
    return sorted(found)


def import_cycle(modules: Mapping[str, ast.Module]) -> list[str]:
    """One cycle of imports, or nothing.

    Importing a.b.c also runs the packages a and a.b, so these count as imported too, except for
    the packages that the importer itself lies in: those have started already.
    """
    graph: dict[str, set[str]] = {name.removesuffix(".__init__"): set() for name in modules}
    for importer, imported, _ in import_pairs(modules):
        graph[importer].add(imported)
        parts = imported.split(".")
        for length in range(1, len(parts)):
            package = ".".join(parts[:length])
            if not f"{importer}.".startswith(f"{package}."):
                graph[importer].add(package)

    finished: set[str] = set()
    path: list[str] = []

    def search(module: str) -> list[str]:
        if module in path:
            return [*path[path.index(module) :], module]
        if module in finished:
            return []
        path.append(module)
        for imported in sorted(graph.get(module, ())):
            if cycle := search(imported):
                return cycle
        path.pop()
        finished.add(module)
        return []

    return next((cycle for module in graph if (cycle := search(module))), [])


# The package obeys them


@pytest.fixture(scope="module")
def modules() -> dict[str, ast.Module]:
    return read_modules()


def test_every_file_imports_from_lower_layers_only(modules: dict[str, ast.Module]) -> None:
    assert layer_violations(modules) == []


def test_no_function_imports_reftile(modules: dict[str, ast.Module]) -> None:
    assert local_imports(modules) == []


def test_imports_have_no_cycle(modules: dict[str, ast.Module]) -> None:
    assert import_cycle(modules) == []


def test_suites_import_one_another_by_their_installed_name(modules: dict[str, ast.Module]) -> None:
    """pytest may call a suite's file `conformance.x`: a relative import loads a second copy."""
    relative = [
        f"{name}:{node.lineno}"
        for name, tree in modules.items()
        if name.startswith("reftile.conformance")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.level or node.module == "conformance")
    ]
    assert relative == []


# The rules catch what they should


@pytest.mark.parametrize(
    ("importer", "statement"),
    [
        ("reftile.ir.types", "import reftile.layout.atoms"),
        ("reftile.ir.types", "from reftile.layout import atoms"),
        ("reftile.ir.types", "from ..layout.atoms import TABLE"),
        ("reftile.interp.__init__", "from ..lower import passes"),
        ("reftile.lower.passes", "from reftile.interp import run"),
        ("reftile.rt.jit", "from reftile.interp import run"),
        ("reftile.rt.jit", "import reftile"),
        ("reftile.ir.diagnostics", "from .types import Tile"),
    ],
)
def test_upward_imports_are_caught(importer: str, statement: str) -> None:
    known = {"reftile.layout.atoms": "", "reftile.layout.__init__": "", "reftile.ir.types": ""}
    assert len(layer_violations(parse_modules(known | {importer: statement}))) == 1


def test_downward_imports_pass() -> None:
    known = {
        "reftile.ir.types": "import reftile.layout.linear\nfrom . import diagnostics",
        "reftile.ir.diagnostics": "import dataclasses",
        "reftile.layout.linear": "",
        "reftile.rt.jit": "from reftile.lower import passes",
        "reftile.lower.passes": "from ..ir.types import Tile",
        "reftile.__init__": "from reftile.rt import jit",
    }
    assert layer_violations(parse_modules(known)) == []
    assert import_cycle(parse_modules(known)) == []


def test_function_local_imports_are_caught() -> None:
    source = "def f():\n    from reftile.ir import types\n    import numba\n"
    assert len(local_imports(parse_modules({"reftile.rt.jit": source}))) == 1
    source = "import importlib\nimportlib.import_module('reftile.ir')\n"
    assert len(local_imports(parse_modules({"reftile.rt.jit": source}))) == 1


def test_cycles_are_caught_also_through_a_package() -> None:
    direct = {"reftile.ir.a": "from . import b", "reftile.ir.b": "from . import a"}
    assert import_cycle(parse_modules(direct)) == ["reftile.ir.a", "reftile.ir.b", "reftile.ir.a"]
    through_package = {
        "reftile.ir.__init__": "",
        "reftile.ir.types": "import reftile.layout.linear",
        "reftile.layout.linear": "",
        "reftile.layout.__init__": "from . import atoms",
        "reftile.layout.atoms": "import reftile.ir.types",
    }
    assert import_cycle(parse_modules(through_package))


# Importing is cheap


def run_python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_import_adds_at_most_twelve_small_modules_to_numpy() -> None:
    code = (
        "import numpy, sys; before = set(sys.modules); import reftile;"
        "[print(name, getattr(sys.modules[name], '__file__', None))"
        " for name in set(sys.modules) - before]"
    )
    found = dict(line.split(maxsplit=1) for line in run_python(code).splitlines())
    assert len(found) <= 12, found
    files = [Path(file) for name, file in found.items() if name.split(".")[0] == "reftile"]
    lines = [len(file.read_text(encoding="utf-8").splitlines()) for file in files]
    assert sum(lines) < 1000


def test_import_loads_nothing_heavy() -> None:
    code = (
        "import sys; before = set(sys.modules); import reftile; print(*set(sys.modules) - before)"
    )
    assert set(run_python(code).split()) & set(LOADED_ON_USE) == set()
