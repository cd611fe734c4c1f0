#!/usr/bin/env bash
# Install reftile into .venv (once) and run the attention example. Arguments go to the example.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
extras=cpu
command -v nvidia-smi >/dev/null && extras=cpu,cuda
venv=$(tools/make-venv "${REFTILE_EXTRAS-$extras}")
exec "$venv/bin/python" examples/attention_report.py "$@"
