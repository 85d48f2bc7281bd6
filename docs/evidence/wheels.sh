#!/bin/sh
# Ask the package index whether every package that mnistbench requires has a wheel, for each system and version of Python.
# Usage, in a clone: sh docs/evidence/wheels.sh
for system in x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu x86_64-unknown-linux-musl aarch64-unknown-linux-musl \
  x86_64-apple-darwin aarch64-apple-darwin x86_64-pc-windows-msvc aarch64-pc-windows-msvc; do
  for python in 3.11 3.12 3.13 3.14; do
    if uv pip compile -q --only-binary :all: --python-platform "$system" --python-version "$python" pyproject.toml >/dev/null; then
      echo "$system $python: all have wheels"
    else
      echo "$system $python: NOT ALL HAVE WHEELS"
    fi
  done
done
