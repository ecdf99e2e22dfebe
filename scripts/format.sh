#!/usr/bin/env bash
# Formats every source file of the repository; with --check it only lists those that differ. The sources are formatted
# by clang-format 14 (Debian 12), since other versions break lines differently.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tool=$(command -v clang-format-14 || command -v clang-format) || {
  echo 'error: clang-format is missing: apt-get install clang-format' >&2
  exit 1
}
mapfile -t files < <(git ls-files --cached --others --exclude-standard '*.h' '*.cc' '*.cu')
if [[ ${1:-} == --check ]]; then
  bad=$("$tool" --dry-run --Werror "${files[@]}" 2>&1 | grep -oE '^[^:]+:[0-9]+' | sort -t: -k1,1 -u -V || true)
  if [[ -n $bad ]]; then
    printf '%s\n' "$bad"
    echo 'error: these files are not formatted: make format' >&2
    exit 1
  fi
  echo "format: ${#files[@]} files clean"
else
  "$tool" -i "${files[@]}"
fi
