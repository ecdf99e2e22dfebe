#!/usr/bin/env bash
# Checks that every file that docs, comments and scripts cite exists: paths from the repository's root
# (src/engine/engine.cc, or src/cache/page_pool for header and source together), the links of Markdown, and the sources
# that Markdown names alone (`engine.cc`, `scorers/snapkv.cc`). No source may cite a folder next to the repository,
# which a reader does not have.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Files that a text tells the reader to make, or that a program makes.
readonly made=' src/eviction/scorers/value_norm.cc scorers/value_norm.cc data/hotpotqa_e.jsonl '
status=0
report() { printf '%s: there is no %s\n' "$1" "$2" >&2; status=1; }

mapfile -t texts < <(git ls-files '*.md' '*.h' '*.cc' '*.py' '*.sh' '*.cmake' '*CMakeLists.txt' Makefile .ci/run |
  grep -v '^data/')
known=$(git ls-files)

is_there() { [[ $made == *" $1 "* ]] || compgen -G "$1" >/dev/null || compgen -G "$1.*" >/dev/null; }

while IFS=: read -r file line path; do
  path=${path#"${path%%[A-Za-z.]*}"}            # drops the character before it
  path=${path%%[.,]}                            # drops the end of a sentence
  is_there "$path" || report "$file:$line" "$path"
done < <(grep -noE '(^|[^A-Za-z0-9_/.<-])(src|include|tests|docs|scripts|bench|cmake|demo|examples|profiles|data|\.ci)/[A-Za-z0-9_./*-]*' \
  "${texts[@]}" || true)

while IFS=: read -r file line link; do
  target=${link#](}
  target=${target%%#*}
  [[ $target == *:* || $target != *[./]* || -e $(dirname "$file")/$target ]] || report "$file:$line" "$target"
done < <(grep -noE '\]\([^)# ]+' $(git ls-files '*.md') || true)

while IFS=: read -r file line name; do
  name=${name//\`/}
  [[ $made == *" $name "* || -e ${name%%/*} ]] || grep -qE "(^|/)${name//./\\.}\$" <<<"$known" || report "$file:$line" "$name"
done < <(grep -noE '`[A-Za-z0-9_/-]+\.(cc|h|py|sh)`' $(git ls-files '*.md') || true)

while IFS= read -r hit; do
  printf '%s\n  cites a folder beside the repository\n' "$hit" >&2
  status=1
done < <(grep -rn '\.\./shared' src include examples demo || true)

[[ $status -eq 0 ]] && echo 'paths: all there'
exit $status
