"""Read the records of spec/ and write the generated modules `ops.py` and `enums.py`.

    python -m reftile.ir.records            # rewrite them
    python -m reftile.ir.records --check    # fail if they differ from what spec/ says

Chapters hold fenced records: ```toml op```, ```toml enum```, ```toml class``` (a set of element
types),
```toml accuracy```. spec/ is read here and by tests, never when reftile is imported.
"""

from __future__ import annotations

import keyword
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeAlias

from reftile.ir.define import (
    BUILTIN_KINDS,
    BadRecord,
    Definition,
    Rule,
    Undefined,
    split_top,
)
from reftile.ir.dtypes import DTYPES

Table: TypeAlias = Mapping[str, Any]

SPEC = Path(__file__).resolve().parents[2] / "spec"
HERE = Path(__file__).resolve().parent
_FENCE = re.compile(r"^```toml (op|enum|class|accuracy)\n(.*?)^```", re.M | re.S)
_FIELDS = frozenset(
    "name summary operands attributes results regions where rule undefined levels since until "
    "effects "
    "traits meaning "
    "accuracy poison tile_ir targets example notes".split()
)
_EFFECTS = frozenset(
    "pure read write read_write atomic print control allocate async barrier trap random".split()
)
_TRAITS = frozenset(
    "terminator transparent isolated commutative loop affine module uniform".split()
)


@dataclass(frozen=True, slots=True)
class Record:
    """One operation's record, with where it stands and its prose."""

    definition: Definition
    chapter: str
    line: int
    prose: str
    example: str


@dataclass(slots=True)
class Spec:
    """Everything the chapters say in records."""

    ops: dict[str, Record] = field(default_factory=dict[str, Record])
    enums: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    classes: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    accuracy: dict[str, dict[str, object]] = field(default_factory=dict[str, dict[str, object]])


def load(folder: Path = SPEC) -> Spec:
    """Read every chapter.

    Raises:
        BadRecord: a record breaks the format; the message names the chapter and line.
    """
    spec = Spec()
    found = list(_fences(folder))
    for kind, table, chapter, line, _ in found:
        where = f"{chapter}:{line}"
        if kind == "enum":
            spec.enums[str(table["name"])] = {str(k): int(v) for k, v in table["values"].items()}
        elif kind == "class":
            spec.classes[str(table["name"])] = _expand(str(table["dtypes"]), spec.classes, where)
        elif kind == "accuracy":
            spec.accuracy[str(table["name"])] = dict(table)
    for kind, table, chapter, line, prose in found:
        if kind != "op":
            continue
        try:
            definition = _definition(table, spec, f"{chapter}:{line}")
        except (BadRecord, ValueError, KeyError) as error:
            raise BadRecord(f"{chapter}:{line}: {table.get('name', '?')}: {error}") from error
        if definition.name in spec.ops:
            raise BadRecord(f"{chapter}:{line}: `{definition.name}` is defined twice")
        spec.ops[definition.name] = Record(
            definition, chapter, line, prose, str(table.get("example", ""))
        )
    return spec


def _fences(folder: Path) -> Iterator[tuple[str, Table, str, int, str]]:
    for chapter in sorted(folder.glob("**/*.md")):
        text = chapter.read_text(encoding="utf-8")
        for match in _FENCE.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            name = str(chapter.relative_to(folder))
            try:
                table = tomllib.loads(match[2])
            except tomllib.TOMLDecodeError as error:
                raise BadRecord(f"{name}:{line}: {error}") from error
            heading = max(text.rfind("\n#", 0, match.start()), 0)
            yield match[1], table, name, line, text[heading : match.start()].strip()


def _expand(text: str, classes: Mapping[str, tuple[str, ...]], where: str) -> tuple[str, ...]:
    names: list[str] = []
    for name in (t.strip() for t in text.split("|")):
        if name in classes:
            names.extend(classes[name])
        elif name in DTYPES or name == "pointer":
            names.append(name)
        else:
            raise BadRecord(f"{where}: `{name}` is neither a dtype nor a class")
    return tuple(dict.fromkeys(names))


