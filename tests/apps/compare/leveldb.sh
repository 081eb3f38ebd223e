#!/bin/sh
# leveldb.sh DRIVER DATABASE MIX KEYS THREADS SECONDS: tests/apps/leveldb.cc, compiled as DRIVER, on DATABASE, which is
# made if it is not there; if the mix writes, on a copy, so that the next run finds it as it was. Prints
# `... operations_per_second=N ...`.
set -eu
driver=$1 database=$2 mix=$3 keys=$4
test -d "$database" || "$driver" --db "$database" --mix fill --keys "$keys"
if test "$mix" = readwhilewriting; then
    directory=$(mktemp -d)
    trap 'rm -rf "$directory"' EXIT
    cp -r "$database" "$directory/copy"
    database=$directory/copy
fi
"$driver" --db "$database" --mix "$mix" --keys "$keys" --threads "$5" --seconds "$6"
