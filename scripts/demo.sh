#!/usr/bin/env bash
# make demo: asks the default model (or MODEL, a name of scripts/models.txt, or WINNOW_MODEL, a file) for a fact hidden in a
# chapter of a novel, with the whole cache and with parts of it. Arguments are methods to compare instead of the demo's own.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/model_table.sh
model=$(chosen_model)
if [[ ! -x build/bin/winnow_demo || ! -f $model ]]; then
  echo "error: the demo is not built or its model is not there: run make demo${MODEL:+ MODEL=$MODEL}" >&2
  exit 1
fi
build/bin/winnow_demo "$model" demo "$@"
cat <<'TEXT'

found    the answer has the word of demo/answer.txt. After: the document is cut before the question is known, one cut for
         any number of questions. Before: document and question are cut together.
mean KL  how far the predictions of the next 64 tokens of the text move from those of the full cache; cut as in "after"

Next, a text of your own:
  make tool && build/bin/winnow run -f FILE -q "QUESTION" --kv-budget 5%bytes
TEXT
