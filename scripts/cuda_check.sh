#!/usr/bin/env bash
# Compiles the kernels of the CUDA plugin for all of its architectures and the plugin's other sources, without a GPU.
# Fails if a kernel spills more than a few registers, if the disassembly has no matrix instructions or wide loads, or if
# ggml's back end, which the plugin needs, cannot be configured. Without nvcc it prints so and passes: the same kernels
# are tested on fibers anyway (tests/device/kernels).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly most_spilled=32  # bytes
readonly architectures=(80 89 90a)

nvcc=''
for place in "${CUDACXX:-}" "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc; do
  if [[ -n $place && -x $place ]]; then nvcc=$place; break; fi
done
if [[ -z $nvcc ]]; then
  echo "There is no nvcc here: the kernels were not compiled for GPUs."
  exit
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

check_spills() {
  awk -v most=$most_spilled -v architecture="$1" '
    /Function properties for/ { name = $NF }
    / bytes spill stores/ { if ($5 > most) { print "sm_" architecture ": " name " spills " $5 " bytes"; bad = 1 } }
    END { exit bad }' "$2"
}

check_instructions() {
  local tool instruction
  tool=$(dirname "$nvcc")/cuobjdump
  [[ -x $tool ]] || return 0
  "$tool" --dump-sass "$work/$1.o" >"$work/$1.sass"
  for instruction in HMMA LDG.E.128 LDGSTS LDSM $([[ $1 == 90a ]] && echo HGMMA); do
    grep -q "$instruction" "$work/$1.sass" || { echo "sm_$1: no kernel has $instruction"; return 1; }
  done
}

# The host's side of the kernels, which is the same for all architectures, is compiled with one of them.
check_architecture() {
  local architecture=$1 kind=-cubin
  [[ $architecture != "${architectures[0]}" ]] || kind=-c
  "$nvcc" -gencode=arch=compute_$architecture,code=sm_$architecture -std=c++20 -O3 -Isrc -Iinclude -Xptxas -v \
    $kind src/device/cuda/cuda_kernels.cu -o "$work/$architecture.o" >"$work/$architecture.log" 2>&1 ||
    { cat "$work/$architecture.log"; return 1; }
  check_spills "$architecture" "$work/$architecture.log" || return 1
  check_instructions "$architecture" || return 1
  echo "sm_$architecture: $(grep -c 'Function properties' "$work/$architecture.log") kernels"
}

# Checks the sources around the kernels, which see the headers of ggml's back end.
check_host_sources() {
  local ggml=${WINNOW_GGML_SOURCES:-.venv/winnow-cuda/ggml} source
  local includes=(-Isrc -Iinclude -isystem "$ggml/src" -isystem "$ggml/include" -isystem "$(dirname "$nvcc")/../include")
  for source in src/device/cuda/*.cc; do
    g++ -std=c++20 -Wall -Wextra -Wshadow -Werror -fsyntax-only "${includes[@]}" '-DWINNOW_DEVICE_INTERFACE=""' \
      '-DWINNOW_GGML_CUDA_VERSION=""' "$source" || return 1
  done
  "$nvcc" -std=c++20 -arch=sm_90 "${includes[@]}" -DGGML_CUDA_USE_GRAPHS -c src/device/cuda/ggml_internals.cu \
    -o "$work/internals.o" || return 1
  echo "The plugin's other sources compile."
}

# The architectures compile at the same time, since each compiles one file on one core.
checks=()
for architecture in "${architectures[@]}"; do
  check_architecture $architecture &
  checks+=($!)
done
status=0
for check in "${checks[@]}"; do wait "$check" || status=1; done
if CUDACXX=$nvcc scripts/setup.sh cuda-check; then check_host_sources || status=1; else status=1; fi
exit $status
