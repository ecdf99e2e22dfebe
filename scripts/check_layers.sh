#!/usr/bin/env bash
# A lower layer never includes a higher one, and the public headers include nothing of src/. CMake cannot see this: all of
# src/ is one include path.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# For every folder of src/ those it may include besides itself and include/winnow.
declare -A allowed=(
  [base]=''
  [kernels]='base'
  [cache]='base kernels'
  [eviction]='base kernels cache'
  [model]='base kernels cache eviction'
  [engine]='base kernels cache eviction model'
  [charts]='base'
  [eval]='base kernels cache eviction model engine charts'
  [inspect]='base kernels cache eviction model engine charts calibrate'
  [cli]='base kernels cache eviction model engine charts eval calibrate inspect server'
)
readonly everything='base kernels cache eviction model engine'
status=0

report() { printf '%s\n' "$1" >&2; status=1; }

for dir in src/*/; do
  layer=$(basename "$dir")
  may=" $layer ${allowed[$layer]-$everything} "
  while IFS=: read -r file line include; do
    target=$(sed -E 's/.*["<]([^">]+)[">].*/\1/' <<<"$include")
    folder=${target%%/*}
    [[ $target == */* && -d src/$folder && $may != *" $folder "* ]] &&
      report "$file:$line: src/$layer must not include $target"
  done < <(grep -rnE '^[[:space:]]*#[[:space:]]*include[[:space:]]*["<]' "$dir" --include='*.h' --include='*.cc' || true)
done

# Kernels see spans and plain structs: no ggml, no llama.
while IFS= read -r hit; do report "$hit: src/kernels must not include ggml or llama"; done < <(
  grep -rnE '#[[:space:]]*include[[:space:]]*["<](ggml|gguf|llama)' src/kernels || true)

while IFS=: read -r file line include; do
  target=$(sed -E 's/.*["<]([^">]+)[">].*/\1/' <<<"$include")
  [[ $target == winnow/* || $target != *[./]* ]] || report "$file:$line: include/winnow must not include $target"
done < <(grep -rnE '^[[:space:]]*#[[:space:]]*include' include/winnow)

# winnow.h is everything of the public interface.
for header in include/winnow/*.h; do
  name=${header#include/}
  [[ $name == winnow/winnow.h ]] || grep -qxF "#include \"$name\"" include/winnow/winnow.h ||
    report "include/winnow/winnow.h: must include $name"
done

[[ $status -eq 0 ]] && echo 'layers: clean'
exit $status
