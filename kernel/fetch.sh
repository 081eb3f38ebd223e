#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# fetch.sh DIR: fetches Debian's kernel source package by apt, verifies it, unpacks it to DIR/linux and applies the
# series with `git am`. Prints what it does. A tree that is already there with the same series is left alone.
#
# If the archive no longer has the version that source.conf names, the newest one of the package is taken and this is
# said. The series must apply to that one, too.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
[ $# -eq 1 ] || { echo "usage: $0 DIR" >&2; exit 2; }
mkdir -p "$1"
dir=$(cd "$1" && pwd)
. "$here/source.conf"

# What a tree is made from: the package that is wanted and the series. The stamp also says which file it became.
series=$(cat "$here/source.conf" "$here"/patches/*.patch | sha256sum | cut -d' ' -f1)
case $(cat "$dir/stamp" 2>/dev/null) in
"$series "*)
	echo "source: $dir/linux is up to date"
	exit 0
	;;
esac

cd "$dir"
# Files of other versions may be here, from earlier runs. They do not count.
file=$(ls "${package}_${version}"_*.deb 2>/dev/null | head -n 1 || true)
if [ -z "$file" ]; then
	# Into a directory of its own: what is there afterwards, apt has verified just now.
	rm -rf download
	mkdir download
	cd download
	if ! apt-get -qq download "$package=$version" 2>../apt.log; then
		echo "source: the archive does not have $package $version; trying the newest"
		apt-get -qq download "$package" 2>../apt.log || {
			cat ../apt.log >&2
			echo "cannot fetch $package: run apt-get update, with bookworm-security in the sources" >&2
			exit 1
		}
	fi
	file=$(ls "${package}"_*.deb | head -n 1)
	cd ..
	mv "download/$file" .
	rmdir download
fi

case $file in
"${package}_${version}"_*)
	echo "$sha256  $file" | sha256sum --quiet -c - || {
		rm -f "$file"
		echo "$file is not the package that source.conf names. It is removed; try again" >&2
		exit 1
	}
	;;
*)
	echo "source: $file instead of $version (apt has verified it)"
	;;
esac
found=$(sha256sum "$file" | cut -d' ' -f1)

rm -rf linux stamp unpack
mkdir unpack
dpkg-deb --fsys-tarfile "$file" | tar -x -C unpack --strip-components=3 ./usr/src
tar -x -f "unpack/$package.tar.xz" -C unpack
mv "unpack/$package" linux
rm -rf unpack

# git knows the files that the series touches, and no others: the whole tree would take minutes.
cd linux
sed -n 's|^--- a/||p' "$here"/patches/*.patch | sort -u >../touched
git init -q .
git config user.name fetch.sh
git config user.email fetch.sh@localhost
git config gc.auto 0
while read -r path; do
	if [ -e "$path" ]; then git add -f "$path"; fi
done <../touched
git commit -q -m "$package $version"
git tag base
git am -q "$here"/patches/*.patch
git tag series
cd ..
echo "$series $found $file" >stamp
echo "source: $(git -C linux rev-list --count base..HEAD) patches applied to $file"
