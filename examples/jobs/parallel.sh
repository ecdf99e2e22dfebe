#!/usr/bin/env bash
# One evaluation in several processes of this machine, with GNU parallel:
#   examples/jobs/parallel.sh 4 results/niah niah --methods full,snapkv,tova --budgets 20%,10%
# Each process has its share of the cores and of the free memory; stopped (Ctrl-C) or killed, the same command goes on.
# On several machines with a common file system: give --sshloginfile in PARALLEL.
set -euo pipefail

winnow=${WINNOW:-build/bin/winnow}
jobs=${1:?usage: $0 PROCESSES FOLDER BENCHMARK... [flags]}
out=${2:?usage: $0 PROCESSES FOLDER BENCHMARK... [flags]}
shift 2

threads=$(( $(nproc) / jobs ))
free_mib=$(awk '/^MemAvailable:/ {print int($2 / 1024)}' /proc/meminfo)
# A resumed run keeps the memory that it began with: it decides what is computed together.
mkdir -p "$out.jobs"
memory_file=$out.jobs/kv-memory
[[ -f $memory_file ]] || echo "$(( free_mib / 2 / jobs ))MiB" >"$memory_file"

# --halt: the first failure stops the others, who leave what they have. Logs are in $out.jobs.
if ! parallel --jobs "$jobs" --halt now,fail=1 --results "$out.jobs" --quote \
  "$winnow" eval "$@" --out "$out" --shard "{}/$jobs" --threads "$(( threads > 0 ? threads : 1 ))" \
  --kv-memory "$(cat "$memory_file")" ::: $(seq "$jobs") >/dev/null; then
  tail -n 2 "$out.jobs"/1/*/stderr >&2
  exit 1
fi

exec "$winnow" report "$out"
