#!/usr/bin/env bash
# scripts/fuzz.sh SECONDS [NAME...]: runs the targets of tests/fuzz (all of them, or those named), each for so many seconds, over
# the corpus in the repository and what earlier runs have found (build-fuzz/found). Ends with 1 where one found a fault; the
# input is then in build-fuzz/faults: build-fuzz/bin/fuzz_NAME FILE shows it again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly kBuild=build-fuzz
seconds=${1:?seconds for each target}
shift
names=("$@")
if [[ ${#names[@]} -eq 0 ]]; then
  mapfile -t names < <(cd tests/fuzz && ls fuzz_*.cc | sed 's/^fuzz_\(.*\)\.cc$/\1/')
fi
mkdir -p $kBuild/faults $kBuild/log
$kBuild/bin/fuzz_seeds $kBuild/seeds
failed=()
printf '%-10s %12s %10s %8s\n' target executions 'a second' faults
for name in "${names[@]}"; do
  log=$kBuild/log/$name.log folders=("$kBuild/found/$name")
  mkdir -p "${folders[0]}"
  for corpus in tests/fuzz/corpus/$name $kBuild/seeds/$name; do
    [[ -d $corpus ]] && folders+=("$corpus")
  done
  status=0
  "$kBuild/bin/fuzz_$name" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=4096 -print_final_stats=1 \
    -artifact_prefix="$kBuild/faults/$name-" "${folders[@]}" >"$log" 2>&1 || status=$?
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  rate=$(sed -n 's/^stat::average_exec_per_sec: *//p' "$log")
  printf '%-10s %12s %10s %8s\n' "$name" "${runs:--}" "${rate:--}" $((status != 0))
  if [[ $status -ne 0 ]]; then
    failed+=("$name")
    grep -m 1 -E 'ERROR|runtime error|Test unit written' "$log" || tail -n 5 "$log"
  fi
done
[[ ${#failed[@]} -eq 0 ]] || { echo "error: faults in ${failed[*]}; logs are in $kBuild/log" >&2; exit 1; }
