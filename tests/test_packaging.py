"""What is installed: reftile/, conformance/ as reftile.conformance and spec/ as reftile.spec.

Both kinds of installation are built from a copy of the checkout and unpacked into an empty folder,
so that the one under test is not the one these tests run from.
"""

import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {"reftile": "reftile", "conformance": "reftile/conformance", "spec": "reftile/spec"}

READ_INSTALLED = """
import importlib.resources, reftile, reftile.conformance
spec = importlib.resources.files("reftile.spec")
print(reftile.conformance.__file__)
print(len((spec / "probe.md").read_text()))
"""

RUN_SUITES = """
import pytest
pytest.main(["-p", "no:cacheprovider", "--pyargs", "reftile.conformance.test_probe"])
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("checkout")
    for folder in PACKAGES:
        shutil.copytree(
            ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
        )
    for file in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, copy)
    # A file to read back, whatever the chapters are called, and a suite to run.
    (copy / "spec" / "probe.md").write_text("12345")
    (copy / "conformance" / "test_probe.py").write_text("def test_probe():\n    pass\n")
    return copy


def install(checkout: Path, hook: str, site: Path) -> list[str]:
    """Build with `hook` of setuptools' build backend, unpack into `site`, return the file names."""
    site.mkdir()
    code = f"from setuptools.build_meta import {hook}; {hook}({str(site)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=checkout, capture_output=True, check=True)
    (wheel,) = site.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
        return archive.namelist()


def run_installed(script: str, site: Path, cwd: Path) -> str:
    """Run a script with `site` as a site folder and this environment's other packages."""
    paths = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    # -S: no .pth file of this environment is read, so its own reftile stays out.
    code = f"import site, sys; site.addsitedir({str(site)!r}); sys.path += {sorted(paths)}"
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"{code}\n{script}"],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_wheel_holds_every_source_file(checkout: Path, tmp_path: Path) -> None:
    names = set(install(checkout, "build_wheel", tmp_path / "site"))
    for folder, package in PACKAGES.items():
        for path in (checkout / folder).rglob("*"):
            if path.is_file():
                assert f"{package}/{path.relative_to(checkout / folder).as_posix()}" in names
    assert not [name for name in names if name.endswith(".pyc")]


def test_wheel_can_be_imported_from_an_unrelated_folder(checkout: Path, tmp_path: Path) -> None:
    install(checkout, "build_wheel", tmp_path / "site")
    suite, size = run_installed(READ_INSTALLED, tmp_path / "site", cwd=tmp_path).split()
    assert Path(suite) == tmp_path / "site" / "reftile" / "conformance" / "__init__.py"
    assert size == "5"


@pytest.mark.parametrize("inside_checkout", [True, False])
def test_editable_install_finds_the_suites(
    checkout: Path, tmp_path: Path, inside_checkout: bool
) -> None:
    install(checkout, "build_editable", tmp_path / "site")
    cwd = checkout if inside_checkout else tmp_path
    suite, size = run_installed(READ_INSTALLED, tmp_path / "site", cwd).split()
    assert Path(suite) == checkout / "conformance" / "__init__.py"
    assert size == "5"


@pytest.mark.parametrize("kind", ["build_wheel", "build_editable"])
def test_suites_run_by_their_installed_name(checkout: Path, tmp_path: Path, kind: str) -> None:
    install(checkout, kind, tmp_path / "site")
    assert "1 passed" in run_installed(RUN_SUITES, tmp_path / "site", cwd=tmp_path)
