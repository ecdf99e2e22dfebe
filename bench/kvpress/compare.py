#!/usr/bin/env python3
"""Compare the tokens that winnow keeps with those that kvpress 0.5.5 keeps: same weights in float32, same token ids.

    python3 -m venv build/kvpress && build/kvpress/bin/pip install -r bench/kvpress/requirements.txt
    build/kvpress/bin/python bench/kvpress/compare.py [--winnow build/bin/winnow] [-m MODEL] [-f TEXT] [-n 2000]
                                                      [--only PRESS] [--options METHOD:...] [--json FILE]

(torch brings some GB of CUDA's libraries; no GPU is used.) The model's tensors are dequantised once, to a GGUF file
(540 MB for the default model, in a temporary folder) and to a transformers model. The prompt is the beginning of a
text, cut after the given number of tokens; libllama's tokenizer in the repository's .venv gives kvpress the ids that
winnow computes from the same text. The tokens that kvpress keeps are found from outside: the rows of the pruned keys
are looked up among all keys, or read from the mask that kvpress applies to them. The tokens that winnow keeps are those
that `winnow run --kv-positions` writes.

A row of the table is a press and the option line that chooses the same tokens, derived below from the press's settings.
Per layer and KV head, agreement is the number of tokens that both keep over the larger of the two numbers kept. A
difference is a tie if kvpress's own scores of the tokens in question are nearer than --tie (relative), since two
programs in float32 round differently. The exit code is 1 if there is a difference that is not a tie. A row in brackets
has no option line that chooses the same tokens; it shows how near one comes and is not judged. --options tries another
line, for instance

    compare.py --only SnapKV --options snapkv      winnow's own defaults: another window, another pooling

Takes about 5 minutes on two cores and the memory of three float32 copies of the model; not a test.
"""
import argparse
import contextlib
import dataclasses
import io
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

import kvpress
import torch
from transformers import DynamicCache

import models

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LEAST_AGREEMENT = 0.995


@dataclasses.dataclass
class Case:
    name: str
    press: object
    options: str  # winnow's option line
    budget: int  # tokens per head
    flat: bool = False  # the heads of a layer share its budget, so scores are compared across heads
    judged: bool = True  # False: no option line chooses the same tokens, and this is the nearest one


def share(part, whole):
    """Returns the shortest decimal fraction for which floor(fraction * whole) is `part`."""
    for digits in range(1, 17):
        fraction = math.ceil(part / whole * 10**digits) / 10**digits
        if math.floor(fraction * whole) == part:
            return f"{fraction:.{digits}f}"
    return repr(part / whole)


def cases(n_tokens, n_layer):
    # About 29 % of the tokens are kept, so that the layers of the pyramid differ by whole tokens. kvpress rounds each
    # layer to whole tokens and lets the sum drift; winnow rounds to entries and keeps the sum.
    beta = 5
    unit = beta * (n_layer - 1)
    budget = unit * round(0.29 * n_tokens / unit)
    ratio = 1 - budget / n_tokens
    ratio = min((ratio, ratio - 1e-12, ratio + 1e-12), key=lambda r: abs(n_tokens * (1 - r) - budget - 1e-9))
    kept = kvpress.utils.compute_n_kept(n_tokens, ratio)
    if kept != budget:
        raise SystemExit(f"error: kvpress rounds {n_tokens} * {1 - ratio} to {kept}, not {budget}: choose another -n")
    w = 64
    snapkv = f"window={w},pool=avg,kernel=5"
    prefix = budget - w

    def snap():
        return kvpress.SnapKVPress(compression_ratio=ratio, window_size=w, kernel_size=5)

    # PyramidKVPress shrinks budgets including the window from layer to layer; its last layer keeps budget / beta in
    # all.
    if budget / beta < w:
        raise SystemExit("error: PyramidKVPress turns into SnapKVPress at so small a budget: choose a larger -n")
    pyramid_beta = prefix / (budget / beta - w)
    # AdaKVPress counts the window into each head's minimum.
    minimum = max(0, int(budget * 0.2) - w)
    # CriticalKVPress counts the window into its first stage.
    first = max(0, int(budget * 0.5) - w)
    critical = f"first-stage={share(first, prefix)}"
    return [
        Case("SnapKV", snap(), f"snapkv:{snapkv}", budget),
        Case("StreamingLLM", kvpress.StreamingLLMPress(ratio), "streaming-llm:window=0", budget),
        Case("TOVA", kvpress.TOVAPress(ratio), "tova:window=1", budget),
        Case("Knorm", kvpress.KnormPress(ratio), "knorm:window=0", budget),
        Case("KeyDiff", kvpress.KeyDiffPress(ratio), "keydiff:window=0", budget),
        Case("Expected Attention", kvpress.ExpectedAttentionPress(ratio), "expected-attention:window=0", budget),
        Case("PyramidKV", kvpress.PyramidKVPress(compression_ratio=ratio, window_size=w, kernel_size=5, beta=beta),
             f"pyramidkv:{snapkv},beta={pyramid_beta:.10g}", budget),
        Case("Ada-SnapKV", kvpress.AdaKVPress(snap(), alpha_safeguard=0.2),
             f"ada-snapkv:{snapkv},safeguard=minimum,alpha={share(minimum, prefix)}", budget, flat=True),
        Case("CriticalKV", kvpress.CriticalKVPress(snap()), f"critical-snapkv:{snapkv},{critical}", budget),
        # With heads of different size the window is a different part of each head's first stage.
        Case("CriticalAdaKV", kvpress.CriticalAdaKVPress(snap(), alpha_safeguard=0.2),
             f"critical-ada-snapkv:{snapkv},safeguard=minimum,alpha={share(minimum, prefix)},{critical}", budget,
             flat=True, judged=False),
    ]


