"""The `reftile` command."""


def main() -> None:
    """Run the command line."""
    raise SystemExit("reftile: the command line is not written yet")
