#!/bin/sh
# Builds the conformance suite: build.sh OUTDIR. Uses CC, CXX and CFLAGS from the environment if set.
set -eu
[ $# -eq 1 ] || { echo "usage: build.sh OUTDIR" >&2; exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")"

cc=${CC:-cc}
cxx=${CXX:-c++}
common="-Wall -Wextra -Werror -O2 -g -pthread ${CFLAGS:-}"
c_flags="-std=gnu11 -D_GNU_SOURCE $common"

harness="report.c support.c exclusion.c blocked.c slow_motion.c slow_crowd.c doomed.c lost.c rwlock.c sem.c"
areas="mutex_kinds.c mutex_timed.c mutex_static.c mutex_lifetime.c mutex_foreign.c
       cond_basic.c cond_refused.c cond_timed.c cond_cancel.c cond_stress.c cond_busy.c cond_holder.c order.c c11.c
       errno_kept.c alone.c owner.c
       fork.c fork_storm.c signals.c signals_frozen.c threads.c threads_starved.c exit.c
       spin_basic.c sem_basic.c sem_waits.c sem_signals.c slow_spin.c slow_sem.c
       rwlock_codes.c rwlock_objects.c rwlock_order.c rwlock_life.c
       slow_mutex.c slow_sleepers.c slow_waiters.c slow_cond.c slow_pairs.c slow_fork.c slow_rw.c slow_unlock.c
       slow_rw_end.c slow_cond_end.c
       attributes.c passthrough_robust.c passthrough_shared.c mapped.c real_time.c constructors.c malloc.c sandbox.c"

for plugin in deepbind ctor statics tls; do
    $cc $c_flags -fPIC -shared -o "$out/plugin_$plugin.so" plugin_$plugin.c
done
if command -v "$cxx" >/dev/null; then
    $cxx -std=c++17 $common -fPIC -shared -o "$out/plugin_cxx.so" plugin_cxx.cc
else
    echo "build.sh: no C++ compiler ($cxx): cond_cancel.cxx_* will be skipped" >&2
fi
$cc $c_flags -fPIC -shared -fvisibility=hidden -o "$out/faulty.so" faulty.c -ldl
$cc $c_flags -o "$out/conformance_malloc" conformance_malloc.c report.c support.c -ldl
$cc $c_flags -o "$out/conformance" main.c $harness $areas -ldl
