#!/bin/sh
# kccachetest.sh THREADS: Kyoto Cabinet's cache hash database, 300,000 random operations of all threads together.
# To be compared by its run time.
set -eu
exec kccachetest wicked -th "$1" -it 1 "$((300000 / $1))"
