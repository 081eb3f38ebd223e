#!/bin/sh
# mariadb.sh SCRIPT THREADS: tests/apps/mariadb.py, given as SCRIPT: MariaDB under sysbench, both under the same lock:
# 2,000 events in THREADS threads. Prints `... oltp_per_second=N ...`.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 "$1" "$directory" "$2" 2000
