"""Files that say what is expected of an implementation: known failures, and cases that must pass.

A file of waivers, and one of what must pass, each in TOML and each for one version of the spec:

    spec = "0.1"

    [[waiver]]
    id = "issue-17"
    reason = "division of subnormal numbers gives zero"
    cases = "^ops/divf/f32/"

    spec = "0.1"
    must_pass = ["^reject/", "^ops/addi/"]

`cases` and the entries of `must_pass` are regular expressions that an id must contain. A failure
that a waiver names is an XFAIL. Of what must pass, every case must pass: one that is unsupported,
skipped or waived makes the run fail as well, and so does an entry without any case.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast


@dataclass(frozen=True)
class Waiver:
    """Known failures: cases whose ids match `pattern`, for a reason with an id."""

    pattern: str
    reason: str
    id: str


def spec_version() -> str:
    """The version of the specification that these suites test: the package's, without a patch."""
    return ".".join(version("reftile").split(".")[:2])


def read_waivers(path: Path) -> list[Waiver]:
    """The waivers of a file.

    Raises:
        ValueError: it is no such file, or for another version; the text says why.
        OSError: it cannot be read.
    """
    content = _read(path, "waiver")
    waivers: list[Waiver] = []
    for entry in content["waiver"]:
        wanted = {"id", "reason", "cases"}
        if not isinstance(entry, dict) or set(cast("dict[str, object]", entry)) != wanted:
            raise ValueError(f"{path}: a waiver has id, reason and cases, found {entry}")
        found = cast("dict[str, Any]", entry)
        for key in sorted(wanted):
            if not isinstance(found[key], str) or not found[key].strip():
                raise ValueError(f"{path}: `{key}` of a waiver is a text, found {found[key]!r}")
        waivers.append(Waiver(_pattern(path, found["cases"]), found["reason"], found["id"]))
    return waivers


def read_must_pass(path: Path) -> list[str]:
    """The patterns of a file of what must pass; raises as `read_waivers` does."""
    return [_pattern(path, entry) for entry in _read(path, "must_pass")["must_pass"]]


def _read(path: Path, key: str) -> dict[str, Any]:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not TOML: {error}") from None
    if set(content) != {"spec", key} or not isinstance(content[key], list):
        raise ValueError(f"{path}: expected `spec` and a list `{key}`, found {sorted(content)}")
    if content["spec"] != spec_version():
        raise ValueError(
            f"{path} is for version {content['spec']!r} of the specification, "
            f"and these suites are for {spec_version()!r}"
        )
    return content


def _pattern(path: Path, text: object) -> str:
    if not isinstance(text, str):
        raise ValueError(f"{path}: a pattern is a text, found {text!r}")
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{path}: {text!r} is no regular expression: {error}") from None
    return text


def not_passed(must_pass: Sequence[str], verdicts: Sequence[tuple[str, str]]) -> list[str]:
    """What breaks the promise, as lines for people. verdicts: (id, verdict) of each case."""
    lines: list[str] = []
    for pattern in must_pass:
        members = [(id, verdict) for id, verdict in verdicts if re.search(pattern, id)]
        if not members:
            lines.append(f"{pattern}: no case has such an id")
        lines.extend(f"{id}: {verdict}" for id, verdict in members if verdict != "pass")
    return list(dict.fromkeys(lines))
