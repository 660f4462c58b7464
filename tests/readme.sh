#!/bin/sh
# The program in README.md compiles, and prints what README.md says that it prints.
cd "$(dirname "$0")/.." && mkdir -p build || exit 1
awk '/^```c$/ { on = 1; next } on && /^```$/ { exit } on' README.md >build/readme.c
awk '/^```$/ { seen = 1; next } seen && /^    / { on = 1; print substr($0, 5); next } on { exit }' README.md >build/readme.expected
failed=0
lines=$(wc -l <build/readme.c)
if [ "$lines" -lt 15 ] || [ "$lines" -gt 25 ]; then
   echo "FAILED README.md: the program has $lines lines"
   failed=1
elif ! ${CC:-cc} -std=c99 -O2 -Wall -Wextra -I. build/readme.c -o build/readme -lm || ! ./build/readme >build/readme.output ||
   ! [ -s build/readme.expected ] || ! diff build/readme.expected build/readme.output; then
   echo "FAILED README.md: its program does not do what it says"
   failed=1
fi
echo "$((1 - failed)) passed, $failed failed, 0 skipped"
exit $failed
