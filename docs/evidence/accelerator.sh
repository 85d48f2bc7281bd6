#!/usr/bin/env bash
# Check mnistbench on a machine with a CUDA device within nine minutes: docs/evidence/accelerator.md.
# PYTHON names the interpreter that has torch; by default it is python3.
set -euo pipefail
exec "${PYTHON:-python3}" "$(dirname "${BASH_SOURCE[0]}")/accelerator.py" "$@"
