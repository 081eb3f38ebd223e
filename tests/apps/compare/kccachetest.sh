#!/bin/sh
# kccachetest.sh THREADS: Kyoto Cabinet's cache hash database, 2,000,000 random operations of all threads together.
# To be compared by its run time.
set -eu
exec kccachetest wicked -th "$1" -it 1 "$((2000000 / $1))"
