#!/bin/sh
# Builds the benchmark over one rival: build.sh OUTDIR -> OUTDIR/regret
#
# From the environment: RIVAL, its name; HEADER, the rival-NAME.h if it is not beside this script; for a rival in C++
# INCLUDE and LIBRARY, the header that it needs and what the linker is told; for one in Rust RUST, cargo's directory;
# for RIVAL=c PEER and PEER_FLAGS, a C file and how to compile it. Exit status 77: INCLUDE is not installed.
set -eu
if [ $# -ne 1 ] || [ -z "${RIVAL:-}" ]; then
    echo "usage: RIVAL=NAME $0 OUTDIR" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
objects= libraries=${LIBRARY:-}
if [ -n "${RUST:-}" ]; then
    "${CARGO:-cargo}" rustc --quiet --release --locked --manifest-path "$here/../../Cargo.toml" --target-dir "$RUST" \
        --package flashlock-rivals --lib --crate-type staticlib
    libraries="$RUST/release/libflashlock_rivals.a -ldl"
elif [ "$RIVAL" = c ]; then
    # shellcheck disable=SC2086 # a list of words
    "${CC:-gcc}" -std=gnu11 -O2 -g -pthread ${PEER_FLAGS:-} -c -o "$1/peer.o" "$PEER"
    objects=$1/peer.o
elif [ -n "${INCLUDE:-}" ]; then
    echo "#include <$INCLUDE>" | "${CXX:-g++}" -std=c++17 -E -x c++ -o /dev/null - 2>/dev/null || exit 77
fi
# shellcheck disable=SC2086
"${CXX:-g++}" -std=c++17 -DNDEBUG -Wall -Wextra -Werror -O2 -g -pthread -fno-plt \
    -include "${HEADER:-$here/rival-$RIVAL.h}" -o "$1/regret" "$here/regret.cc" $objects $libraries
