#!/usr/bin/env python3
"""Writes head importances for the methods that read them, from a profile of `winnow calibrate`.

    python3 bench/eval/head_scores.py PROFILE.json [KEPT] > heads.json

A head's importance is the share of its entries that the profile keeps when the share KEPT (default 0.2) of all is kept.
The scores that HeadKV and DuoAttention publish were measured on other models; this is a stand-in for any model.
"""
import json
import sys

profile = json.load(open(sys.argv[1], encoding="utf-8"))
kept = float(sys.argv[2]) if len(sys.argv) > 2 else 0.2
nearest = min(range(len(profile["ratios"])), key=lambda i: abs(profile["ratios"][i] - kept))
heads = {f"{layer}-{head}": [share] for layer, row in enumerate(profile["kept"][nearest]) for head, share in enumerate(row)}
json.dump(heads, sys.stdout)
