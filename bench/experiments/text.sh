#!/bin/sh
# Makes the text of the experiments: bench/experiments/text.sh LINUX_SOURCE.tar.xz OUT
# The archive is Debian's: `apt-get install linux-source` puts it into /usr/src. All its .c files, in an order that
# depends on their names only but mixes all folders, one after the other, up to 100,000,000 bytes. Needs 700 MB of room.
set -eu
archive=$1 out=$2
dir=$(mktemp -d "${TMPDIR:-/tmp}/text.XXXXXX")
trap 'rm -rf "$dir"' EXIT
tar xf "$archive" -C "$dir" --strip-components=1 --wildcards '*.c'
(cd "$dir" && find . -type f -name '*.c' | LC_ALL=C sort | LC_ALL=C awk '
   BEGIN { for (i = 32; i < 127; i++) code[sprintf("%c", i)] = i }
   { h = 5381; for (i = 1; i <= length($0); i++) h = (h * 33 + code[substr($0, i, 1)]) % 4294967291
     for (i = 0; i < 3; i++) h = h * 48271 % 4294967291
     printf "%010d %s\n", h, $0 }' | LC_ALL=C sort | cut -d' ' -f2- | tr '\n' '\0' | xargs -0 cat 2>/dev/null) |
   head -c 100000000 >"$out"
wc -c "$out"
