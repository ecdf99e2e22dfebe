#!/usr/bin/env bash
# Three `winnow serve` behind one address, with one folder of saved contexts (docs/scale.md). Flags go to each of them:
#   examples/replicas/start.sh -m models/SmolLM2-135M-Instruct-Q4_1.gguf -t 1 --kv-limit 1GiB
# Set PORT (8080), PORT_1, PORT_2, PORT_3 (8081 to 8083) for others, CACHE_DIR for another folder than ./contexts, and
# ADDRESS for another than 127.0.0.1, then with keys (--api-key-file). Ctrl-C and SIGTERM let running answers end.
# On one machine this shows how it works; for more throughput each server gets a machine, and the folder is on a common
# file system.
set -euo pipefail

winnow=${WINNOW:-build/bin/winnow}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export ADDRESS=${ADDRESS:-127.0.0.1} PORT=${PORT:-8080} PORT_1=${PORT_1:-8081} PORT_2=${PORT_2:-8082} PORT_3=${PORT_3:-8083}
PATH=$PATH:/usr/sbin  # Debian's place for haproxy
command -v haproxy >/dev/null || { echo 'error: there is no haproxy: apt-get install haproxy' >&2; exit 1; }

servers=()
proxy=
stop() {
  trap '' INT TERM EXIT
  # The servers first: they tell the proxy, and end when nothing is under way. It is still there for what they answer.
  if [[ ${#servers[@]} -gt 0 ]]; then kill -TERM "${servers[@]}" && wait "${servers[@]}"; fi || true
  if [[ -n $proxy ]]; then kill -TERM "$proxy"; fi || true
  wait
}
trap 'stop; exit 0' INT TERM
trap stop EXIT

for number in 1 2 3; do
  port=PORT_$number
  "$winnow" serve --port "${!port}" --cache-dir "${CACHE_DIR:-contexts}" --drain 2 "$@" &
  servers+=($!)
  echo "server $number: process $!, http://127.0.0.1:${!port}"
done
setsid haproxy -f "$here/haproxy.cfg" &  # out of Ctrl-C's way: it ends last
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
