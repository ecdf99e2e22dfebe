#!/usr/bin/env bash
# Runs clang-tidy on the sources as build-debug/ compiles them, each alone. With arguments, runs only on those whose
# path contains one of them.
#   scripts/tidy.sh [src/cache ...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=${BUILD:-build-debug}
tool=$(command -v clang-tidy-14 || command -v clang-tidy) || {
  echo 'error: clang-tidy is missing: apt-get install clang-tidy' >&2
  exit 1
}
[[ -f $build/compile_commands.json ]] || { echo "error: no $build/compile_commands.json: run make debug first" >&2; exit 1; }
filter=$(IFS='|'; echo "${*:-/src/|/examples/}")
grep -oE '"file": "[^"]+"' "$build/compile_commands.json" | cut -d'"' -f4 | grep -E "$filter" | sort -u |
  xargs -r -P "$(nproc)" -n 1 "$tool" -p "$build" --quiet --warnings-as-errors='*'
echo 'tidy: clean'
