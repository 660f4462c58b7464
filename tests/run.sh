#!/bin/sh
# run.sh [-s 'WHAT: WHY']... PROGRAM... - runs test programs, adds up what they say.
#
# A program ends with a line `N passed, M failed, K skipped`. One that does not, or that exits with a status which
# contradicts its line, counts as one failure more. -s counts one thing that was skipped, and says why.
# The last line printed is the sum, alone on its line; the exit status is 1 if anything failed or nothing passed.
# RUN, if set, is put before each program (an emulator). TEST_TIMEOUT: seconds for one program (default 300).

# OpenMP threads that spin while they wait make a run many times slower on a machine that does other work too.
export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-passive}"

passed=0
failed=0
skipped=0
out=$(mktemp "${TMPDIR:-/tmp}/modtest.XXXXXX") || exit 2
trap 'rm -f "$out"' EXIT
trap 'exit 130' INT TERM

limit=""
command -v timeout >/dev/null 2>&1 && limit="timeout ${TEST_TIMEOUT:-300}"

while [ "${1-}" = -s ]; do
   echo "  skipped $2"
   skipped=$((skipped + 1))
   shift 2
done

# A program's output, indented, so that no line of it is taken for the sum; the first lines, if there are very many.
shown() {
   awk 'NR <= 100 { print "  | " $0 } END { if (NR > 100) print "  | ... and " NR - 100 " lines more" }'
}

for program in "$@"; do
   name=$(basename "$program")
   $limit ${RUN-} "$program" >"$out" 2>&1
   status=$?
   # Three numbers if the last line is a closing line, else nothing. Windows ends a line with \r\n.
   counts=$(tr -d '\r' <"$out" |
      sed -n '$s/^\([0-9][0-9]*\) passed, \([0-9][0-9]*\) failed, \([0-9][0-9]*\) skipped$/\1 \2 \3/p')
   if [ -n "$counts" ]; then
      sed '$d' "$out" | shown
      p=${counts%% *}
      k=${counts##* }
      f=${counts#* }
      f=${f% *}
   else
      shown <"$out"
      p=0
      k=0
      f=0
   fi
   why=""
   if [ "$status" -eq 124 ] && [ -n "$limit" ]; then
      why="did not end within ${TEST_TIMEOUT:-300} s"
   elif [ "$status" -ge 126 ]; then
      why="crashed or could not be run (status $status)"
   elif [ -z "$counts" ]; then
      why="ended without a closing line (status $status)"
   elif [ "$status" -ne 0 ] && [ "$f" -eq 0 ]; then
      why="exited with $status though it reports no failure"
   elif [ "$status" -eq 0 ] && [ "$f" -ne 0 ]; then
      why="exited with 0 though it reports failures"
   elif [ "$((p + f + k))" -eq 0 ]; then
      why="checked nothing"
   fi
   if [ -n "$why" ]; then
      echo "  FAILED $name: $why"
      f=$((f + 1))
   fi
   echo "  $name: $p passed, $f failed, $k skipped"
   passed=$((passed + p))
   failed=$((failed + f))
   skipped=$((skipped + k))
done

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
