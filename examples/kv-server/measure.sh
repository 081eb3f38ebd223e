#!/usr/bin/env bash
# Measures kv-server with memcaslap, one lock after the other, again and again, so that what disturbs the machine
# disturbs all. Prints a table: the median of the rounds in operations a second, and of each round's ratio to the
# ordinary lock the least, the median and the greatest.
#
#   examples/kv-server/measure.sh [ROUNDS [SECONDS [CONNECTIONS...]]]
#
# Needs memcaslap (Debian: libmemcached-tools) and a release build of kv-server.
set -euo pipefail
cd "$(dirname "$0")/../.."

rounds=${1:-7} seconds=${2:-2}
shift $(($# < 2 ? $# : 2))
connections=("$@")
((${#connections[@]} > 0)) || connections=(1 2 4 8 16 32 64)
locks=(ordinary delegated adaptive)
server=target/release/kv-server

results=$(mktemp)
trap 'rm -f "$results"' EXIT

once() { # LOCK CONNECTIONS
    local said tps='' line address process
    while [[ -z $tps ]]; do
        coproc "$server" --listen 127.0.0.1:0 --lock "$1"
        process=$COPROC_PID
        read -r line <&"${COPROC[0]}"
        address=${line#*listening on } address=${address%%,*}
        said=$(memcaslap -s "$address" -T "$(($2 < 2 ? 1 : 2))" -c "$2" -t "${seconds}s" -w 1k 2>&1) || true
        kill "$process"
        wait "$process" 2>/dev/null || true
        tps=$(sed -n 's/.*TPS: \([0-9]*\).*/\1/p' <<<"$said")
    done
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
        for (i = 2; i <= n; i++)
            for (j = i; j > 1 && list[j] < list[j - 1]; j--) { t = list[j]; list[j] = list[j - 1]; list[j - 1] = t }
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
            printf "| %d | %s | %d | ", count[c], name[l], value[middle]
            printf "%.2f, %.2f, %.2f |\n", ratio[1], ratio[middle], ratio[rounds]
        }
    }' "$results"
