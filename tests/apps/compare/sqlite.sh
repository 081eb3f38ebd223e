#!/bin/sh
# sqlite.sh DRIVER THREADS SECONDS: tests/apps/sqlite.c, compiled as DRIVER, on a new database.
# Prints `... rounds=N ...`.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
"$1" "$directory" "$2" "$3"
