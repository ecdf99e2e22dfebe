#!/usr/bin/env python3
"""Compares a prefill's memory with the promised amount.

    bench/memory.py [-m MODEL] [--text FILE] [-n 4096,16384] [--kv-evict snapkv] [--kv-budget 1024]
                    [--winnow-args "--prefill chunked"] [-o md|json]

Each row is a process of its own that prefills n tokens of the text (repeated if it is too short) and decodes one.
Promised are the kept entries, one layer's keys and values in the staging buffer, and a page for each head's rounding;
the hidden states are counted besides the cache. "rest" is the process's peak beyond these: weights that were read and
compute buffers.
"""
import argparse
import json
import pathlib
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
MIB = 1 << 20


def report_of(winnow, model, text, extra):
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as prompt:
        prompt.write(text)
        prompt.flush()
        command = [winnow, "run", "-m", model, "-f", prompt.name, "-n", "1", "--ignore-eos", "--json", "-", *extra]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"error: {shlex.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def text_of(winnow, model, text, n_tokens):
    """Returns a piece of the text, repeated as needed, of about n_tokens tokens."""
    tokens = report_of(winnow, model, text[:4000], [])["prompt_tokens"]
    n_chars = int(n_tokens * len(text[:4000]) / tokens)
    return (text * (n_chars // len(text) + 1))[:n_chars]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--winnow", default=str(ROOT / "build/bin/winnow"))
    parser.add_argument("-m", "--model", default=str(ROOT / "models/SmolLM2-135M-Instruct-Q4_1.gguf"))
    parser.add_argument("--text", default=str(ROOT / "tests/data/hound-of-the-baskervilles.txt"))
    parser.add_argument("-n", "--tokens", default="1024,4096,8000")
    parser.add_argument("--kv-evict", default="snapkv")
    parser.add_argument("--kv-budget", default="256")
    parser.add_argument("--winnow-args", default="", help="further arguments of winnow run")
    parser.add_argument("-o", "--output", choices=("md", "json"), default="md")
    args = parser.parse_args()

    text = pathlib.Path(args.text).read_text(encoding="utf-8")
    rows = []
    for n_tokens in (int(n) for n in args.tokens.split(",")):
        prompt = text_of(args.winnow, args.model, text, n_tokens)
        for method in ("full", args.kv_evict):
            extra = shlex.split(args.winnow_args) if method != "full" else []
            if method != "full":
                extra += ["--kv-evict", method, "--kv-budget", args.kv_budget]
            report = report_of(args.winnow, args.model, prompt, extra)
            kv, memory = report["kv"], report["memory"]
            entry = kv["bytes_kept"] / kv["entries_kept"]
            n_heads = sum(len(layer) for layer in kv["kept"])
            # A page holds 32 entries, and the cascade rounds every head's share up.
            promised = kv["bytes_kept"] + memory["staging_bytes"] + n_heads * 33 * entry
            rows.append({
                "tokens": report["prompt_tokens"],
                "method": kv["method"],
                "kv_full": kv["bytes_full"],
                "kv_kept": kv["bytes_kept"],
                "staging": memory["staging_bytes"],
                "kv_peak": kv["bytes_peak"],
                "kv_promised": promised,
                "hidden": memory["hidden_bytes"],
                "process_peak": memory["rss_peak_bytes"],
                "rest": memory["rss_peak_bytes"] - kv["bytes_peak"] - memory["hidden_bytes"],
            })
    if args.output == "json":
        print(json.dumps(rows))
    else:
        columns = ["kv_full", "kv_kept", "staging", "kv_peak", "kv_promised", "hidden", "process_peak", "rest"]
        print("MiB\n\n| tokens | method | " + " | ".join(name.replace("_", " ") for name in columns) + " |")
        print("|" + "---|" * (len(columns) + 2))
        for row in rows:
            print(f"| {row['tokens']:,} | {row['method']} | " +
                  " | ".join(f"{row[name] / MIB:.1f}" for name in columns) + " |")
    if any(row["kv_peak"] > row["kv_promised"] for row in rows):
        sys.exit("error: a peak is above what was promised")


if __name__ == "__main__":
    main()