def _definition(table: Table, spec: Spec, where: str) -> Definition:
    unknown = set(table) - _FIELDS
    if unknown:
        raise BadRecord(f"unknown fields {sorted(unknown)}")
    definition = Definition(
        name=str(table["name"]),
        summary=str(table.get("summary", "")),
        operands_text=_flat(table.get("operands", "")),
        attributes_text=_flat(table.get("attributes", "")),
        results_text=_flat(table.get("results", "")),
        regions_text=_flat(table.get("regions", "")),
        where={},
        rules=tuple(
            Rule(key, _flat(r["check"]), _flat(r["say"]), _flat(r.get("hint", "")))
            for key, r in dict[str, Table](table.get("rule", {})).items()
        ),
        undefined=tuple(
            Undefined(key, _flat(u["when"]), _flat(u["say"]))
            for key, u in dict(table.get("undefined", {})).items()  # type: ignore[call-overload]
        ),
        levels=tuple(table.get("levels", ["tile"])),
        since=str(table.get("since", "1.0")),
        effects=str(table.get("effects", "pure")),
        traits=tuple(table.get("traits", [])),
        meaning=_flat(table.get("meaning", "")),
        accuracy=str(table.get("accuracy", "")),
        poison=str(table.get("poison", "")),
        tile_ir=dict(table.get("tile_ir", {})),
        targets=tuple(table.get("targets", [])),
    )
    attributes = {a.name: a for a in definition.attributes}
    conditions: dict[str, tuple[str, ...]] = {}
    for variable, text in dict[str, str](table.get("where", {})).items():
        if variable in attributes:
            conditions[variable] = tuple(t.strip() for t in str(text).split("|"))
        else:
            conditions[variable] = _expand(str(text), spec.classes, where)
    definition = replace(definition, where=conditions)
    _check(definition, spec)
    return definition


def _fields_of(definition: Definition) -> dict[str, tuple[object, object]]:
    """(value, default) of each field."""
    return {f.name: (getattr(definition, f.name), f.default) for f in fields(definition)}


def _flat(text: object) -> str:
    return " ".join(str(text).split())


def _check(definition: Definition, spec: Spec) -> None:
    if definition.effects not in _EFFECTS:
        raise BadRecord(f"unknown effects `{definition.effects}`")
    if set(definition.traits) - _TRAITS:
        raise BadRecord(f"unknown traits {sorted(set(definition.traits) - _TRAITS)}")
    for attribute in definition.attributes:
        kind = attribute.kind.removesuffix("[]")
        if (
            kind not in BUILTIN_KINDS
            and attribute.kind not in BUILTIN_KINDS
            and kind not in spec.enums
        ):
            raise BadRecord(f"attribute `{attribute.name}` has the unknown kind `{attribute.kind}`")
        values = spec.enums.get(kind)
        if values and attribute.default is not None and attribute.default not in values:
            raise BadRecord(f"`{attribute.default}` is not a `{kind}`")
    names = [p.name for p in (*definition.operands, *definition.results)]
    names += [a.name for a in definition.attributes] + [r.name for r in definition.regions]
    for name in names:
        if names.count(name) > 1:
            raise BadRecord(f"the name `{name}` is used twice")
        if keyword.iskeyword(name) or name in _RESERVED:
            raise BadRecord(f"`{name}` cannot name a port or attribute")
    for rule in definition.rules:
        _ = rule.check, rule.say, rule.hint
    for case in definition.undefined:
        _ = case.when, case.say
    ids = [rule.name for rule in (*definition.rules, *definition.undefined)]
    if len(ids) > len(set(ids)):
        raise BadRecord("a rule and a case of `undefined` have the same name")
    for region in definition.regions:
        _ = region.endings


_RESERVED = frozenset(
    "arguments attributes comments parent regions results span name definition operands "
    "walk".split()
)


def class_name(op: str) -> str:
    """The Python class of an operation: `load_view_tko` -> `LoadViewTko`."""
    return "".join(part.capitalize() for part in op.split("_"))


def render_ops(spec: Spec) -> str:
    """The text of ops.py."""
    lines = [
        '"""Every operation, generated from the records of spec/.',
        "",
        "Do not edit: run `python -m reftile.ir.records`.",
        '"""',
        "",
        "# ruff: noqa: E501",
        "from __future__ import annotations",
        "",
        "from typing import cast",
        "",
        "from reftile.ir.attributes import Attribute, Dense",
        "from reftile.ir.core import Op, Region, Value",
        "from reftile.ir.define import Definition, Rule, Undefined",
        "",
    ]
    for record in spec.ops.values():
        lines += ["", *_render_class(record.definition), ""]
    names = (f'    "{name}": {class_name(name)},' for name in spec.ops)
    lines += ["", "OPS: dict[str, type[Op]] = {", *names, "}"]
    lines.append('"""Every operation class by name."""')
    return "\n".join(lines) + "\n"


