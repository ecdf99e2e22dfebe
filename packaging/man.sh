#!/usr/bin/env bash
# man.sh TOOL FOLDER: man pages of the tool and of each of its commands, made from their --help by help2man, compressed.
set -euo pipefail
tool=$(realpath "$1")
folder=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$folder"

# page NAME SUMMARY [COMMAND]: help2man takes the name from the program's.
page() {
  printf '#!/bin/sh\nexec %s %s "$@"\n' "$tool" "${3:-}" >"$work/$1"
  chmod +x "$work/$1"
  help2man --no-info --section 1 --name "$2" --version-string "$("$tool" --version)" --help-option=--help "$work/$1" |
    sed "s/^usage: \(.*\)/.B \1/" | gzip -9n >"$folder/$1.1.gz"
}

page winnow "language models on long prompts, with a KV cache that keeps what attention needs"
"$tool" --help | sed -n '/^Commands:/,/^$/p' | sed -nE 's/^  ([a-z]+) +(.*)\.$/\1\t\2/p' |
  while IFS=$'\t' read -r command summary; do page "winnow-$command" "$summary" "$command"; done
