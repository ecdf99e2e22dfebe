#!/usr/bin/env bash
# make demo: asks the default model (or WINNOW_MODEL) about a long text, with the full cache and with a part of it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
model=${WINNOW_MODEL:-models/SmolLM2-135M-Instruct-Q4_1.gguf}
text=$(find data -name '*.txt' | sort | head -n 1)
[[ -n $text ]] || { echo 'error: data/ has no text' >&2; exit 1; }
for cache in full snapkv:20%; do
  method=${cache%%:*} budget=${cache#*:}
  echo "== $cache"
  options=()
  [[ $method == full ]] || options=(--kv-evict "$method" --kv-budget "$budget")
  build/bin/winnow run -m "$model" -f "$text" -n 48 --temp 0 -q 'What is this text about?' "${options[@]}"
done
