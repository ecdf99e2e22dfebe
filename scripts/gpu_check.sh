#!/usr/bin/env bash
# Checks and times winnow on a machine with an NVIDIA GPU, in under 8 minutes, and ends with one table. Steps that fail
# are listed after it; the other steps run all the same, and the exit status is 1.
#   scripts/gpu_check.sh                    builds what is missing (make cuda), then checks everything
#   scripts/gpu_check.sh --only kernels     checks the kernels alone, which need only nvcc
#   scripts/gpu_check.sh --only engine      checks the engine alone, which needs only winnow
#   scripts/gpu_check.sh --prebuilt FILE    uses the programs in FILE, on a machine where winnow cannot be built
#   scripts/gpu_check.sh --pack FILE        packs the tool, plugin and libraries into FILE, where they were built
#   --model FILE       a GGUF model (default: the tool's own, else one of random weights in the shape of Llama-3.2-1B)
#   --random-8b        a model of random weights in the shape of an 8B, 4.2 GB, with depths and methods for such a model
#   --llama-bench FILE llama.cpp's llama-bench, built with CUDA, which is timed next to winnow
#   --depths N,N..     depths of winnow bench (default: 0,4096,32768; no deeper than the model's context)
#   --seconds N        seconds after which no step begins and a running step ends (default: 470)
#   --out FOLDER       folder of logs and rows (default: build/gpu-check)
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

only=all prebuilt='' pack='' model='' random='' llama='' depths=0,4096,32768 seconds=470 out=build/gpu-check
while [[ $# -gt 0 ]]; do
  case $1 in
    --only) only=$2; shift ;;
    --prebuilt) prebuilt=$2; shift ;;
    --pack) pack=$2; shift ;;
    --model) model=$2; shift ;;
    --random-8b) random=8b ;;
    --llama-bench) llama=$2; shift ;;
    --depths) depths=$2; shift ;;
    --seconds) seconds=$2; shift ;;
    --out) out=$2; shift ;;
    *) sed -n '2,17s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2 ;;
  esac
  shift
done
case $only in all | kernels | engine) ;; *) echo "error: --only takes kernels or engine, not '$only'" >&2; exit 2 ;; esac

fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

# --- The pack ----------------------------------------------------------------------------------------------------------

# Packs the programs with the libraries that a machine for CUDA may lack: all that they need but C's, C++'s and CUDA's.
pack_programs() {
  local to=$1 work programs=() program library
  work=$(mktemp -d)
  mkdir -p "$work/bin" "$work/lib"
  for program in winnow winnow_make_model; do
    [[ -x build/bin/$program ]] && programs+=("build/bin/$program")
  done
  [[ -x build/bin/winnow && -f build/bin/libwinnow-cuda.so ]] || fail "the tool or its plugin is not there: make cuda"
  cp "${programs[@]}" build/bin/libwinnow-cuda.so build/bin/libggml-cuda.so.0 "$work/bin/"
  strip "$work"/bin/* 2>/dev/null
  while read -r library; do
    case ${library##*/} in libc.so* | libm.so* | libstdc++.so* | libgcc_s.so*) continue ;; esac  # it has newer ones
    cp -L "$library" "$work/lib/"
  done < <(ldd "${programs[@]}" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u)
  tar -C "$work" -cf - bin lib | xz -T0 -3 >"$to" || fail "$to cannot be written"
  rm -rf "$work"
  echo "$to: $(($(stat -c %s "$to") / 1000000)) MB"
}
if [[ -n $pack ]]; then pack_programs "$pack"; exit; fi

# --- Steps -------------------------------------------------------------------------------------------------------------

mkdir -p "$out"
rows=()    # rows of the table: "name|value"
failed=()

# run_for SECONDS COMMAND...: runs COMMAND for at most SECONDS, and no longer than the time that is left.
run_for() {
  local limit=$1 left=$((seconds - SECONDS))
  shift
  if ((left < 3)); then echo 'there was no time left' >&2; return 124; fi
  timeout $((limit < left ? limit : left)) "$@"
}

