#!/usr/bin/env python3
"""Writes the first layers of a GGUF model as a model of its own, which talks nonsense quickly with the real tokenizer.

usage: short_model.py MODEL OUT [--layers 1]

It is meant for runs of thousands of requests that test the server and not the model.
"""
import argparse
import re
import struct

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY, ALIGNMENT = 8, 9, 32


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, code):
        value, = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize("<" + code)
        return value

    def string(self):
        n = self.number("Q")
        self.at += n
        return self.data[self.at - n:self.at]

    def skip(self, type_):
        if type_ == STRING:
            self.string()
        elif type_ == ARRAY:
            of, n = self.number("I"), self.number("Q")
            for _ in range(n):
                self.skip(of)
        else:
            self.number(SCALARS[type_])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("out")
    parser.add_argument("--layers", type=int, default=1)
    arguments = parser.parse_args()
    with open(arguments.model, "rb") as file:
        reader = Reader(file.read())
    if reader.data[:4] != b"GGUF":
        raise SystemExit(arguments.model + " is not a GGUF file")
    reader.at = 4
    version, n_tensors, n_values = reader.number("I"), reader.number("Q"), reader.number("Q")
    values = []
    for _ in range(n_values):
        begin = reader.at
        key, type_ = reader.string(), reader.number("I")
        at = reader.at
        reader.skip(type_)
        if key == b"general.alignment":
            raise SystemExit("files with an alignment of their own are not supported")
        if key.endswith(b".block_count"):
            values.append(reader.data[begin:at] + struct.pack("<" + SCALARS[type_], arguments.layers))
        else:
            values.append(reader.data[begin:reader.at])
    tensors = []  # name, shape and type as in the file, offset
    for _ in range(n_tensors):
        begin = reader.at
        name = reader.string().decode()
        for _ in range(reader.number("I")):
            reader.number("Q")
        reader.number("I")
        tensors.append((name, reader.data[begin:reader.at], reader.number("Q")))
    start = -(-reader.at // ALIGNMENT) * ALIGNMENT
    ends = sorted(offset for _, _, offset in tensors) + [len(reader.data) - start]
    infos, data = b"", b""
    n_kept = 0
    for name, info, offset in tensors:
        layer = re.match(r"blk\.(\d+)\.", name)
        if layer and int(layer[1]) >= arguments.layers:
            continue
        end = next(e for e in ends if e > offset)
        infos += info + struct.pack("<Q", len(data))
        data += reader.data[start + offset:start + end]
        data += b"\0" * (-len(data) % ALIGNMENT)
        n_kept += 1
    head = b"GGUF" + struct.pack("<IQQ", version, n_kept, n_values) + b"".join(values) + infos
    with open(arguments.out, "wb") as file:
        file.write(head + b"\0" * (-len(head) % ALIGNMENT) + data)


if __name__ == "__main__":
    main()
