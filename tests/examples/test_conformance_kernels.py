"""The suite `kernels` is what examples/ gives, and the interpreter passes it."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from reftile.conformance.backend import find_backend
from reftile.conformance.cases import Case
from reftile.conformance.oracle.formats import FORMATS, codes, is_float, key
from reftile.conformance.runner import run_case, settings_for
from reftile.conformance.suites import kernels, make_kernels
from reftile.conformance.verdicts import Verdict

REPAIR = "run: python conformance/suites/make_kernels.py"
INTERP = find_backend("interp")
CASES = list(kernels.cases(settings_for(INTERP, "default", 0)))


@pytest.fixture(scope="module")
def made() -> dict[str, make_kernels.Files]:
    return dict(make_kernels.all_files())


def test_files_are_those_of_the_examples(made):
    assert {c.id.split("/")[-1] for c in CASES} == set(made), REPAIR
    for name, files in made.items():
        assert (kernels.FOLDER / f"{name}.tile").read_text() == files.text, f"{name}: {REPAIR}"
        described = json.loads((kernels.FOLDER / f"{name}.json").read_text())
        assert described == files.description, f"{name}: {REPAIR}"


def test_arrays_are_those_of_the_examples(made):
    for name, files in made.items():
        types = {a["name"]: a["dtype"] for a in files.description["arguments"]}
        with np.load(kernels.FOLDER / f"{name}.npz") as arrays:
            assert set(arrays) == set(files.arrays), f"{name}: {REPAIR}"
            for label, wanted in files.arrays.items():
                assert _near(arrays[label], wanted, label, types), f"{name} {label}: {REPAIR}"


def _near(found: np.ndarray, wanted: np.ndarray, label: str, types: dict[str, str]) -> bool:
    """Equal; bounds may differ by one code, as another library adds float64 in another order."""
    buffer, _, part = label.partition(".")
    if part in ("low", "high") and is_float(types[buffer]):
        f = FORMATS[types[buffer]]
        return bool((np.abs(key(codes(found), f) - key(codes(wanted), f)) <= 1).all())
    return np.array_equal(found, wanted)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_the_interpreter_passes(case: Case):
    result = run_case(INTERP, case)
    assert result.verdict is Verdict.PASS, result.message
    assert result.checked > 0


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("vector-add-float32", "addf", "subf"),
        ("softmax-float32", "maxf", "minf"),
        ("attention-causal", "less_than_or_equal", "less_than"),
        ("softmax-long-bfloat16", " exp ", " exp2 "),
        ("rmsnorm-float32", " rsqrt ", " sqrt "),
        ("matmul-bias-gelu-float16", " erf ", " tanh "),
        ("dropout-float32", "greater_than_or_equal", "less_than"),
        ("quantize-rows-int8", " divf ", " mulf "),
        ("histogram", "mode = add", "mode = xchg"),
        ("mla-sparse-float16", "-inf", "-1.0"),
        ("scan-int32", "acquire", "relaxed"),
    ],
)
def test_a_wrong_kernel_fails(name: str, old: str, new: str):
    program = kernels.load(name)
    assert old in program.text
    wrong = replace(program, text=program.text.replace(old, new))
    case = next(c for c in CASES if c.id.endswith(f"/{name}"))
    assert run_case(INTERP, replace(case, build=lambda: wrong)).verdict is Verdict.FAIL