# step NAME SECONDS COMMAND...: runs COMMAND with its output in a log, and records a failure.
step() {
  local name=$1 limit=$2 log=$out/$1.log status=0 start=$SECONDS
  shift 2
  printf '==> %s' "$name"
  run_for "$limit" "$@" >"$log" 2>&1 || status=$?
  printf ' (%d s)%s\n' $((SECONDS - start)) "$([[ $status -eq 0 ]] || echo " FAILED with status $status")"
  if [[ $status -ne 0 ]]; then
    failed+=("$name")
    tail -n 15 "$log" | sed 's/^/    /'
  fi
  return "$status"
}

row() { rows+=("$1|$2"); }

find_nvcc() {
  local nvcc
  for nvcc in "${CUDACXX:-}" "$(command -v nvcc)" "${CUDA_PATH:-/usr/local/cuda}/bin/nvcc" /usr/local/cuda/bin/nvcc; do
    if [[ -n $nvcc && -x $nvcc ]]; then echo "$nvcc"; return; fi
  done
}

command -v nvidia-smi >/dev/null || fail "there is no nvidia-smi: this is no machine with an NVIDIA driver"
IFS=, read -r card driver memory capability < <(
  nvidia-smi --query-gpu=name,driver_version,memory.total,compute_cap --format=csv,noheader | head -n 1)
