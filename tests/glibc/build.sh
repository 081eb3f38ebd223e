#!/bin/sh
# Builds the probe and the libraries that pretend another version of glibc: build.sh OUTDIR. CC and CFLAGS are
# respected.
set -eu
[ $# -eq 1 ] || { echo "usage: build.sh OUTDIR" >&2; exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")"

cc=${CC:-cc}
flags="-std=gnu11 -D_GNU_SOURCE -Wall -Wextra -Werror -O2 -pthread ${CFLAGS:-}"

$cc $flags -o "$out/probe" probe.c
for version in 2.30 2.40 2.41 2.99; do
    $cc $flags -DVERSION="\"$version\"" -fPIC -shared -o "$out/pretend_$version.so" pretend.c
done
