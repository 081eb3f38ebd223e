#!/bin/sh
# memcached.sh THREADS: memcached with THREADS threads, under memcaslap with at most 8; both under the same lock, on one
# machine. Prints `operations per second: N`.
set -eu
directory=$(mktemp -d)
server=
trap 'test -z "$server" || kill "$server" || true; rm -rf "$directory"' EXIT
MEMCACHED_PORT_FILENAME=$directory/port memcached -t "$1" -l 127.0.0.1 -p -1 -m 256 -u "$(id -un)" &
server=$!
until test -s "$directory/port"; do
    kill -0 "$server"
    sleep 0.02
done
port=$(sed -n 's/^TCP INET: //p' "$directory/port" | head -n 1)
clients=$(($1 < 8 ? $1 : 8))
printf 'key\n16 32 1\nvalue\n64 512 1\ncmd\n0 0.3\n1 0.7\n' > "$directory/mix"
memcaslap --servers="127.0.0.1:$port" --threads="$clients" --concurrency="$((4 * clients))" --execute_number=100000 \
    --cfg_cmd="$directory/mix" --win_size=1k > "$directory/out"
sed -n 's/.*TPS: \([0-9]*\).*/operations per second: \1/p' "$directory/out"