[[ -n ${capability:-} ]] || fail "nvidia-smi lists no GPU"
architecture=sm_${capability//[. ]/}
[[ $architecture == sm_90 ]] && architecture=sm_90a  # else what is particular to 9.0 compiles to nothing
nvcc=$(find_nvcc)
row card "$card,$memory, compute capability$capability"
row driver "${driver# }, $([[ -n $nvcc ]] && "$nvcc" --version | sed -nE 's/.*release ([0-9.]+).*/nvcc \1/p')"

# --- Kernels -----------------------------------------------------------------------------------------------------------

# Compiles a program of bench/device. NAME compares results with a reference and then measures; NAME check only
# compares, in sizes for compute-sanitizer. Its exit status is 1 if a comparison failed.
compile() { "$nvcc" -arch="$architecture" -std=c++20 -O3 -Iinclude -Isrc -o "$out/$1" "bench/device/$1.cu" -lcublas; }

check_kernels() {
  local program tool dim names=() pids=() pid
  for program in bench/device/*.cu; do names+=("$(basename "$program" .cu)"); done
  printf '==> compiling %s for %s\n' "${names[*]}" "$architecture"
  for program in "${names[@]}"; do
    compile "$program" >"$out/compile-$program.log" 2>&1 &
    pids+=($!)
  done
  for pid in "${!pids[@]}"; do
    wait "${pids[$pid]}" || { failed+=("compile-${names[$pid]}"); tail -n 15 "$out/compile-${names[$pid]}.log"; }
  done
  if step copy_bandwidth 60 "$out/copy_bandwidth"; then
    while read -r what rate; do row "$what" "$rate GB/s"; done <"$out/copy_bandwidth.log"
  fi
  for program in "${names[@]}"; do
    [[ $program == copy_bandwidth || ! -x $out/$program ]] && continue
    step "$program" 120 "$out/$program"
    while IFS= read -r line; do [[ -z $line ]] || row "$program" "${line//|/ }"; done <"$out/$program.log"
    if command -v compute-sanitizer >/dev/null; then
      for tool in memcheck racecheck; do
        step "$program-$tool" 120 compute-sanitizer --tool $tool --error-exitcode 9 "$out/$program" check &&
          row "$program, $tool" clean
      done
    else
      row "$program, compute-sanitizer" 'not here: not done'
    fi
  done
  if [[ $architecture == sm_90a && -x $out/prefill_bench ]]; then
    for dim in 64 128 256; do
      step "prefill_bench-sm90-$dim" 60 "$out/prefill_bench" sm90 $dim check &&
        row "prefill_bench, sm90, heads of $dim" 'all checks passed'
    done
  fi
}

# --- The engine --------------------------------------------------------------------------------------------------------

winnow=build/bin/winnow

prepare_engine() {
  local program
  if [[ -n $prebuilt ]]; then
    step unpack 120 tar -xJf "$prebuilt" -C "$out" || return 1
    # Only winnow's programs may use these libraries. The plugin finds CUDA's own by its RPATH.
    for program in winnow winnow_make_model; do
      printf '#!/bin/sh\nLD_LIBRARY_PATH=%q exec %q "$@"\n' "$(realpath "$out")/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
        "$(realpath "$out")/bin/$program" >"$out/$program"
      chmod +x "$out/$program"
    done
    winnow=$out/winnow
  elif [[ ! -x $winnow || ! -f build/bin/libwinnow-cuda.so ]]; then
    step build 3000 make cuda || return 1
  fi
  step devices 60 "$winnow" info --devices || return 1
  cat "$out/devices.log"
  grep -q '^cuda:0 ' "$out/devices.log" || { failed+=(devices); return 1; }
  if [[ -n $random ]]; then
    model=$out/random-8b.gguf
    [[ -f $model ]] || step random-8b 240 "${winnow%/*}/winnow_make_model" "$model" --layers 32 --heads 32 --kv-heads 8 \
      --head-dim 128 --embd 4096 --ff 14336 --vocab 128256 --type q4_K --drawn-rows 64 || return 1
  elif [[ -z $model && -n ${WINNOW_MODEL:-} ]]; then
    model=$WINNOW_MODEL
  elif [[ -z $model && -f models/SmolLM2-135M-Instruct-Q4_1.gguf ]]; then
    model=models/SmolLM2-135M-Instruct-Q4_1.gguf
  elif [[ -z $model ]]; then
    model=$out/random-1b.gguf
    [[ -f $model ]] || step random-1b 120 "${winnow%/*}/winnow_make_model" "$model" || return 1
  fi
  row model "$(basename "$model"), $(($(stat -L -c %s "$model") / 1000000)) MB"
}

# bench_rows FILE NAME: prints the results of winnow bench as rows of the table: "cuda, full, pp4096|1234.5 +- 1.2 t/s,
# KV ...".
bench_rows() {
  python3 - "$@" <<'PYTHON'
import json, sys
file, name = sys.argv[1:]
for r in json.load(open(file)):
    test = f"pp{r['n_prompt']}" if r["n_prompt"] else f"tg{r['n_gen']}"
    depth = f" @ d{r['n_depth']}" if r["n_depth"] else ""
    part = f" {r['kv_budget']}" if r["kv_budget"] else ""
    if "streamed" in name:
        part += f", {r['n_gpu_layers']} layers stay"
    print(f"{r['backends']}, {r['kv_method']}{part}, {test}{depth}|{r['avg_ts']:.1f} +- {r['stddev_ts']:.1f} t/s, "
          f"KV {r['kv_bytes_kept'] / 2**20:.0f} MiB, peak {r['kv_bytes_peak'] / 2**20:.0f}")
PYTHON
}

# bench NAME SECONDS FLAG...: runs winnow bench and adds its rows to the table.
bench() {
  local name=$1 limit=$2
  shift 2
  run_for "$limit" "$winnow" bench -m "$model" -o json "$@" >"$out/$name.json" 2>"$out/$name.log"
  local status=$?
  printf '==> %s%s\n' "$name" "$([[ $status -eq 0 ]] || echo " FAILED with status $status")"
  if [[ $status -ne 0 ]]; then failed+=("$name"); tail -n 5 "$out/$name.log" | sed 's/^/    /'; return 1; fi
  while IFS='|' read -r what value; do row "$what" "$value"; done < <(bench_rows "$out/$name.json" "$name")
}

# Compares the greedy answers of the processor and of the GPU for each method, and of a GPU that has no layer's weights.
# Ties may make them differ; the table shows from which byte on.
compare_answers() {
  local i method text=$out/text.txt args
  # The text has words that no model has seen in this order, and enough of them that a budget cuts the cache.
  for i in $(seq 1 150); do echo "Chapter $i. On day $i the harbour master wrote $((i * 7919 % 1000)) in the blue book."; done >"$text"
  for method in full snapkv ada-snapkv critical-ada-snapkv cake lava tova keydiff auto auto-fast; do
    args=(run -m "$model" -f "$text" -n 24 --temp 0 --seed 1 --kv-evict "$method")
    case $method in
      full) ;;
      auto*) args+=(--kv-budget 20%bytes) ;;  # in few bits
      *) args+=(--kv-budget 20%) ;;
    esac
    run_for 60 "$winnow" "${args[@]}" >"$out/cpu-$method.txt" 2>"$out/cpu-$method.log" || { failed+=("cpu $method"); continue; }
    if ! run_for 60 "$winnow" "${args[@]}" --device cuda >"$out/cuda-$method.txt" 2>"$out/cuda-$method.log"; then
      row "answers, $method" "$(tail -n 1 "$out/cuda-$method.log")"
      failed+=("cuda $method")
    elif cmp -s "$out/cpu-$method.txt" "$out/cuda-$method.txt"; then
      row "answers, $method" 'as on the processor'
    else
      row "answers, $method" "parts at $(cmp "$out/cpu-$method.txt" "$out/cuda-$method.txt" | grep -oE 'byte [0-9]+')"
    fi
  done
  if ! run_for 60 "$winnow" run -m "$model" -f "$text" -n 24 --temp 0 --seed 1 --device cuda -ngl 0 \
    >"$out/streamed.txt" 2>"$out/streamed.log"; then
    failed+=('weights that are copied')
  elif cmp -s "$out/cuda-full.txt" "$out/streamed.txt"; then
    row 'answers, weights that are copied' 'as with all on the GPU'
  else
    row 'answers, weights that are copied' 'others than with all on the GPU'
    failed+=('weights that are copied')
  fi
}

# Compares what the processor and the GPU predict with methods that together run all kernels: the loss of the full cache,
# and how far predictions with a cut cache are from it. Entries whose scores nearly tie make the latter differ.
compare_predictions() {
  local device
  for device in cpu cuda; do
    rm -rf "$out/fidelity-$device"
    step "fidelity-$device" 120 "$winnow" eval fidelity -m "$model" --device $device --lengths 1000 --limit 2 \
      --methods 'full;snapkv;critical-ada-snapkv;cake;lava;h2o;kvzip;tova;keydiff;expected-attention;auto' \
      --budgets 20%,10%bytes --out "$out/fidelity-$device" || return 1
  done
  step predictions 20 python3 - "$out/fidelity-cpu" "$out/fidelity-cuda" <<'PYTHON'
import collections, glob, json, statistics, sys

def means(folder):
    cells = collections.defaultdict(list)
    for file in glob.glob(folder + "/answers-*.jsonl"):
        for answer in map(json.loads, open(file)):
            field = "nll" if answer["method"] == "full" else "kl"
            number = answer.get(field)  # none if the sample failed
            cells[f"{field} of {answer['method']} {answer['budget']}"].append(float("nan") if number is None else number)
    return {name: statistics.fmean(values) for name, values in cells.items()}

cpu, cuda = map(means, sys.argv[1:])
bad = not cpu or cpu.keys() != cuda.keys()
for name, x in cpu.items():
    most = 0.02 if name.startswith("nll") else 0.02 + 0.5 * x  # nats a token
    y = cuda.get(name, float("nan"))
    is_near = abs(x - y) <= most  # not if one is NaN
    bad |= not is_near
    print(f"{name}|{x:.4f} on the processor, {y:.4f} on the GPU{'' if is_near else ': TOO FAR APART'}")
sys.exit(bad)
PYTHON
  while IFS='|' read -r what value; do row "$what" "$value"; done <"$out/predictions.log"
}

# Runs the engine's tests of devices on this one.
test_engine() {
  local program=build/bin/engine_device_executor_test
  if [[ -n $prebuilt || ! -x $program ]]; then row 'tests of the engine' 'not built: not done'; return; fi
  step engine-tests 120 env WINNOW_TEST_DEVICE=cuda $program \
    --gtest_filter='DeviceExecutorTest.*:*/DeviceMethodTest.*:*/DeviceCodesTest.*' && row 'tests of the engine' 'all passed'
}

# Times an 8B: prompts, methods at 32,768 tokens, decoding steps at depths, and llama.cpp if it is given.
check_8b() {
  local method
  bench prompts 60 --device cuda -p 4096,32768 -n 0 -r 2
  for method in snapkv ada-snapkv critical-ada-snapkv cake lava; do
    bench "prompt-$method" 40 --device cuda -p 32768 -n 0 -r 1 --kv-evict "$method" --kv-budget 10%
  done
  for method in auto-fast auto; do
    bench "prompt-$method" 60 --device cuda -p 32768 -n 0 -r 1 --kv-evict "$method" --kv-budget 10%bytes
  done
  bench steps 60 --device cuda -p 0 -n 64 -d 0,32768 -r 2
  bench steps-long 60 --device cuda -p 0 -n 64 -d 131072 -r 1
  bench steps-cut 60 --device cuda -p 0 -n 64 -d 32768,131072 -r 1 --kv-evict snapkv --kv-budget 10%
  bench steps-codes 60 --device cuda -p 0 -n 64 -d 32768 -r 1 --kv-evict auto-fast --kv-budget 10%bytes
  bench streamed 60 --device cuda -ngl 16 -p 32768 -n 8 -r 1
  if [[ -n $llama ]]; then
    llama_bench prompts 60 -p 4096,32768 -n 0 -r 2
    llama_bench steps 40 -p 0 -n 64 -d 0,32768 -r 2
    llama_bench steps-long 90 -p 0 -n 64 -d 131072 -r 1
  fi
}

# llama_bench NAME SECONDS FLAG...: runs llama.cpp's llama-bench and adds its rows to the table.
llama_bench() {
  local name=llama-$1 limit=$2
  shift 2
  run_for "$limit" "$llama" -m "$model" -ngl 99 -fa 1 -b 2048 -ub 2048 -o json "$@" >"$out/$name.json" 2>"$out/$name.log" ||
    { failed+=("$name"); tail -n 5 "$out/$name.log" | sed 's/^/    /'; return 1; }
  while IFS='|' read -r what value; do row "$what" "$value"; done < <(python3 - "$out/$name.json" <<'PYTHON'
import json, sys
for r in json.load(open(sys.argv[1])):
    test = f"pp{r['n_prompt']}" if r["n_prompt"] else f"tg{r['n_gen']}"
    depth = f" @ d{r['n_depth']}" if r["n_depth"] else ""
    print(f"llama.cpp, {test}{depth}|{r['avg_ts']:.1f} +- {r['stddev_ts']:.1f} t/s")
PYTHON
  )
}

check_engine() {
  prepare_engine || return
  if [[ -n $random ]]; then
    check_8b
    return
  fi
  bench cuda-full 120 --device cuda -p 512,4096 -n 64 -d "$depths" -r 3
  bench cuda-cut 120 --device cuda -p 4096 -n 64 -d "$depths" -r 3 --kv-evict snapkv --kv-evict ada-snapkv --kv-budget 10%
  # The processor is timed at the first depth only, since all depths could take hours.
  bench cpu 90 -p 512 -n 16 -d "${depths%%,*}" -r 1
  compare_answers
  compare_predictions
  test_engine
}

if [[ $only != engine ]]; then
  if [[ -n $nvcc ]]; then check_kernels; else failed+=('kernels: no nvcc'); fi
fi
if [[ $only != kernels ]]; then check_engine; fi

{
  echo '| what | |'
  echo '|---|---|'
  for line in "${rows[@]}"; do printf '| %s | %s |\n' "${line%%|*}" "${line#*|}"; done
} | tee "$out/table.md"
printf '%d s\n' "$SECONDS"
if ((${#failed[@]} > 0)); then
  printf 'FAILED: %s\n' "${failed[@]}"
  exit 1
fi
