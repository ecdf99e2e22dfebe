#!/usr/bin/env bash
# test.sh PACKAGE MODEL: installs the package into a fresh Debian (debootstrap, as root), uses what it holds, removes it and
# looks for what is left.
set -euo pipefail
package=$(realpath "$1")
model=$(realpath "$2")
root=$(mktemp -d)
chmod 755 "$root"  # apt reads as another user
trap 'umount "$root/proc" 2>/dev/null || true; rm -rf "$root"' EXIT
here() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C DEBIAN_FRONTEND=noninteractive "$@"; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }
say() { printf '==> %s\n' "$*"; }

release=$(. /etc/os-release && echo "$VERSION_CODENAME")
say "A fresh Debian ($release)"
debootstrap --variant=minbase "$release" "$root" >"$root.log" 2>&1 || { tail "$root.log" >&2; fail "debootstrap failed"; }
rm -f "$root.log"
mount -t proc proc "$root/proc"
list_files() { here find / -xdev -path /proc -prune -o -path /var -prune -o -print | sort; }

say "Installing"
cp "$package" "$root/winnow.deb"
here apt-get update >/dev/null
here apt-get install -y --no-install-recommends man-db bash-completion zsh >/dev/null 2>&1
# What it needs comes first, so that only its own files are between the two lists.
mapfile -t needs < <(here sh -c "dpkg-deb -f /winnow.deb Depends | tr ',' '\n' | sed -E 's/^ *([^ ]+).*/\1/'")
here apt-get install -y --no-install-recommends "${needs[@]}" >/dev/null 2>&1
list_files >"$root/before"
here apt-get install -y --no-install-recommends /winnow.deb >/dev/null

say "Using it"
here winnow --version
ln "$model" "$root/model.gguf" 2>/dev/null || cp "$model" "$root/model.gguf"
answer=$(here winnow run -m /model.gguf -p 'The capital of France is' -n 4 --temp 0 2>/dev/null)
[[ $answer == *Paris* ]] || fail "it says '$answer'"
here bash -c 'source /usr/share/bash-completion/completions/winnow; COMP_WORDS=(winnow run --kv-ev); COMP_CWORD=2; _winnow
  [[ ${COMPREPLY[*]} == --kv-evict ]]' || fail "bash does not complete flags"
here zsh -fc 'autoload -Uz compinit; compinit -u -D; [[ $_comps[winnow] == _winnow ]]' || fail "zsh does not know the command"
for page in winnow winnow-run winnow-serve; do
  here gunzip -c "/usr/share/man/man1/$page.1.gz" | grep -q '\-\-help\|kv' || fail "there is no man page $page"
done
[[ $(here readlink -f /usr/lib/libwinnow.so) == /usr/lib/libwinnow.so.* ]] || fail "there is no shared library"
if command -v systemd-analyze >/dev/null; then
  # Without the system around it only what the unit itself says can be judged.
  sed 's|^ExecStart=.*|ExecStart=/bin/true|; /^Documentation=/d' "$root/lib/systemd/system/winnow.service" >"$root/unit.service"
  complaints=$(systemd-analyze verify "$root/unit.service" 2>&1 | grep -E 'Unknown|parse|Invalid|ignoring' || true)
  rm "$root/unit.service"
  [[ -z $complaints ]] || fail "the unit is wrong: $complaints"
fi
here env WINNOW_ARG_MODEL=/model.gguf WINNOW_ARG_PORT=0 timeout -s TERM 5 winnow serve >"$root/serve.log" 2>&1 || true
grep -q '"event":"listening"' "$root/serve.log" || { cat "$root/serve.log" >&2; fail "the server does not start"; }

say "Removing"
here apt-get purge -y winnow >/dev/null
rm -f "$root/model.gguf" "$root/serve.log"
list_files >"$root/after"
left=$(comm -13 <(grep -v '^/before$' "$root/before") <(grep -v '^/\(before\|after\)$' "$root/after") | grep -v '/__pycache__\|^/tmp/' || true)
[[ -z $left ]] || fail "it left: $left"
say "Clean"
