#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# headers.sh DIR PACKAGE: fetches the headers that Debian's package PACKAGE (such as linux-headers-amd64) stands for, by
# apt, and unpacks them below DIR, where they need no installation: since 6.12, that would install a kernel, too. The
# last line says where they are. What is there already is left alone.
set -eu

[ $# -eq 2 ] || { echo "usage: $0 DIR PACKAGE" >&2; exit 2; }
mkdir -p "$1"
dir=$(cd "$1" && pwd)
cd "$dir"

# The packages that PACKAGE needs and whose names begin so.
needed() {
	apt-cache depends --no-recommends --no-suggests "$1" 2>/dev/null |
		sed -n "s/^ *|*Depends: \($2[^ ]*\)\$/\1/p" | head -n 1
}

headers=$(needed "$2" linux-headers-)
common=$(needed "$headers" 'linux-headers-.*-common')
kbuild=$(needed "$headers" linux-kbuild-)
if [ -z "$headers" ] || [ -z "$common" ] || [ -z "$kbuild" ]; then
	echo "the archive has no $2: run apt-get update, with bookworm-security in the sources" >&2
	exit 1
fi

if [ ! -e "$headers.done" ]; then
	apt-get -qq download "$headers" "$common" "$kbuild" 2>apt.log || { cat apt.log >&2; exit 1; }
	for name in "$headers" "$common" "$kbuild"; do
		for file in "${name}"_*.deb; do
			dpkg-deb -x "$file" .
			rm "$file"
		done
	done
	# It names its place in an installed system.
	echo "include $dir/usr/src/$common/Makefile" >"usr/src/$headers/Makefile"
	: >"$headers.done"
fi
echo "$dir/usr/src/$headers"
