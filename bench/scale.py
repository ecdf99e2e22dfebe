#!/usr/bin/env python3
"""Prints the memory, bandwidth and machines that many users with long documents need, with full and compressed caches.

usage: scale.py [contexts|machines] [--tokens 32768] [--ram 512] [--bandwidth 300] [--flops 10] ... (--help)

The numbers are computed, not measured: by the formulas of docs/scale.md, from a model's shape and a machine's limits.
docs/scale.md has the tables for the default values (docs/refresh.py writes them there).
"""
import argparse
import dataclasses
import math

GIB = 2**30
DAY = 86400


@dataclasses.dataclass
class Shape:
    name: str
    n_params: float
    n_layer: int
    n_head: int
    n_kv_head: int
    head_dim: int
    bits: float = 4.8  # per weight, Q4_K_M

    @property
    def weight_bytes(self):
        return self.n_params * self.bits / 8

    @property
    def token_bytes(self):
        """Bytes of a token's keys and values in f16."""
        return self.n_layer * self.n_kv_head * self.head_dim * 2 * 2

    def attention_flop(self, n_entries):
        """Operations of one token that attends to n_entries entries: products with keys and with values."""
        return 4.0 * n_entries * self.n_layer * self.n_head * self.head_dim

    def read_flop(self, n_tokens):
        """Operations to read a document: every weight once per token, and attention to all tokens before."""
        return 2 * self.n_params * n_tokens + n_tokens * self.attention_flop(n_tokens / 2)


SHAPES = [Shape("SmolLM2-135M", 0.135e9, 30, 9, 3, 64), Shape("Llama-3.2-1B", 1.24e9, 16, 32, 8, 64),
          Shape("Llama-3.1-8B", 8.0e9, 32, 32, 8, 128), Shape("Qwen3-32B", 32.8e9, 64, 64, 8, 128),
          Shape("Llama-3.1-70B", 70.6e9, 80, 64, 8, 128)]


@dataclasses.dataclass
class Way:
    """The shares of a cache that are kept, in bytes and in entries, and the factor by which reading takes longer."""
    name: str
    bytes_share: float
    entries_share: float
    read_factor: float


# Entries of auto and auto-fast at 5 % of the bytes are from docs/quickstart.md, reading times from docs/methods.md and
# docs/lab/2026-11-30-a-repeat-that-sees-less.md.
WAYS = [Way("full", 1, 1, 1), Way("auto-fast, 5 % of the bytes", 0.05, 0.20, 1.3), Way("auto, 5 % of the bytes", 0.05, 0.20, 2.0)]


def number(value):
    """Returns two digits, or all digits of a large number."""
    if value == 0:
        return "0"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.{max(0, 1 - math.floor(math.log10(value)))}f}"


def size(n_bytes):
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if n_bytes < 1024 or unit == "PiB":
            return f"{number(n_bytes)} {unit}"
        n_bytes /= 1024
    return ""


def context_table(options):
    print(f"| {options.tokens:,} tokens | a token | full | 5 % | over 1 Gbit/s, full | 5 % | over 10 Gbit/s, full | 5 % | "
          f"in {options.ram} GiB, full | 5 % |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for shape in SHAPES:
        full = shape.token_bytes * options.tokens
        room = max(0, options.ram * GIB * options.usable - shape.weight_bytes)
        cells = [size(shape.token_bytes), size(full), size(full / 20)]
        for gbit in (1, 10):
            cells += [f"{number(part * 8 / (gbit * 1e9))} s" for part in (full, full / 20)]
        cells += [f"{room / part:,.0f}" for part in (full, full / 20)]
        print("| " + " | ".join([shape.name, *cells]) + " |")


def needs(shape, way, n_users, options):
    context = shape.token_bytes * options.tokens * way.bytes_share
    n_active = math.ceil(n_users * options.active)
    room = options.ram * GIB * options.usable - shape.weight_bytes
    # A machine can give this many answers in parallel, each at the given speed: every step reads the weights once and
    # each answer's cache, and multiplies with both.
    by_bandwidth = (options.bandwidth * 1e9 / options.speed - shape.weight_bytes) / context
    flop = 2 * shape.n_params + shape.attention_flop(options.tokens * way.entries_share)
    by_compute = options.flops * 1e12 / options.speed / flop
    read_s = shape.read_flop(options.tokens) * way.read_factor / (options.flops * 1e12)
    in_memory, answering = n_active * context / room, n_active / min(by_bandwidth, by_compute)
    reading = n_users * options.documents / DAY * read_s
    moved = n_users * options.returns / DAY * context
    return {"folder": n_users * context, "memory": n_active * context, "moved": moved,
            "limit": "bandwidth" if by_bandwidth < by_compute else "compute", "side_by_side": min(by_bandwidth, by_compute),
            "read_s": read_s, "in_memory": in_memory, "answering": answering, "reading": reading,
            "machines": math.ceil(max(in_memory, answering + reading))}


def machine_table(options):
    shape = next(s for s in SHAPES if s.name == options.model)
    print(f"| users | {shape.name}, {options.tokens:,} tokens each | saved contexts | of them in memory | restored, GB/s | "
          "answers a machine | limited by | machines to keep | to answer | to read | machines |")
    print("|---:|---|---:|---:|---:|---:|---|---:|---:|---:|---:|")
    for n_users in options.users:
        for way in WAYS:
            n = needs(shape, way, n_users, options)
            cells = [f"{n_users:,}", way.name, size(n["folder"]), size(n["memory"]), number(n["moved"] / 1e9),
                     number(n["side_by_side"]), n["limit"], number(n["in_memory"]), number(n["answering"]),
                     number(n["reading"]), f"{n['machines']:,}"]
            print("| " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", nargs="?", choices=["contexts", "machines"], help="one of the two")
    parser.add_argument("--model", default="Llama-3.1-8B", choices=[shape.name for shape in SHAPES])
    parser.add_argument("--tokens", type=int, default=32768, help="of a document")
    parser.add_argument("--users", type=int, nargs="+", default=[10, 1000, 1000000])
    parser.add_argument("--active", type=float, default=0.05, help="share of the users who wait for an answer at a time")
    parser.add_argument("--speed", type=float, default=5, help="tokens a second that each of them gets")
    parser.add_argument("--documents", type=float, default=1, help="new ones of a user a day")
    parser.add_argument("--returns", type=float, default=10, help="of a user a day to a document that is not in memory")
    parser.add_argument("--ram", type=int, default=512, help="GiB of a machine")
    parser.add_argument("--usable", type=float, default=0.8, help="share of it for weights and caches")
    parser.add_argument("--bandwidth", type=float, default=300, help="GB/s that a machine reads from memory")
    parser.add_argument("--flops", type=float, default=10, help="TFLOP/s that a machine sustains")
    options = parser.parse_args()
    if options.table != "machines":
        context_table(options)
    if not options.table:
        print()
    if options.table != "contexts":
        machine_table(options)


if __name__ == "__main__":
    main()
