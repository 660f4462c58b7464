#!/bin/sh
# experiments.sh - the program of the experiments: the first run of each line of the plan, shortened; then nothing is left
# to do; what is stopped goes on; a wrong plan is refused with its line.
cd "$(dirname "$0")/.." || exit 1
run=build/experiments
dir=build/experiments.test
rm -rf "$dir"
mkdir -p "$dir" || exit 1
passed=0
failed=0
check() { # WHAT COMMAND...
   what=$1
   shift
   if "$@"; then passed=$((passed + 1)); else
      failed=$((failed + 1))
      echo "FAILED experiments.sh: $what"
      head -n 3 "$dir/out" "$dir/err"
   fi
}
go() { "./$run" --quick --out "$dir" "$@" >"$dir/out" 2>"$dir/err"; }
fields() { awk -F, 'NR == 1 { n = NF } NF != n || !n { exit 1 }' "$1"; }
no() { ! "$@"; }

check "the plan, quickly" go
check "it says first how long it takes" grep -q '^[0-9]* runs to do, .* minutes' "$dir/out"
check "no line is short" fields "$dir/runs.csv"
check "no curve is short" fields "$dir/curves.csv"
check "losses are numbers" awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
   { v = $at["validation_loss"]; if (!(v > 0 && v < 9 && $at["train_topk_loss"] > 0)) exit 1 }' "$dir/runs.csv"
cp "$dir/runs.csv" "$dir/whole.csv"
check "the plan again" go
check "nothing is left" grep -q 'All runs of the plan are done' "$dir/out"
check "nothing was added" cmp -s "$dir/runs.csv" "$dir/whole.csv"
# The last line is lost, as if it had been stopped; and half a line was written.
lines=$(wc -l <"$dir/whole.csv")
head -n $((lines - 1)) "$dir/whole.csv" >"$dir/runs.csv"
tail -n 1 "$dir/whole.csv" | cut -d, -f1-25 | tr -d '\n' >>"$dir/runs.csv"
check "what was stopped goes on" go
check "with one run" grep -q '^1 runs to do' "$dir/out"
tail -n 1 "$dir/whole.csv" | cut -d, -f1-21,23- >"$dir/a" # but for the seconds
tail -n 1 "$dir/runs.csv" | cut -d, -f1-21,23- >"$dir/b"
check "to the same line" cmp -s "$dir/a" "$dir/b"
for words in 'budget=1e12 size=3x48 lr=1e-3' 'budget=1e12 size=3x48 lr=1e-3 seed=1 gate=loud' 'nonsense' \
   'budget=1e12 size=3x48 lr=1e-3 seed=1 colour=red' 'budget=1e12 size=3 lr=1e-3 seed=1'; do
   printf '# a comment\nstage=x %s\n' "$words" >"$dir/plan"
   check "a plan of $words" no go --plan "$dir/plan"
   check "is refused with its line" grep -q 'plan:2: ' "$dir/err"
done
check "no text" no "./$run" --out "$dir" 2>"$dir/err"
check "says so" grep -q 'say --data' "$dir/err"
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