def tokenize(python, model, text):
    """Returns libllama's ids of each `text`, computed as for winnow."""
    code = ("import json,sys,llama_cpp;"
            "m=llama_cpp.Llama(sys.argv[1],vocab_only=True,verbose=False);"
            "t=json.load(sys.stdin);"
            "json.dump([m.tokenize(x.encode(),add_bos=True,special=True) for x in t],sys.stdout)")
    done = subprocess.run([python, "-c", code, str(model)], input=json.dumps(text), capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        raise SystemExit(f"error: tokenizing with {python} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def cut_prompt(python, model, text, n_tokens):
    """Returns the longest beginning of the text with n_tokens tokens, and its ids."""
    whole = tokenize(python, model, [text])[0]
    if len(whole) < n_tokens:
        raise SystemExit(f"error: the text has {len(whole)} tokens, fewer than {n_tokens}")
    guess = int(len(text) * n_tokens / len(whole))
    beginnings = [text[:k] for k in range(max(1, guess - 1500), min(len(text), guess + 1500))]
    fitting = [(b, ids) for b, ids in zip(beginnings, tokenize(python, model, beginnings)) if len(ids) == n_tokens]
    if not fitting:
        raise SystemExit(f"error: no beginning of the text has {n_tokens} tokens: choose another -n")
    return fitting[-1]


class Observer:
    """Runs a press. Afterwards kept[layer][head] is a set of tokens and scores[layer] a list of [n_kv_head][n] tensors:
    those of the press that it wraps, if any, then its own."""

    def __init__(self, model, press):
        self.model, self.press = model, press
        self.kept, self.scores = [], []

    def run(self, ids):
        inner = getattr(self.press, "press", None)
        for press in (self.press, inner):
            if hasattr(press, "score"):
                press.score = self.recorded(press.score)
        compress = self.press.compress

        def observed(module, hidden_states, keys, values, attentions, kwargs):
            self.scores.append([])
            pruned = compress(module, hidden_states, keys, values, attentions, kwargs)
            self.kept.append(self.kept_tokens(module, keys, pruned[0]))
            return pruned

        self.press.compress = observed
        with torch.no_grad(), self.press(self.model):
            self.model(torch.tensor([ids]), past_key_values=DynamicCache(), logits_to_keep=1)
        return self

    def recorded(self, score):
        def wrapper(module, hidden_states, keys, values, attentions, kwargs):
            result = score(module, hidden_states, keys, values, attentions, kwargs)
            self.scores[-1].append(result[0].clone())
            return result

        return wrapper

    @staticmethod
    def kept_tokens(module, keys, pruned):
        masked = getattr(module, "masked_key_indices", None)
        n_kv_head, n = keys.shape[1:3]
        if masked is not None:
            module.masked_key_indices = None
            heads = [set(range(n)) for _ in range(n_kv_head)]
            for head, token in zip(masked[1].tolist(), masked[2].tolist()):
                heads[head].discard(token)
            return heads
        heads = []
        for head in range(n_kv_head):
            rows = {row.numpy().tobytes(): i for i, row in enumerate(keys[0, head])}
            assert len(rows) == n, "two tokens have the same key"
            heads.append({rows[row.numpy().tobytes()] for row in pruned[0, head]})
        return heads


def winnow_kept(arguments, model, prompt, case, folder):
    positions = folder / "positions.json"
    command = [arguments.winnow, "run", "-m", model, "-f", prompt, "-n", "1", "-ctk", "f32", "-ctv", "f32",
               "--prefill-weights", "f32", "--kv-evict", case.options, "--kv-budget", str(case.budget),
               "--kv-positions", positions]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"error: {' '.join(map(str, command))}\n{done.stderr[-2000:]}")
    written = json.loads(positions.read_text(encoding="utf-8"))
    return written["n_tokens"], [[set(head) for head in layer] for layer in written["positions"]]


def gap(scores, ours, theirs):
    """Returns the relative difference of scores over which two choices disagree, the smallest over several rankings."""
    def spread(of):
        kept, dropped = [of[h][i] for h, i in theirs], [of[h][i] for h, i in ours]
        if not kept or not dropped:
            return float("inf")
        high, low = max(kept), min(dropped)
        return abs(float(high - low)) / max(abs(float(high)), abs(float(low)), 1e-30)

    return min(spread(of) for of in scores)


def compare(case, observer, winnow, n_tokens, tie):
    agreements, differing, gaps, not_ties = [], 0, [], 0
    for layer, (theirs, ours) in enumerate(zip(observer.kept, winnow)):
        ours = [{i for i in head if i < n_tokens} for head in ours]
        only_ours = [[(h, i) for i in a - b] for h, (a, b) in enumerate(zip(ours, theirs))]
        only_theirs = [[(h, i) for i in b - a] for h, (a, b) in enumerate(zip(ours, theirs))]
        if case.flat:  # one ranking for the whole layer
            only_ours, only_theirs = [sum(only_ours, [])] * len(ours), [sum(only_theirs, [])] * len(theirs)
        for head, (a, b) in enumerate(zip(ours, theirs)):
            agreements.append(len(a & b) / max(len(a), len(b)))
            if a == b:
                continue
            differing += len(b - a)  # the totals are equal, so this many are exchanged
            gaps.append(gap(observer.scores[layer], only_ours[head], only_theirs[head]))
            not_ties += gaps[-1] > tie
    kept = sum(len(head) for layer in observer.kept for head in layer)
    return {"method": case.name, "options": case.options, "budget": case.budget, "kept": kept,
            "mean": sum(agreements) / len(agreements), "worst": min(agreements), "differing": differing,
            "largest_gap": max(gaps, default=0.0), "heads_not_ties": not_ties, "judged": case.judged}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--winnow", default=ROOT / "build/bin/winnow", type=pathlib.Path)
    parser.add_argument("-m", "--model", type=pathlib.Path,
                        default=os.environ.get("WINNOW_MODEL", ROOT / "models/SmolLM2-135M-Instruct-Q4_1.gguf"))
    parser.add_argument("-f", "--file", default=ROOT / "tests/data/hound-of-the-baskervilles.txt", type=pathlib.Path)
    parser.add_argument("-n", "--tokens", default=2000, type=int)
    parser.add_argument("--tokenizer-python", default=ROOT / ".venv/bin/python", help="one that has llama-cpp-python")
    parser.add_argument("--tie", default=1e-4, type=float, help="relative difference of scores that counts as a tie")
    parser.add_argument("--only", action="append", metavar="PRESS", help="only this row of the table")
    parser.add_argument("--options", metavar="METHOD:...", help="this option line of winnow's instead of the row's own")
    parser.add_argument("--json", type=pathlib.Path, help="write the rows as JSON as well")
    arguments = parser.parse_args()
    text = arguments.file.read_text(encoding="utf-8")
    prompt_text, ids = cut_prompt(str(arguments.tokenizer_python), arguments.model, text, arguments.tokens)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        reader, tensors = models.read(arguments.model)
        model_file = folder / "f32.gguf"
        models.write_f32(reader, tensors, model_file)
        model = models.transformers_model(reader, tensors)
        del tensors
        prompt = folder / "prompt.txt"
        prompt.write_text(prompt_text, encoding="utf-8")
        print(f"{arguments.model.name} as float32, {arguments.file.name}, {len(ids)} tokens, kvpress 0.5.5\n")
        print("| press | kept per head | --kv-evict | mean agreement | worst head | entries that differ | largest gap |")
        print("|---|---:|---|---:|---:|---:|---:|")
        for case in cases(len(ids), model.config.num_hidden_layers):
            if arguments.only and case.name not in arguments.only:
                continue
            case.options = arguments.options or case.options
            n_fed, kept = winnow_kept(arguments, model_file, prompt, case, folder)
            if n_fed not in (len(ids), len(ids) + 1):
                raise SystemExit(f"error: winnow read {n_fed} tokens where kvpress reads {len(ids)}")
            with contextlib.redirect_stderr(io.StringIO()):
                observer = Observer(model, case.press).run(ids)
            row = compare(case, observer, kept, len(ids), arguments.tie)
            rows.append(row)
            name = row["method"] if row["judged"] else f"({row['method']})"
            print(f"| {name} | {case.budget} | `{row['options']}` | {row['mean']:.3%} | {row['worst']:.3%} | "
                  f"{row['differing']} of {row['kept']} | {row['largest_gap']:.1e} |", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    failed = [row["method"] for row in rows
              if row["judged"] and (row["heads_not_ties"] or row["mean"] < LEAST_AGREEMENT)]
    print("\n" + ("disagree: " + ", ".join(failed) if failed else "all agree, but for ties"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
