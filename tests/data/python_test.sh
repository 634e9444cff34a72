#!/bin/sh
# Runs a Python test in the project's virtual environment, else in the system's.
set -eu
python=$PEN_ROOT/.venv/bin/python3
[ -x "$python" ] || python=$(command -v python3) || {
  echo "skipped: there is no python3"
  exit 77
}
exec "$python" "$@"
