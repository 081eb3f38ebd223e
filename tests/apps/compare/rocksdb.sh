#!/bin/sh
# rocksdb.sh THREADS: RocksDB, THREADS threads that read random keys while one more writes; 600,000 reads together.
# Prints `reads per second: N`.
#
# The writer has a fixed rate. Otherwise a lock that lets it write more makes the reads slower, for they share the CPUs,
# and what it wrote has to be merged: that would count against the lock.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
db_bench --benchmarks=filluniquerandom,readwhilewriting --db="$directory/db" --threads="$1" --num=20000 \
    --reads="$((600000 / $1))" --benchmark_write_rate_limit=1000000 --write_buffer_size=1048576 \
    --compression_type=none --seed=42 --stats_interval=100000000 > "$directory/out" 2>&1 \
    || { cat "$directory/out" >&2; exit 1; }
sed -n 's|.*readwhilewriting *:.* \([0-9]*\) ops/sec.*|reads per second: \1|p' "$directory/out"
