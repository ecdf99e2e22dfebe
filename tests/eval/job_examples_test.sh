#!/usr/bin/env bash
# A job example of examples/jobs, small: two shards must give the tables that one process gives.
#   WINNOW=build/bin/winnow WINNOW_TEST_MODEL=FILE tests/eval/job_examples_test.sh parallel|slurm
# Exit code 77 (skipped) without a model, or without the program that the example needs.
set -euo pipefail

example=${1:?usage: $0 parallel|slurm}
jobs_folder=$(dirname "$0")/../../examples/jobs
if [[ ! -f ${WINNOW_TEST_MODEL:-} ]]; then
  echo "set WINNOW_TEST_MODEL to a GGUF file"
  exit 77
fi
export WINNOW_MODEL=$WINNOW_TEST_MODEL
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
matrix=(fidelity --lengths 120 --limit 3 --methods "full,tova:window=1" --budgets 20%,50%)

case $example in
  parallel)
    if ! parallel --version 2>/dev/null | grep -q GNU; then
      echo "GNU parallel is not installed"
      exit 77
    fi
    # Its report comes by itself.
    "$jobs_folder/parallel.sh" 2 "$out/shards" "${matrix[@]}"
    ;;
  slurm)
    # No Slurm: what its array would set, for one task after the other.
    for task in 1 2; do
      SLURM_ARRAY_TASK_ID=$task SLURM_ARRAY_TASK_COUNT=2 SLURM_CPUS_PER_TASK=1 \
        "$jobs_folder/slurm-array.sh" "$out/shards" "${matrix[@]}" >/dev/null
    done
    "$WINNOW" report "$out/shards" >/dev/null
    ;;
  *)
    echo "there is no example '$example'"
    exit 1
    ;;
esac

[[ $(ls "$out"/shards/answers-*-of-2.jsonl | wc -l) == 2 ]]
"$WINNOW" eval "${matrix[@]}" --out "$out/whole" --threads 1 --kv-memory 1GiB >/dev/null
"$WINNOW" report "$out/whole" >/dev/null
# Times follow: the only thing that may differ.
tables() { sed '/^### Memory and time/,$d' "$out/$1/report/report.md"; }
[[ $(tables whole | grep -c 'tova:window=1') -ge 2 ]]
diff <(tables whole) <(tables shards)
echo "two shards gave the tables of one process"
