#!/bin/sh
# docs.sh [FILE.md]... - every ```c and ```cpp block of README.md and docs/*.md compiles; one that has a main runs,
# exits with 0, and prints exactly what stands in the block indented by four spaces that follows it (none: nothing).
# A line `<!-- flags: -DX -pthread -->` before a block adds these flags. Each block is one check; without a C++ compiler
# the ```cpp blocks are skipped. CC, CXX, DOCS_CFLAGS (default -O1) and JOBS (default 2) are honoured.
cd "$(dirname "$0")/.." && rm -rf build/docs && mkdir -p build/docs || exit 1
top=$(pwd)
[ $# -gt 0 ] || set -- README.md docs/*.md

# Splits the files: build/docs/NAME-N.c or .cc, .flags and .expected; prints `block extension file:line` for each.
awk '
   FNR == 1 {
      if (in_code || in_other) print "open c " last; last = FILENAME
      name = FILENAME; sub(/.*\//, "", name); sub(/\.md$/, "", name)
      n = 0; in_code = in_other = after = 0; flags = ""
   }
   in_code && /^```$/ { in_code = 0; after = 1; blank = 0; close(code); next }
   in_code { print >code; next }
   in_other { if (/^```$/) in_other = 0; next }
   after && /^    / { while (blank > 0) { if (started) print "" >expected; --blank }; started = 1
                      print substr($0, 5) >expected; next }
   after && /^$/ { ++blank; next }
   { if (after) close(expected); after = 0 }
   /^<!-- flags: .* -->$/ { flags = $0; sub(/^<!-- flags: */, "", flags); sub(/ *-->$/, "", flags); next }
   /^```c$/ || /^```cpp$/ {
      block = name "-" ++n; ext = $0 == "```c" ? "c" : "cc"
      code = "build/docs/" block "." ext; expected = "build/docs/" block ".expected"
      flagged = "build/docs/" block ".flags"
      printf "" >code; printf "" >expected; print flags >flagged; close(flagged)
      print block, ext, FILENAME ":" FNR
      in_code = 1; started = 0; flags = ""; next
   }
   /^```/ { in_other = 1; next }
   !/^$/ { flags = "" }
   END { if (in_code || in_other) print "open c " last }
' "$@" >build/docs/list || exit 1

cxx=""
printf '#include <cmath>\nint main() { return 0; }\n' >build/docs/probe.cc
${CXX:-c++} -std=c++11 build/docs/probe.cc -o build/docs/probe >/dev/null 2>&1 && cxx=${CXX:-c++}

# check BLOCK EXTENSION PLACE: the verdict in build/docs/BLOCK.result, what was said in .log.
check() {
   b=$top/build/docs/$1
   code=$b.$2
   compile="${CC:-cc} -std=c99"
   if [ "$2" = cc ]; then
      if [ -z "$cxx" ]; then echo "skipped $3: no C++ compiler (${CXX:-c++})" >"$b.result"; return; fi
      compile="$cxx -std=c++11"
   fi
   # Static functions that are not called are not compiled: a quarter of the time.
   grep -q '^#define MOD_IMPLEMENTATION' "$code" && compile="$compile -DMOD_STATIC"
   compile="$compile ${DOCS_CFLAGS:--O1} -Wall -Wextra -I$top $(cat "$b.flags" 2>/dev/null)"
   lines=$(wc -l <"$code")
   why=""
   if [ "$lines" -gt 60 ]; then
      why="the program has $lines lines, more than 60"
   elif ! grep -q '^int main' "$code"; then
      $compile -c "$code" -o "$b.o" 2>"$b.log" || why="does not compile"
      [ -s "$b.expected" ] && why="has output, but no main"
   elif ! $compile "$code" -o "$b" -lm 2>"$b.log"; then
      why="does not compile"
   else
      rm -rf "$b.dir" && mkdir "$b.dir" && cd "$b.dir" || exit 1
      "$b" >"$b.output" 2>>"$b.log"
      status=$?
      if ! cmp -s "$b.expected" "$b.output"; then
         why="prints something else (< as documented, > as printed)"
         diff "$b.expected" "$b.output" >>"$b.log"
      fi
      [ "$status" -eq 0 ] || why="exits with $status"
   fi
   if [ -n "$why" ]; then echo "FAILED $3: $why" >"$b.result"; else echo passed >"$b.result"; fi
}

# Each worker takes the next block that nobody has.
worker() {
   while read -r block ext place; do
      mkdir "$top/build/docs/$block.taken" 2>/dev/null && (check "$block" "$ext" "$place")
   done <"$top/build/docs/list"
}
workers=0
while [ "$workers" -lt "${JOBS:-2}" ]; do
   worker &
   workers=$((workers + 1))
done
wait

passed=0 failed=0 skipped=0
while read -r block ext place; do
   result=$(cat "build/docs/$block.result" 2>/dev/null)
   cat "build/docs/$block.log" 2>/dev/null # warnings, and why it failed
   case $result in
   passed) passed=$((passed + 1)) ;;
   skipped*) skipped=$((skipped + 1)); echo "$result" ;;
   *) failed=$((failed + 1)); echo "${result:-FAILED $place: the file ends within a block}" ;;
   esac
done <build/docs/list
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$((passed + skipped))" -gt 0 ]
