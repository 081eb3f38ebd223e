#!/usr/bin/env bash
# Measures kv-server with memcaslap, one lock after the other, again and again, so that what disturbs the machine disturbs
# all. Prints a table: the median of the rounds in operations a second, and of each round's ratio to the ordinary lock
# the least, the median and the greatest.
#
#   examples/kv-server/measure.sh [ROUNDS [SECONDS [CONNECTIONS...]]]
#
# Needs memcaslap (Debian: libmemcached-tools) and a release build of kv-server. Ports from 20211 on are used.
set -euo pipefail
cd "$(dirname "$0")/../.."

rounds=${1:-7} seconds=${2:-2}
shift $(($# < 2 ? $# : 2))
connections=("$@")
((${#connections[@]} > 0)) || connections=(1 2 4 8 16 32 64)
locks=(ordinary delegated adaptive)
server=target/release/kv-server port=20211

results=$(mktemp)
trap 'rm -f "$results"' EXIT

once() { # LOCK CONNECTIONS
    local said tps
    port=$((port + 1))
    "$server" --listen "127.0.0.1:$port" --lock "$1" >/dev/null &
    local process=$!
    until memcaslap -s "127.0.0.1:$port" -T 1 -c 1 -x 100 -w 1k >/dev/null 2>&1; do sleep 0.05; done
    said=$(memcaslap -s "127.0.0.1:$port" -T "$(($2 < 2 ? 1 : 2))" -c "$2" -t "${seconds}s" -w 1k 2>&1)
    kill "$process"
    wait "$process" 2>/dev/null || true
    tps=$(grep -o 'TPS: [0-9]*' <<<"$said" | grep -o '[0-9]*')
    echo "$tps"
}

for ((round = 1; round <= rounds; round++)); do
    for count in "${connections[@]}"; do
        # The order is another one each round.
        for ((i = 0; i < ${#locks[@]}; i++)); do
            lock=${locks[(i + round) % ${#locks[@]}]}
            echo "$count $lock $round $(once "$lock" "$count")" >>"$results"
        done
    done
done

awk -v locks="${locks[*]}" -v order="${connections[*]}" -v rounds="$rounds" '
    function sorted(list, n,    i, j, t) {
        for (i = 2; i <= n; i++) for (j = i; j > 1 && list[j] < list[j - 1]; j--) { t = list[j]; list[j] = list[j - 1]; list[j - 1] = t }
    }
    { tps[$1, $2, $3] = $4 }
    END {
        print "| connections | lock | operations a second | ratio: least, median, greatest |"
        print "|---|---|---|---|"
        names = split(locks, name, " "); counts = split(order, count, " ")
        for (c = 1; c <= counts; c++) for (l = 1; l <= names; l++) {
            for (r = 1; r <= rounds; r++) {
                value[r] = tps[count[c], name[l], r]
                ratio[r] = value[r] / tps[count[c], name[1], r]
            }
            sorted(value, rounds); sorted(ratio, rounds)
            middle = int((rounds + 1) / 2)
            printf "| %d | %s | %d | %.2f, %.2f, %.2f |\n", count[c], name[l], value[middle], ratio[1], ratio[middle], ratio[rounds]
        }
    }' "$results"
