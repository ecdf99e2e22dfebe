#!/usr/bin/env bash
# Checks that no lower layer includes a higher one, that no headers or Python modules form a cycle, and that
# public headers include no file of src/. CMake cannot check this, since all of src/ is one include path.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The folders of src/ from the lowest layer up, and those that each may include besides itself and include/winnow. A row
# may name only folders of the rows above it, so that there is no circle.
readonly engine='base kernels cache eviction device gguf schema text model engine'
readonly table="
base
kernels    base
cache      base kernels
eviction   base kernels cache
device     base kernels cache
gguf       base
schema     base
text       base gguf schema
model      base kernels cache eviction gguf text
engine     base kernels cache eviction device gguf text model
sampling   base gguf text model
generate   base
batch      $engine
charts     base
mpi
eval       $engine generate charts
study      $engine generate charts
server     $engine generate batch
cli        $engine sampling generate batch charts mpi eval study server"
status=0

report() { printf '%s\n' "$1" >&2; status=1; }

# Prints "FILE:LINE:TARGET" for every #include in the folders.
includes() {
  grep -rnE '^[[:space:]]*#[[:space:]]*include[[:space:]]*["<]' "$@" --include='*.h' --include='*.cc' --include='*.inc' |
    sed -E 's/^([^:]+:[0-9]+):.*["<]([^">]+)[">].*/\1:\2/'
}

declare -A allowed=()
below=' '
while read -r layer may; do
  [[ -n $layer ]] || continue
  for folder in $may; do
    [[ $below == *" $folder "* ]] || report "src/$layer must not be allowed src/$folder, which does not stand above it"
  done
  allowed[$layer]=" $layer $may "
  below+="$layer "
done <<<"$table"

for dir in src/*/; do
  layer=$(basename "$dir")
  [[ -n ${allowed[$layer]:-} ]] || { report "src/$layer has no row in the table of scripts/check_layers.sh"; continue; }
  while IFS=: read -r file line target; do
    folder=${target%%/*}
    [[ $target == */* && -d src/$folder && ${allowed[$layer]} != *" $folder "* ]] &&
      report "$file:$line: src/$layer must not include $target"
  done < <(includes "$dir" || true)
done

# Subfolders of src/engine include its own files and those of evidence/ (saved for scorers), but not each other's.
# ranks/ wraps the others and may include all of them.
while IFS=: read -r file line target; do
  room=${file#src/engine/}
  [[ $target == "engine/${room%%/*}/"* || ${room%%/*} != evidence && $target == engine/evidence/* ||
    ${room%%/*} == ranks ]] ||
    report "$file:$line: src/engine/${room%%/*} must not include $target"
done < <(includes src/engine/*/ | grep -E ':engine/[a-z]+/' || true)

# src/kernels works on spans and plain structs, and src/base knows no models: neither includes ggml or llama.
while IFS=: read -r file line target; do
  report "$file:$line: src/kernels and src/base must not include $target"
done < <(includes src/kernels src/base | grep -E ':(ggml|gguf|llama)' || true)

# Files and texts are read before there is a model.
while IFS=: read -r file line target; do
  report "$file:$line: src/gguf and src/text must not include $target"
done < <(includes src/gguf src/text | grep -E ':winnow/model\.h$' || true)

while IFS=: read -r file line target; do
  [[ $target == winnow/* || $target != *[./]* ]] || report "$file:$line: include/winnow must not include $target"
done < <(includes include/winnow)

# The Python bindings include only public headers, nanobind and their own.
while IFS=: read -r file line target; do
  [[ $target == winnow/* || $target == nanobind/* || $target != */* && ($target != *.h || -f python/src/$target) ]] ||
    report "$file:$line: python must not include $target"
done < <(includes python/src)

# Headers must not include each other, over any number of steps. tsort names those of a cycle.
circle=$(includes src include | grep -vE '^[^:]+\.cc:' | sed -E 's,^(src|include)/,,; s,:[0-9]+:, ,' |
  awk '$2 ~ /\// && $1 != $2' | tsort 2>&1 >/dev/null || true)
[[ -z $circle ]] || report "headers include each other: ${circle//$'\n'/ }"

# Prints "MODULE IMPORTED" for every import inside the Python package, in functions and for type checkers, too. A name
# that is not a module comes from the package itself.
python_imports() {
  awk '
    function module(path) { sub(/.*\//, "", path); sub(/\.py$/, "", path); return path }
    function add(name) { print module(FILENAME), name in modules ? name : "__init__" }
    BEGIN { for (i = 1; i < ARGC; ++i) modules[module(ARGV[i])] }
    $1 == "from" && ($2 == "." || $2 == "winnow") && $3 == "import" {
      gsub(/#.*|[(),]/, " ")
      for (i = 4; i <= NF; ++i) if ($i == "as") ++i; else if ($i != "_core") add($i)
    }
    ($1 == "from" || $1 == "import") && $2 ~ /^(\.|winnow(\.|$))./ { sub(/^(winnow)?\./, "", $2); add($2) }
    $1 == "import" && $2 == "winnow" { add($2) }
  ' python/winnow/*.py
}
circle=$(python_imports | awk '$1 != $2' | tsort 2>&1 >/dev/null || true)
[[ -z $circle ]] || report "modules of python/winnow import each other: ${circle//$'\n'/ }"

# winnow.h includes all public headers.
for header in include/winnow/*.h; do
  name=${header#include/}
  [[ $name == winnow/winnow.h ]] || grep -qxF "#include \"$name\"" include/winnow/winnow.h ||
    report "include/winnow/winnow.h: must include $name"
done

[[ $status -eq 0 ]] && echo 'layers: clean'
exit $status
