"""What the command prints: results on stdout, errors on stderr, one JSON object with `--json`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from reftile.ir.diagnostics import Bug, Diagnosis, ReftileError, ReftileErrors

if TYPE_CHECKING:
    from rich.console import Console

FOUND, BAD_INPUT, UNSUPPORTED, OUR_FAULT, STOPPED = 1, 2, 3, 4, 130


class Exit(Exception):
    """Leave the command with `code`; everything has been printed."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Output:
    """Where a command writes. `as_json`: print one object at the end and nothing else on stdout."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json

    def console(self, error: bool = False) -> Console:
        """A console for people; colours only on a terminal."""
        from rich.console import Console

        return Console(stderr=error, highlight=False, soft_wrap=True)

    def result(self, data: dict[str, object], render: Callable[[Console], None]) -> None:
        """Print a result: `data` as JSON, or `render` for people."""
        if self.as_json:
            print(json.dumps(data, indent=2, default=str))
        else:
            render(self.console())

    def diagnoses(self, error: ReftileError) -> None:
        """Print what a user did wrong."""
        found = error.diagnoses if isinstance(error, ReftileErrors) else (error.diagnosis,)
        if self.as_json:
            print(json.dumps({"errors": [d.to_json() for d in found]}, indent=2, default=str))
        else:
            console = self.console(error=True)
            for i, diagnosis in enumerate(found):
                if i:
                    console.print()
                print_diagnosis(console, diagnosis)

    def bug(self, error: Bug) -> None:
        """Print a fault of ours with what reproduces it."""
        if self.as_json:
            print(json.dumps({"bug": {"what": error.what, "where": error.where}}, indent=2))
        print(error, file=sys.stderr)


_STYLES = {"error": "bold red", "warning": "bold yellow", "note": "bold cyan"}


def print_diagnosis(console: Console, diagnosis: Diagnosis) -> None:
    """Print one finding with its first line and carets in colour."""
    from rich.text import Text

    for i, line in enumerate(str(diagnosis).splitlines()):
        text = Text(line)
        if i == 0:
            text.stylize(_STYLES[diagnosis.severity], 0, line.index("]") + 1)
            text.stylize("bold", line.index("]") + 1)
        elif line.strip(" |^") == "" and "^" in line:
            text.stylize("bold red")
        elif " = hint:" in line:
            text.stylize("green")
        console.print(text)
