#!/bin/sh
# Builds the program that measures for how many sections of others a thread waits: build.sh OUTDIR -> OUTDIR/bound
# CC and CFLAGS may be set by the caller (CFLAGS are added after ours).
set -eu
if [ $# -ne 1 ]; then
    echo "usage: $0 OUTDIR" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
# shellcheck disable=SC2086 # CFLAGS is a list of words
exec "${CC:-gcc}" -std=gnu11 -D_GNU_SOURCE -Wall -Wextra -Werror -O2 -g -pthread ${CFLAGS:-} \
    -o "$1/bound" "$here"/bound.c -lm
