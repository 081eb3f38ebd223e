#!/bin/sh
# Builds the benchmark over one rival: build.sh OUTDIR -> OUTDIR/regret
#
# From the environment: RIVAL, the NAME of a rival-NAME.h; PEER and PEER_FLAGS, for RIVAL=c: a C file and how to compile
# it; RUST, for the rivals in Rust: a directory for cargo. Exit status 77: a header of the rival is not installed.
set -eu
if [ $# -ne 1 ] || [ -z "${RIVAL:-}" ]; then
    echo "usage: RIVAL=NAME $0 OUTDIR" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
objects=
case $RIVAL in
std | parking_lot-*)
    "${CARGO:-cargo}" build --quiet --release --locked --manifest-path "$here/rust/Cargo.toml" --target-dir "$RUST"
    libraries="$RUST/release/libregret_locks.a -ldl"
    ;;
tbb) header=oneapi/tbb/mutex.h libraries=-ltbb ;;
absl) header=absl/synchronization/mutex.h libraries=-labsl_synchronization ;;
nsync) header=nsync.h libraries=-lnsync_cpp ;;
c)
    # shellcheck disable=SC2086 # a list of words
    "${CC:-gcc}" -std=gnu11 -O2 -g -pthread ${PEER_FLAGS:-} -c -o "$1/peer.o" "$PEER"
    objects=$1/peer.o libraries=
    ;;
*) libraries= ;;
esac
if [ -n "${header:-}" ]; then
    echo "#include <$header>" | "${CXX:-g++}" -std=c++17 -E -x c++ -o /dev/null - 2>/dev/null || exit 77
fi
# shellcheck disable=SC2086
"${CXX:-g++}" -std=c++17 -DNDEBUG -Wall -Wextra -Werror -O2 -g -pthread -fno-plt -include "$here/rival-$RIVAL.h" \
    -o "$1/regret" "$here/regret.cc" $objects $libraries
