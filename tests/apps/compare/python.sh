#!/bin/sh
# python.sh QUEUES THREADS: tests/apps/queues.py, given as QUEUES: 20,000 numbers through queues, conditions, barriers
# and pools. To be compared by its run time.
set -eu
exec /usr/bin/python3 "$1" "$2" 20000
