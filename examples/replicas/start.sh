#!/usr/bin/env bash
# Three `winnow serve` behind one address, with one folder of saved contexts (docs/scale.md). Flags go to each of them:
#   examples/replicas/start.sh -m models/SmolLM2-135M-Instruct-Q4_1.gguf -t 1 --kv-limit 1GiB
# Set PORT (8080), PORT_1, PORT_2, PORT_3 (8081 to 8083) for others, CACHE_DIR for another folder than ./contexts, and
# ADDRESS for another than 127.0.0.1, then with keys (--api-key-file), and PROXY=nginx for nginx instead of haproxy. Ctrl-C
# and SIGTERM let running answers end.
# On one machine this shows how it works; for more throughput each server gets a machine, and the folder is on a common
# file system.
set -euo pipefail

winnow=${WINNOW:-build/bin/winnow}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export ADDRESS=${ADDRESS:-127.0.0.1} PORT=${PORT:-8080} PORT_1=${PORT_1:-8081} PORT_2=${PORT_2:-8082} PORT_3=${PORT_3:-8083}
proxy_name=${PROXY:-haproxy}
[[ $proxy_name == haproxy || $proxy_name == nginx ]] ||
  { echo "error: PROXY is haproxy or nginx, not '$proxy_name'" >&2; exit 2; }
PATH=$PATH:/usr/sbin  # Debian's place for both
command -v "$proxy_name" >/dev/null || { echo "error: there is no $proxy_name: apt-get install $proxy_name" >&2; exit 1; }

servers=()
proxy=
nginx_folder=
stop() {
  trap '' INT TERM EXIT
  # The servers first: they tell the proxy, and end when nothing is under way. It is still there for what they answer.
  if [[ ${#servers[@]} -gt 0 ]]; then kill -TERM "${servers[@]}" && wait "${servers[@]}"; fi || true
  if [[ -n $proxy ]]; then kill -TERM "$proxy"; fi || true
  wait
  if [[ -n $nginx_folder ]]; then rm -rf "$nginx_folder"; fi
}
trap 'stop; exit 0' INT TERM
trap stop EXIT

# A server that ends takes requests for longer than the proxy may need to notice it: two checks, each of them half a second
# after the one before and, on a busy machine, two seconds long (haproxy.cfg).
for number in 1 2 3; do
  port=PORT_$number
  "$winnow" serve --port "${!port}" --cache-dir "${CACHE_DIR:-contexts}" --drain 6 "$@" &
  servers+=($!)
  echo "server $number: process $!, http://127.0.0.1:${!port}"
done
if [[ $proxy_name == haproxy ]]; then
  command=(haproxy -f "$here/haproxy.cfg")
else
  # It knows no variables of the environment, and wants a folder for large bodies.
  nginx_folder=$(mktemp -d)
  chmod 711 "$nginx_folder"  # of root's nginx another user does the work
  configuration=$(<"$here/nginx.conf")
  for name in ADDRESS PORT PORT_1 PORT_2 PORT_3; do configuration=${configuration//"\${$name}"/${!name}}; done
  echo "$configuration" >"$nginx_folder/nginx.conf"
  command=(nginx -p "$nginx_folder/" -c "$nginx_folder/nginx.conf" -e stderr)
fi
setsid "${command[@]}" &  # out of Ctrl-C's way: it ends last
proxy=$!
echo "all of them: http://$ADDRESS:$PORT"

# A server that has died stays dead here; systemd or Kubernetes would start it again.
while [[ ${#servers[@]} -gt 0 ]]; do
  wait -n -p ended "${servers[@]}" "$proxy" || true
  if [[ $ended == "$proxy" ]]; then proxy=; break; fi
  echo "process $ended has ended" >&2
  left=()
  for server in "${servers[@]}"; do [[ $server == "$ended" ]] || left+=("$server"); done
  servers=("${left[@]}")
done
echo 'error: the proxy or the last server has ended' >&2
exit 1
