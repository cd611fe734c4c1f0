#!/usr/bin/env bash
# Install what the tests need into .venv (once) and run them. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
venv=$(tools/make-venv dev)
exec "$venv/bin/python" -m pytest -n 2 "$@"
