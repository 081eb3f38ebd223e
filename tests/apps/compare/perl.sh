#!/bin/sh
# perl.sh SHARED THREADS: tests/apps/shared.pl, given as SHARED: 8,000 numbers through a queue, and 8,000 turns.
# To be compared by its run time.
set -eu
exec /usr/bin/perl "$1" "$2" 8000
