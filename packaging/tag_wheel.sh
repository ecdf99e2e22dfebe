#!/usr/bin/env bash
# tag_wheel.sh BIN WHEEL FOLDER: writes the wheel to FOLDER under the manylinux tag of the oldest C library that it runs with.
# BIN: where the Python is that has auditwheel (scripts/setup.sh wheel-tagger).
set -euo pipefail
bin=$1
wheel=$2
folder=$3
# All libraries are inside, found by the module's own rpath, which holds for the libraries' libraries, too; auditwheel does
# not follow it there, and would add the system's.
mapfile -t excluded < <("$bin/python" -m zipfile --list "$wheel" | sed -nE 's|^winnow/lib/([^/ ]+) .*|--exclude=\1|p')
# What goes wrong is the last line of its traceback.
if ! output=$("$bin/python" -m auditwheel repair --patcher none --only-plat "${excluded[@]}" --wheel-dir "$folder" "$wheel" 2>&1); then
  printf 'error: auditwheel cannot tag %s: %s\n' "$wheel" "$(tail -n 1 <<<"$output")" >&2
  exit 1
fi
sed -n 's/^Fixed-up wheel written to /==> /p' <<<"$output"