def _render_class(definition: Definition) -> list[str]:
    summary = definition.summary or definition.name
    lines = [f"class {class_name(definition.name)}(Op):", f'    """{summary}"""', ""]
    lines += [
        "    __slots__ = ()",
        f'    name = "{definition.name}"',
        "    definition = Definition(",
    ]
    for key, (value, default) in _fields_of(definition).items():
        if key in ("rules", "undefined"):
            if value:
                lines.append(f"        {key}=(")
                lines += [f"            {_render_rule(rule)}," for rule in getattr(definition, key)]
                lines.append("        ),")
        elif value not in (default, {}, ()):
            lines.append(f"        {key}={value!r},")
    lines.append("    )")
    for i, port in enumerate(definition.operands):
        kind = {"one": "Value", "optional": "Value | None", "many": "tuple[Value, ...]"}[
            port.multiplicity
        ]
        lines += _property(port.name, kind, f"cast('{kind}', self.arguments[{i}])")
    many = next((i for i, p in enumerate(definition.results) if p.multiplicity != "one"), None)
    for i, port in enumerate(definition.results):
        after = len(definition.results) - i - 1
        if port.multiplicity == "many":
            end = "" if after == 0 else f"-{after}"
            lines += _property(port.name, "tuple[Value, ...]", f"self.results[{i}:{end}]")
        elif port.multiplicity == "optional":
            lines += _property(
                port.name, "Value | None", f"self.results[{i}] if len(self.results) > {i} else None"
            )
        else:
            index = i if many is None or i < many else -(after + 1)
            lines += _property(port.name, "Value", f"self.results[{index}]")
    for attribute in definition.attributes:
        kind = _python_kind(attribute.kind)
        if attribute.kind != "unit" and attribute.optional and attribute.default is None:
            kind += " | None"
        default = f", {attribute.default!r}" if attribute.optional else ""
        read = (
            f"self.attributes.get({attribute.name!r}{default})"
            if default
            else (f"self.attributes[{attribute.name!r}]")
        )
        lines += _property(attribute.name, kind, f"cast({kind!r}, {read})")
    for i, region in enumerate(definition.regions):
        if region.optional:
            read = f"self.regions[{i}] if len(self.regions) > {i} else None"
            lines += _property(region.name, "Region | None", read)
        else:
            lines += _property(region.name, "Region", f"self.regions[{i}]")
    return lines


def _property(name: str, kind: str, value: str) -> list[str]:
    return ["", "    @property", f"    def {name}(self) -> {kind}:", f"        return {value}"]


def _render_rule(rule: Rule | Undefined) -> str:
    if isinstance(rule, Undefined):
        return f"Undefined({rule.name!r}, {rule.when_text!r}, {rule.say_text!r})"
    parts = [rule.name, rule.check_text, rule.say_text]
    if rule.hint_text:
        parts.append(rule.hint_text)
    return f"Rule({', '.join(map(repr, parts))})"


def _python_kind(kind: str) -> str:
    if kind.endswith("[]"):
        return f"tuple[{_python_kind(kind[:-2])}, ...]"
    simple = {
        "unit": "bool",
        "int": "int",
        "bool": "bool",
        "float": "float",
        "dense": "Dense",
        "numbers": "tuple[int | float, ...]",
        "type": "Type",
        "dict": "dict[str, Attribute]",
    }
    return simple.get(kind, "str")


def render_enums(spec: Spec) -> str:
    """The text of enums.py."""
    lines = [
        '"""Enumerations, classes of dtypes, accuracy limits, generated from spec/."""',
        "",
        "# ruff: noqa: E501, RUF100",
        "from __future__ import annotations",
        "",
        "from typing import Any",
        "",
        "ENUMS: dict[str, dict[str, int]] = {",
        *(f"    {name!r}: {values!r}," for name, values in spec.enums.items()),
        "}",
        '"""The values of each enumeration with their bytecode numbers."""',
        "",
        "CLASSES: dict[str, tuple[str, ...]] = {",
        *(f"    {name!r}: {dtypes!r}," for name, dtypes in spec.classes.items()),
        "}",
        '"""The element types of each class that records name."""',
        "",
        "ACCURACY: dict[str, dict[str, Any]] = {",
        *(f"    {name!r}: {table!r}," for name, table in spec.accuracy.items()),
        "}",
        '"""The accuracy classes: limits in ulp of the result type."""',
    ]
    return "\n".join(lines) + "\n"


def generate(folder: Path = SPEC) -> dict[Path, str]:
    """The generated modules as text, formatted."""
    spec = load(folder)
    texts = {HERE / "enums.py": render_enums(spec), HERE / "ops.py": render_ops(spec)}
    return {path: _formatted(text) for path, text in texts.items()}


def _formatted(text: str) -> str:
    command = [
        sys.executable,
        "-m",
        "ruff",
        "format",
        "--line-length",
        "100",
        "--stdin-filename",
        "x.py",
        "-",
    ]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BadRecord(f"the generated module does not parse: {done.stderr}")
    return done.stdout


def main(arguments: list[str]) -> int:
    """Write or check the generated modules; return the exit code."""
    drift = [
        path for path, text in generate().items() if not path.exists() or path.read_text() != text
    ]
    if "--check" in arguments:
        for path in drift:
            print(f"{path.name} differs from spec/: run python -m reftile.ir.records")
        return 1 if drift else 0
    for path, text in generate().items():
        path.write_text(text, encoding="utf-8")
    print(f"wrote {', '.join(p.name for p in drift) or 'nothing: up to date'}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))


__all__ = ["Record", "Spec", "class_name", "generate", "load", "split_top"]
