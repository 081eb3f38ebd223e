#!/bin/sh
# Builds the bench programs: build.sh OUTDIR -> OUTDIR/pair, OUTDIR/hotlock, OUTDIR/hotrw, OUTDIR/million, OUTDIR/start,
# OUTDIR/untold.so
# CC and CFLAGS may be set by the caller (CFLAGS are added after ours).
set -eu
if [ $# -ne 1 ]; then
    echo "usage: $0 OUTDIR" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
for program in pair hotlock hotrw million start; do
    # shellcheck disable=SC2086 # CFLAGS is a list of words
    "${CC:-gcc}" -std=gnu11 -D_GNU_SOURCE -Wall -Wextra -Werror -O2 -g -pthread ${CFLAGS:-} \
        -o "$1/$program" "$here/$program.c" "$here/bench.c"
done
# shellcheck disable=SC2086
"${CC:-gcc}" -std=gnu11 -Wall -Wextra -Werror -O2 -shared -fPIC ${CFLAGS:-} -o "$1/untold.so" "$here/untold.c"
