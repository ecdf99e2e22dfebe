#!/usr/bin/env python3
"""Compare winnow's speed with llama-bench's, in alternation, on one machine.

    bench/peers.py --llama-bench "PATH [ARGUMENTS]" [-m MODEL] [-t 2] [-p 512,4096] [-n 64]
                   [-d 0,4096] [--configuration "-fa 1"] [--rounds 5] [-r 1] [-o md|json]

Every round runs each program once, so that a drift of the machine's speed affects both; the table shows the medians
over the rounds and the median of the ratios round by round. llama-bench runs with and without flash attention and with
a q8_0 cache (or in the given configurations), and each row is compared with the best of them. llama-bench is not part
of this repository: give the path of any build with its arguments ("PATH --repack 0"), best one of the same sources as
the libllama that winnow uses. It may be given several times; ik_llama.cpp's, which has -gp instead of -d, is supported.
"""
import argparse
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import time

# The best of these is a peer's row.
PEER_CONFIGURATIONS = ("-fa 0", "-fa 1", "-fa 1 -ctk q8_0 -ctv q8_0")

ROOT = pathlib.Path(__file__).resolve().parent.parent


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            flags = pathlib.Path("/proc/cpuinfo").read_text()
            extras = [name for name in ("amx_tile", "avx512_bf16", "avx512f", "avx2") if name in flags]
            return line.split(":", 1)[1].strip() + " (" + ", ".join(extras) + ")"
    return "unknown"


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"error: {shlex.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def process_cost(command):
    """Returns (seconds, peak resident MiB) of a whole process."""
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"error: {shlex.join(command)} ended with {os.waitstatus_to_exitcode(status)}:\n{errors[-2000:]}")
    return time.monotonic() - start, usage.ru_maxrss / 1024


def compare_loading(args):
    flags = ["-m", args.model, "-t", args.threads, "-p", "1", "-n", "0", "-r", "1"]
    programs = {"winnow": [args.winnow, "bench", *flags, *shlex.split(args.winnow_args)]}
    for peer in map(shlex.split, args.llama_bench):
        for configuration in map(shlex.split, args.configuration or ["-fa 1"]):
            programs[shlex.join([*peer, *configuration])] = [*peer, *configuration, *flags]
    costs = {name: [] for name in programs}
    for _ in range(args.rounds):
        for name, command in programs.items():
            costs[name].append(process_cost(command))
    rows = [{"program": name, "seconds": statistics.median(s for s, _ in values),
             "peak_mib": statistics.median(mib for _, mib in values)} for name, values in costs.items()]
    if args.output == "json":
        return print(json.dumps({"processor": processor(), "rounds": args.rounds, "rows": rows}))
    print(f"{processor()}, {args.threads} threads, medians of {args.rounds} alternating rounds\n")
    print("| loads and computes a token | seconds | peak MiB |\n|---|---:|---:|")
    for row in rows:
        arguments = shlex.split(row["program"])[1:]
        print(f"| {' '.join([peer_name(row['program']), *arguments])} | {row['seconds']:.2f} | {row['peak_mib']:.0f} |")


def test_name(row):
    depth = row.get("n_depth", 0)
    if row["n_prompt"] and row["n_gen"]:  # -gp: generation after a prompt
        depth = row["n_prompt"]
    name = f"tg{row['n_gen']}" if row["n_gen"] else f"pp{row['n_prompt']}"
    return name + (f" @ d{depth}" if depth else "")


def peer_tests(program, prompts, generate, depths):
    """Returns llama-bench's flags for prompts and generation at depth 0, and for generation at the depths."""
    has_depth = "--n-depth" in subprocess.run([program, "--help"], capture_output=True, text=True, check=False).stdout
    if has_depth:
        return ["-p", prompts, "-n", generate, "-d", depths]
    flags = ["-p", prompts, "-n", generate if "0" in depths.split(",") else "0"]
    for depth in depths.split(","):
        if depth != "0" and generate != "0":
            flags += ["-gp", f"{depth},{generate}"]
    return flags


def peer_name(command):
    """Returns a name with the build's folders, which distinguish builds of the same name:
    ik_llama.cpp/build/bin/llama-bench."""
    path = pathlib.Path(shlex.split(command)[0])
    return "/".join(path.parts[-4:]) if len(path.parts) > 4 else path.name


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-bench", action="append", required=True, metavar="'PATH ARGUMENTS'")
    parser.add_argument("--configuration", action="append", help="arguments of a run of every llama-bench")
    parser.add_argument("--winnow", default=str(ROOT / "build/bin/winnow"))
    parser.add_argument("--winnow-args", default="", help="further arguments of winnow bench, e.g. '--kv-evict ...'")
    parser.add_argument("-m", "--model", default=str(ROOT / "models/SmolLM2-135M-Instruct-Q4_1.gguf"))
    parser.add_argument("-t", "--threads", default=str(os.cpu_count()))
    parser.add_argument("-p", "--prompts", default="512")
    parser.add_argument("-n", "--generate", default="64")
    parser.add_argument("-d", "--depths", default="0")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("-r", "--repetitions", default="1", help="of each test in a round")
    parser.add_argument("-o", "--output", choices=("md", "json"), default="md")
    parser.add_argument("--load", action="store_true", help="compare loading: seconds and peak memory of a process")
    args = parser.parse_args()
    if args.load:
        return compare_loading(args)

    flags = ["-m", args.model, "-t", args.threads, "-r", args.repetitions, "-o", "json"]
    tests = ["-p", args.prompts, "-n", args.generate, "-d", args.depths]
    programs = {"winnow": [[args.winnow, "bench", *flags, *tests, *shlex.split(args.winnow_args)]]}
    for peer in map(shlex.split, args.llama_bench):
        command = [*peer, *flags, *peer_tests(peer[0], args.prompts, args.generate, args.depths)]
        configurations = args.configuration or PEER_CONFIGURATIONS
        programs[shlex.join(peer)] = [[*command, *shlex.split(configuration)] for configuration in configurations]

    speeds = {}  # test -> program -> [tokens/s per round]
    for number in range(args.rounds):
        for program, commands in programs.items():
            best = {}
            for command in commands:
                for row in run(command):
                    name = test_name(row)
                    best[name] = max(best.get(name, 0.0), row["avg_ts"])
            for name, speed in best.items():
                speeds.setdefault(name, {}).setdefault(program, []).append(speed)
        print(f"round {number + 1} of {args.rounds} done", file=sys.stderr)

    rows = []
    for name, by_program in speeds.items():
        row = {"test": name}
        for program, values in by_program.items():
            row[program] = statistics.median(values)
            if program != "winnow" and "winnow" in by_program:
                row["ratio " + program] = statistics.median(a / b for a, b in zip(by_program["winnow"], values))
        rows.append(row)
    if args.output == "json":
        print(json.dumps({"processor": processor(), "threads": int(args.threads), "rounds": args.rounds, "rows": rows}))
        return
    print(f"{processor()}, {args.threads} threads, medians of {args.rounds} alternating rounds, tokens/s\n")
    peers = list(programs)[1:]
    header = ["test", "winnow"] + [x for peer in peers for x in (peer_name(peer), "ratio")]
    print("| " + " | ".join(header) + " |")
    print("|" + "---|" * len(header))
    for row in rows:
        cells = [row["test"], f"{row['winnow']:.1f}" if "winnow" in row else "-"]
        for peer in peers:
            has_row = peer in row and "ratio " + peer in row
            cells += [f"{row[peer]:.1f}", f"{row['ratio ' + peer]:.2f}x"] if has_row else ["-", "-"]
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
