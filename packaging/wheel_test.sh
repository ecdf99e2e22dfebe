#!/usr/bin/env bash
# wheel_test.sh PYTHON WHEEL MODEL: whether a wheel's tag is true (no library in it asks for a newer C library than the tag
# names, and none is missing), and whether pip takes it into a fresh environment of that Python where it answers.
set -euo pipefail
[[ $# -eq 3 ]] || { echo "usage: $0 PYTHON WHEEL MODEL (one wheel: empty dist/ of others)" >&2; exit 2; }
python=$1
wheel=$(realpath "$2")
model=$(realpath "$3")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }
say() { printf '==> %s\n' "$*"; }

say "The tag of ${wheel##*/}"
[[ $wheel =~ -manylinux_2_([0-9]+)_$(uname -m)\.whl$ ]] || fail "it is not a manylinux wheel of this machine"
minor=${BASH_REMATCH[1]}
"$python" -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check "$wheel"
package=$(cd "$work" && "$work/venv/bin/python" -c 'import os, winnow; print(os.path.dirname(winnow.__file__))')
mapfile -t libraries < <(find "$package" -name '*.so*' -type f)
for library in "${libraries[@]}"; do
  newest=$(objdump -T "$library" | grep -oE 'GLIBC_2\.[0-9]+' | sort -Vu | tail -n 1)
  ((${newest#GLIBC_2.} <= minor)) || fail "${library#"$package"/} needs $newest, and the tag says 2.$minor"
done
((${#libraries[@]} > 5)) || fail "its libraries are not inside"
grep -q "manylinux_2_${minor}_" "$package"/../winnow_llm-*.dist-info/WHEEL || fail "its metadata have another tag"

say "Using it"
(cd "$work" && "$work/venv/bin/python" - "$model" "$package") <<'PYTHON' || fail "it does not answer"
import sys
import winnow

answer = winnow.Llama(sys.argv[1], verbose=False)("The capital of France is", max_tokens=4, temperature=0)
assert "Paris" in answer["choices"][0]["text"], answer
# Of all that it brings none was taken from elsewhere.
names = ("libllama", "libggml", "libdnnl", "libhwy", "libgomp", "libOpenCL", "libcrypto", "libssl")
loaded = {line.split()[-1] for line in open("/proc/self/maps") if any(name in line for name in names)}
assert loaded and all(path.startswith(sys.argv[2]) for path in loaded), loaded
PYTHON
say "Clean"
