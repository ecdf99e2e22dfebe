#!/usr/bin/env python3
"""Prints the scores of a report as tables of methods by budget, with the reference's negative log-likelihood.

    python3 bench/eval/score_table.py REPORT/results.csv

A cell has the score, its 95 % interval, and the reference's negative log-likelihood in nats per token.
"""
import csv
import sys

tables = {}
with open(sys.argv[1], encoding="utf-8", newline="") as file:
    for row in csv.DictReader(file):
        if row["by"] == "all" and row["measure"] == "score":
            table = tables.setdefault(f"{row['benchmark']}, question-{row['question']}", {})
            cell = f"{float(row['mean']):.0f} [{float(row['low']):.0f}, {float(row['high']):.0f}], {float(row['nll']):.2f}"
            types = dict.fromkeys((row["key_type"], row["value_type"]))  # f16 is left out
            name = " ".join([row["method"]] + (["/".join(types)] if types.keys() != {"f16"} else []))
            table.setdefault(name, {})[row["budget"]] = cell
for title, table in tables.items():
    budgets = [b for b in dict.fromkeys(b for cells in table.values() for b in cells) if b]
    print(f"### {title}\n\n| method | {' | '.join(budgets)} |\n|---|{'---:|' * len(budgets)}")
    for method, cells in table.items():
        print(f"| {method} | " + " | ".join(cells.get(b, cells.get("", "-")) for b in budgets) + " |")
    print()
