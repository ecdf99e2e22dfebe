#!/usr/bin/env python3
"""Compares LU-KV profiles with other ways to share a budget, under the same scorer, on held-out text.

Runs one `winnow analyze` for every prompt: contexts from the texts, each followed by its own next tokens, or by a
question and the full cache's answer. Prints tables of means with standard errors: LU-KV's loss, the next tokens' KL
divergence from the full cache, and the attention mass of the context's last row that is kept. Brackets contain the
number of prompts for which the profile has the smaller value. The last row of the first table has the best budgets for
this ranking and this prompt (convexified).

  bench/profiles.py --tool build/bin/winnow TEXT... --scorer snapkv --prompts 16
"""
import argparse
import json
import math
import subprocess
import sys

# The allocators of each scorer: the name in the table, and the options that follow SCORER:sinks=4,...
ALLOCATORS = {
    "uniform": "layers=uniform,heads=uniform",
    "pyramid": "layers=pyramid,heads=uniform",
    "cake": "layers=cake,heads=uniform",
    "lava": "layers=lava,heads=flat",
    "ada": "layers=uniform,heads=ada",
    "lu-kv": "layers=lu-kv,heads=lu-kv",
}
# The options with which the shipped profiles were calibrated, and the allocators that the scorer does not support.
SCORERS = {
    "snapkv": ("sinks=4", ()),
    "keydiff": ("sinks=4,window=1", ("cake", "lava")),  # CAKE needs two rows, LAVa non-negative scores
    "expected-attention": ("window=1,ea-eps=0.02", ("cake",)),
}


def analyze(args, text, offset):
    options, left_out = SCORERS[args.scorer]
    names = [name for name in ALLOCATORS if name not in left_out]
    methods = ",".join(f"{args.scorer}:{options},{ALLOCATORS[name]}" for name in names)
    command = [args.tool, "analyze", "-f", text, "--offset", str(offset), "--tokens", str(args.tokens), "-n",
               str(args.continuation), "--methods", methods, "--budgets", args.budgets, "--json", "-"]
    command += ["-m", args.model] if args.model else []
    command += ["-t", str(args.threads)] if args.threads else []
    command += ["-q", args.question] if args.question else []
    cuts = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)["cuts"]
    n_budgets = len(args.budgets.split(","))
    return {(names[i // n_budgets], cut["budget"]): cut for i, cut in enumerate(cuts)}


def mean_and_error(values):
    mean = sum(values) / len(values)
    if len(values) < 2:
        return mean, 0.0
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return mean, math.sqrt(variance / len(values))


def table(results, title, value, scale, digits):
    budgets = list(dict.fromkeys(budget for _, budget in results[0]))
    names = list(dict.fromkeys(name for name, _ in results[0]))
    print(f"\n| {title} | " + " | ".join(budgets) + " |")
    print("|---|" + "---:|" * len(budgets))
    for name in names:
        cells = []
        for budget in budgets:
            values = [value(result[name, budget]) * scale for result in results]
            mean, error = mean_and_error(values)
            cell = f"{mean:.{digits}f} ± {error:.{digits}f}"
            if name != "lu-kv":
                own = [value(result["lu-kv", budget]) * scale for result in results]
                cell += f" ({sum(a < b for a, b in zip(own, values))})"
            cells.append(cell)
        print(f"| {name} | " + " | ".join(cells) + " |")


def mass(cut):
    heads = [mean_and_error(layer["mass"])[0] for layer in cut["layers"] if layer["mass"]]  # no window has any
    return sum(heads) / len(heads)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", nargs="+", help="texts that no profile was calibrated on")
    parser.add_argument("--tool", default="build/bin/winnow")
    parser.add_argument("-m", "--model")
    parser.add_argument("-t", "--threads", type=int)
    parser.add_argument("--scorer", choices=SCORERS, default="snapkv")
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--continuation", type=int, default=128)
    parser.add_argument("-q", "--question", help="ask this after every context")
    parser.add_argument("--budgets", default="5%,10%,20%,50%")
    args = parser.parse_args()
    results = []
    for i in range(args.prompts):
        text = args.texts[i % len(args.texts)]
        offset = 1000 + i // len(args.texts) * 2 * args.tokens
        results.append(analyze(args, text, offset))
        print(f"prompt {i + 1} of {args.prompts}", file=sys.stderr)
    print(f"{args.scorer}, {args.prompts} prompts of {args.tokens} tokens")
    table(results, "oracle loss, %", lambda cut: cut["oracle"]["loss"], 100, 1)
    best = [mean_and_error([result["lu-kv", budget]["oracle"]["best_allocation"] * 100 for result in results])
            for budget in args.budgets.split(",")]
    print("| best for the prompt | " + " | ".join(f"{mean:.1f} ± {error:.1f}" for mean, error in best) + " |")
    table(results, "KL, nats", lambda cut: cut["next"]["kl_mean"], 1, 4)
    table(results, "mass kept, %", mass, 100, 1)


if __name__ == "__main__":
    main()
