#!/usr/bin/env bash
# One evaluation as a Slurm array: every task of the array does its shard, all into the same folder.
#   sbatch --array=1-16 examples/jobs/slurm-array.sh results/longbench longbench --data LongBench/data \
#       --methods full,snapkv,ada-snapkv --budgets 128,512,1024 --question aware
# Submitting it again goes on where tasks were cut off. When all are through: winnow report results/longbench
#SBATCH --job-name=winnow-eval
#SBATCH --cpus-per-task=8
#SBATCH --mem=32G
#SBATCH --time=08:00:00
#SBATCH --requeue
set -euo pipefail

winnow=${WINNOW:-build/bin/winnow}
out=${1:?usage: sbatch --array=1-N $0 FOLDER BENCHMARK... [flags]}
shift

# The times of one machine say nothing about another's memory: --kv-memory is what a task was given, less the weights.
exec "$winnow" eval "$@" --out "$out" --shard "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT" \
  --threads "${SLURM_CPUS_PER_TASK:-1}" --kv-memory 16GiB
