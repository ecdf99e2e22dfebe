#!/usr/bin/env python3
"""Writes unicode_tables.inc: what str.isspace, \\d, \\w, str.lower and str.upper are in this Python's Unicode version.

    python3 src/eval/unicode_tables.py > src/eval/unicode_tables.inc && clang-format -i src/eval/unicode_tables.inc
"""
import sys
import unicodedata

CODE_POINTS = [c for c in range(sys.maxunicode + 1) if not 0xD800 <= c <= 0xDFFF]


def print_ranges(name, test):
    ranges = []
    for c in CODE_POINTS:
        if test(chr(c)):
            if ranges and ranges[-1][1] == c - 1:
                ranges[-1][1] = c
            else:
                ranges.append([c, c])
    print(f"constexpr Range {name}[] = {{")
    print(",".join(f"{{{a:#x}, {b:#x}}}" for a, b in ranges))
    print("};")


def print_case(name, convert):
    """Runs of code points, one or two apart, that move by the same distance; and those that become several."""
    runs, several = [], []
    for c in CODE_POINTS:
        to = convert(chr(c))
        if to == chr(c):
            continue
        if len(to) > 1:
            several.append((c, to))
            continue
        delta = ord(to) - c
        if runs and runs[-1][3] == delta and c - runs[-1][1] in (1, 2) and runs[-1][2] in (0, c - runs[-1][1]):
            runs[-1][1], runs[-1][2] = c, c - runs[-1][1]
        else:
            runs.append([c, c, 0, delta])
    print(f"constexpr CaseRun {name}[] = {{")
    print(",".join(f"{{{a:#x}, {b:#x}, {max(step, 1)}, {delta}}}" for a, b, step, delta in runs))
    print("};")
    print(f"constexpr CaseText {name}Several[] = {{")
    print(",".join("{%#x, {%s}}" % (c, ", ".join(f"{ord(x):#x}" for x in to)) for c, to in several))
    print("};")


print(f"// Unicode {unicodedata.unidata_version}, written by unicode_tables.py.")
print_ranges("kSpaces", str.isspace)
print_ranges("kDigits", str.isdecimal)
print_ranges("kWordCharacters", lambda c: c.isalnum() or c == "_")
print_case("kLower", str.lower)
print_case("kUpper", str.upper)
