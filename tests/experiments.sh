#!/bin/sh
# experiments.sh - the programs of the experiments. The first run of each line of the plan, shortened; then nothing is
# left to do; what is stopped goes on; two share the work; a wrong plan is refused with its line; a run in full, its
# speed, its routing; figures.
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
figures() { build/figures --data "$dir" --out "$dir" >"$dir/out" 2>"$dir/err"; }
routing() { build/routing --data "$dir/text" --model "$model" --out "$dir/routing.csv" >"$dir/out" 2>"$dir/err"; }
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
tail -n 1 "$dir/whole.csv" | cut -d, -f1-27 | tr -d '\n' >>"$dir/runs.csv"
check "what was stopped goes on" go
check "with one run" grep -q '^1 runs to do' "$dir/out"
tail -n 1 "$dir/whole.csv" | cut -d, -f1-23,25- >"$dir/a" # but for the seconds
tail -n 1 "$dir/runs.csv" | cut -d, -f1-23,25- >"$dir/b"
check "to the same line" cmp -s "$dir/a" "$dir/b"
check "figures of it, or why not" figures

# Two at a time share the work.
head -n 1 "$dir/whole.csv" >"$dir/runs.csv"
go & "./$run" --quick --out "$dir" >"$dir/a" 2>&1
wait
cut -d, -f1-20 "$dir/whole.csv" | sort >"$dir/a"
cut -d, -f1-20 "$dir/runs.csv" | sort >"$dir/b"
check "two at a time: each run once" cmp -s "$dir/a" "$dir/b"

# A routed model in full: its course, its file, its speed, what its routers do.
cat >"$dir/plan" <<'END'
stage=x budget=1e12 size=3x48 match=yes select=learned capacity=0.125 gate=raw causal=both lr=1e-3 seed=1 full=yes
stage=y budget=1e12 size=3x48 lr=1e-3 seed=1
END
check "a run in full" go --plan "$dir/plan" --stage x
check "has a test loss" awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
   $at["causal"] == "both" { found = 1; if (!($at["test_calibrated_loss"] > 0)) exit 1 } END { exit !found }' "$dir/runs.csv"
check "has a course" awk -F, '$10 == "both" { n++ } END { exit n < 3 }' "$dir/curves.csv"
check "speeds" go --plan "$dir/plan" --speed
check "of two models" awk -F, 'END { exit NR != 3 }' "$dir/speed.csv"
check "and of decoding" awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
   $at["causal"] == "both" && !($at["token_median"] > 0) { exit 1 }' "$dir/speed.csv"
awk 'BEGIN { for (i = 0; i < 60000; i++) printf "word %d of a text\n", i * i % 997 }' >"$dir/text"
model=build/models/$(awk -F, '$10 == "both"' "$dir/runs.csv" | cut -d, -f1-20 | tr , _).safetensors
check "routing" routing
check "its shares are of one" awk -F, '$1 == "engaged" { sum[$2] += $4 } END { exit !(sum[0] > 0.999 && sum[0] < 1.001 &&
   sum[1] > 0.999 && sum[1] < 1.001) }' "$dir/routing.csv"
check "figure 5 of it" figures
check "is drawn" grep -q '</svg>' "$dir/fig5-routing.svg"

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
