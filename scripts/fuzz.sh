#!/usr/bin/env bash
# scripts/fuzz.sh [--runs N] [--seconds S] [NAME...]: runs the targets of tests/fuzz (all of them, or those named) on
# the corpus in the repository and the inputs that earlier runs have found (build-fuzz/found). Each target runs until it
# has had N executions, those of earlier runs (build-fuzz/executions) included, and for at most S seconds; without
# either option, for 60 seconds. The exit status is 1 if a target found a fault. The input is then in build-fuzz/faults,
# and build-fuzz/bin/fuzz_NAME FILE reproduces the fault.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly kBuild=build-fuzz
# The most bytes of an input, for targets where 4,096 would only repeat what fewer do. The time to parse an input is
# linear or quadratic in its bytes.
declare -A longest=([answer]=256 [gguf]=192 [grammar]=256 [http]=1024 [method]=160 [profile]=768 [request]=1024 [samples]=768
  [schema]=384 [template]=1600 [tokenizer]=160)
runs='' seconds=''
while [[ ${1:-} == --* ]]; do
  case $1 in
    --runs) runs=${2:?executions of each target} ;;
    --seconds) seconds=${2:?seconds for each target} ;;
    *) echo "error: there is no $1: scripts/fuzz.sh [--runs N] [--seconds S] [NAME...]" >&2; exit 2 ;;
  esac
  shift 2
done
[[ -n $runs || -n $seconds ]] || seconds=60
names=("$@")
if [[ ${#names[@]} -eq 0 ]]; then
  mapfile -t names < <(cd tests/fuzz && ls fuzz_*.cc | sed 's/^fuzz_\(.*\)\.cc$/\1/')
fi
mkdir -p $kBuild/faults $kBuild/log $kBuild/executions
# Targets make small models and files of an input in TMPDIR, which is in memory if /dev/shm can be written.
TMPDIR=$(mktemp -d -p "$([[ -w /dev/shm ]] && echo /dev/shm || echo "${TMPDIR:-/tmp}")" winnow-fuzz.XXXXXX)
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
# By default AddressSanitizer keeps 256 MiB of freed memory, which fit no cache, fills what is allocated, and records a
# stack of 30 calls for each allocation. All of this is reduced here; a fault that is reproduced has the defaults.
asan=quarantine_size_mb=4:thread_local_quarantine_size_kb=64:malloc_context_size=1:max_malloc_fill_size=0
export ASAN_OPTIONS=$asan${ASAN_OPTIONS:+:$ASAN_OPTIONS}
[[ " ${names[*]} " != *" gguf "* && " ${names[*]} " != *" session "* ]] || $kBuild/bin/fuzz_seeds $kBuild/seeds
failed=()
printf '%-10s %12s %10s %12s %8s\n' target executions 'a second' 'in all' faults
for name in "${names[@]}"; do
  log=$kBuild/log/$name.log folders=("$kBuild/found/$name") sum=$kBuild/executions/$name
  mkdir -p "${folders[0]}"
  before=$(cat "$sum" 2>/dev/null || echo 0)
  if [[ -n $runs && $before -ge $runs ]]; then
    printf '%-10s %12s %10s %12s %8s\n' "$name" 0 - "$before" 0
    continue
  fi
  for corpus in tests/fuzz/corpus/$name $kBuild/seeds/$name; do
    [[ -d $corpus ]] && folders+=("$corpus")
  done
  status=0
  "$kBuild/bin/fuzz_$name" ${runs:+-runs=$((runs - before))} ${seconds:+-max_total_time=$seconds} \
    ${longest[$name]:+-max_len=${longest[$name]}} -entropic_scale_per_exec_time=1 -timeout=20 -rss_limit_mb=4096 \
    -print_final_stats=1 -artifact_prefix="$kBuild/faults/$name-" "${folders[@]}" >"$log" 2>&1 || status=$?
  executed=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  rate=$(sed -n 's/^stat::average_exec_per_sec: *//p' "$log")
  echo $((before + ${executed:-0})) >"$sum"
  printf '%-10s %12s %10s %12s %8s\n' "$name" "${executed:--}" "${rate:--}" "$(cat "$sum")" $((status != 0))
  if [[ $status -ne 0 ]]; then
    failed+=("$name")
    grep -m 1 -E 'ERROR|runtime error|Test unit written' "$log" || tail -n 5 "$log"
  fi
done
[[ ${#failed[@]} -eq 0 ]] || { echo "error: faults in ${failed[*]}; logs are in $kBuild/log" >&2; exit 1; }
