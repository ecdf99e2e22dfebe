#!/usr/bin/env python3
"""Compare winnow's speed with llama-bench's, in alternation, on one machine.

    bench/peers.py --llama-bench PATH [--llama-args "--repack 0"] [-m MODEL] [-t 2]
                   [-p 512,4096] [-n 64] [-d 0,4096] [--rounds 5] [-o md|json]

Every round runs each program once, so that a drift of the machine's speed hits both; the table shows the medians over
the rounds and the median of the ratios round by round. llama-bench runs with and without flash attention and with a q8_0
cache, and each row is compared with the best of them. llama-bench is not part of this repository: give the path of any build, best one
of the same sources as the libllama that winnow uses. More peers can be added: --llama-bench may be given several times.
"""
import argparse
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys

# A peer's row is the best of these.
PEER_CONFIGURATIONS = (["-fa", "0"], ["-fa", "1"], ["-fa", "1", "-ctk", "q8_0", "-ctv", "q8_0"])

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


def test_name(row):
    name = f"pp{row['n_prompt']}" if row["n_prompt"] else f"tg{row['n_gen']}"
    return name + (f" @ d{row['n_depth']}" if row["n_depth"] else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-bench", action="append", required=True, metavar="PATH")
    parser.add_argument("--llama-args", default="", help="further arguments of every llama-bench")
    parser.add_argument("--winnow", default=str(ROOT / "build/bin/winnow"))
    parser.add_argument("--winnow-args", default="", help="further arguments of winnow bench, e.g. '--kv-evict ...'")
    parser.add_argument("-m", "--model", default=str(ROOT / "models/SmolLM2-135M-Instruct-Q4_1.gguf"))
    parser.add_argument("-t", "--threads", default=str(os.cpu_count()))
    parser.add_argument("-p", "--prompts", default="512")
    parser.add_argument("-n", "--generate", default="64")
    parser.add_argument("-d", "--depths", default="0")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("-o", "--output", choices=("md", "json"), default="md")
    args = parser.parse_args()

    flags = ["-m", args.model, "-t", args.threads, "-p", args.prompts, "-n", args.generate, "-d", args.depths,
             "-r", "1", "-o", "json"]
    programs = {"winnow": [[args.winnow, "bench", *flags, *shlex.split(args.winnow_args)]]}
    for path in args.llama_bench:
        peer = [path, *flags, *shlex.split(args.llama_args)]
        programs[path] = [[*peer, *configuration] for configuration in PEER_CONFIGURATIONS]

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
    header = ["test", "winnow"] + [x for peer in peers for x in (pathlib.Path(peer).name, "ratio")]
    print("| " + " | ".join(header) + " |")
    print("|" + "---|" * len(header))
    for row in rows:
        cells = [row["test"], f"{row['winnow']:.1f}"]
        for peer in peers:
            cells += [f"{row[peer]:.1f}", f"{row['ratio ' + peer]:.2f}x"]
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
