#!/bin/sh
# lm.sh - the tool as people use it: every command, its exit status and its errors; training that is interrupted, killed
# and resumed ends with the same bytes as training that is not. LM: the program (default build/lm).
cd "$(dirname "$0")/.." || exit 1
lm=$PWD/${LM:-build/lm}
readme=$PWD/README.md
mkdir -p build/lm.test && cd build/lm.test && rm -rf ./* || exit 1
passed=0
failed=0
skipped=0
ok() { passed=$((passed + 1)); }
bad() {
   echo "FAILED $*"
   failed=$((failed + 1))
}
skip() {
   echo "skipped $*"
   skipped=$((skipped + 1))
}
# status WANTED WHAT COMMAND...: runs it, output in out, errors in err.
status() {
   wanted=$1
   what=$2
   shift 2
   "$@" >out 2>err </dev/null
   got=$?
   if [ "$got" -eq "$wanted" ]; then ok; else bad "$what: status $got, not $wanted: $(head -n 3 err)"; fi
}
says() { # PATTERN FILE
   if grep -q -e "$1" "$2"; then ok; else bad "$what: '$1' is not in $2: $(head -n 5 "$2")"; fi
}
same() {
   if cmp -s "$1" "$2"; then ok; else bad "$what: $1 and $2 differ"; fi
}

# A text from a seed: sentences of a few words, 40 KB.
awk 'BEGIN {
   n = split("the a small large old new red tree house river token block router score gate sees takes finds", w, " ")
   s = 12345
   for (i = 0; i < 7000; ++i) {
      s = (s * 1103 + 12345) % 1048576
      printf "%s%s", w[1 + int(s / 64) % n], s % 9 == 0 ? ".\n" : " "
   }
}' >text.txt
tiny="--layers 2 --width 16 --heads 2 --context 32 --seqs 2 --threads 1"

# ---- match: the options it prints make a model of the FLOPs asked for ----
what="match"
status 0 "match a size" "$lm" match --flops-of 4x48 --capacity 0.25
says '^given *4 blocks of width 48' out
says '^matched' out
flops=$(sed -n 's/^matched.*: \([0-9,]*\) FLOPs.*/\1/p' out)
options=$(sed -n 's/^next *lm train \(.*\), and.*/\1/p' out)
status 0 "train what match says" "$lm" train --data text.txt --out matched.safetensors --steps 1 --capacity 0.25 $options
status 0 "info of it" "$lm" info matched.safetensors
says "FLOPs a byte forward *$flops " out
status 0 "match a file" "$lm" match --flops-of matched.safetensors --capacity 0.25
says "^given.*: $flops FLOPs" out
says "^matched.*: $flops FLOPs" out
status 2 "match without a model" "$lm" match
status 1 "match a model that is not there" "$lm" match --flops-of nothing.safetensors
status 1 "match a width that its heads do not divide" "$lm" match --flops-of 1x2
says 'n_heads' err
rm -f matched.safetensors

# ---- help and bad words ----
status 0 "--help" "$lm" --help
says 'lm train' out
status 2 "no command" "$lm"
status 2 "an unknown command" "$lm" tarin
says "unknown command 'tarin'" err
for command in train sample eval routes match info run; do
   status 0 "$command --help" "$lm" $command --help
   says '^lm '$command out
   says 'Exit status' out
   if [ -s err ]; then bad "$command --help writes to stderr"; else ok; fi
   status 2 "$command --nonsense" "$lm" $command --nonsense
   says 'unknown option' err
   if [ -s out ]; then bad "$command --nonsense writes to stdout"; else ok; fi
done
for bad_option in "--steps 0" "--steps x" "--capacity 2" "--capacity nan" "--gate x" "--seed -1" "--threads 0" \
   "--lr 0" "--steps" "--layers 99999" "--data" "--steps 99999999999999999999"; do
   # shellcheck disable=SC2086
   status 2 "train $bad_option" "$lm" train --data text.txt $bad_option
   says '^lm train: ' err
done
status 2 "train on nothing" "$lm" train
says 'on which text' err
status 2 "sample without a model" "$lm" sample
status 2 "two models" "$lm" info a b
status 1 "a width that no heads divide" "$lm" train --data text.txt --width 17 --heads 2
says 'heads' err
status 1 "a text that is not there" "$lm" train --data nowhere.txt
says 'nowhere.txt: No such file' err
status 1 "a folder as a text" "$lm" train --data .
: >empty.txt
status 1 "an empty text" "$lm" train --data empty.txt
says 'the text is empty' err
printf 'short' >short.txt
status 1 "a text that is too short" "$lm" train --data short.txt
says 'shorter than a window' err
status 1 "a model that is not there" "$lm" info nowhere.safetensors
says 'No such file' err
status 1 "a text as a model" "$lm" sample text.txt
says 'text.txt: ' err

# ---- train, look, go on ----
# shellcheck disable=SC2086
status 0 train "$lm" train --data text.txt --out whole.st --steps 60 --calibrate $tiny
says 'next ' out
says 'thresholds calibrated' out
cp out train.out
status 0 info "$lm" info whole.st --tensors
says 'step 60 of 60' out
says 'text.txt: ' out
says 'blocks.1.router' out
status 0 eval "$lm" eval whole.st
says '^causal ' out
says '^block 2 ' out
status 0 "eval on another text" "$lm" eval whole.st --data "$readme" --part all
status 0 sample "$lm" sample whole.st --prompt "the old" --tokens 100
cp out sample.out
if [ "$(wc -c <out)" -eq 107 ]; then ok; else bad "sample: $(wc -c <out) bytes, not 7 + 100"; fi
status 0 "the same sample" "$lm" sample whole.st --prompt "the old" --tokens 100 --threads 3
same out sample.out
status 0 "another seed" "$lm" sample whole.st --prompt "the old" --tokens 100 --seed 2
if cmp -s out sample.out; then bad "two seeds, one sample"; else ok; fi
printf 'the old' >prompt
"$lm" sample whole.st --prompt - --tokens 100 <prompt >out 2>err
what="a prompt from standard input"
same out sample.out
status 0 routes "$lm" routes whole.st
says '^block 2 ' out
says '^used ' out
status 0 "routes of a text" "$lm" routes whole.st --text 'a < b & "c"' --svg routes.svg
status 0 "routes from the first byte on" "$lm" routes whole.st --csv - --tokens 2 --at 0
says '^0,' out
status 0 "routes as numbers" "$lm" routes whole.st --csv - --tokens 10
if [ "$(wc -l <out)" -eq 21 ]; then ok; else bad "routes --csv: $(wc -l <out) lines, not 1 + 10 tokens x 2 blocks"; fi
awk -F, 'NR > 1 && NF != 7 { exit 1 }' out && ok || bad "routes --csv: not seven columns"
if command -v python3 >/dev/null 2>&1; then
   status 0 "the SVG is XML" python3 -c 'import xml.dom.minidom; xml.dom.minidom.parse("routes.svg")'
   cp whole.st model.safetensors
   awk '/^    import json, struct/ { on = 1 } on && !/^    / { exit } on { print substr($0, 5) }' "$readme" >read.py
   status 0 "README.md's Python" python3 read.py
   says "^16 .*'embed'" out
else
   skip "SVG and file from Python: no python3"
fi

# ---- every scheme: trained, evaluated, sampled, drawn; what was stopped goes on to the same file ----
while read -r words; do
   rm -f scheme.st again.st
   # shellcheck disable=SC2086
   status 0 "train $words" "$lm" train --data text.txt --out scheme.st --steps 20 $tiny $words
   case $words in
   *--mlp*) says '^experts .*computed' out; says ' MLPs of .* experts.*; tokens choose in' out ;;
   esac
   case $words in
   *none*) ;;
   *) says '^causal' out ;;
   esac
   status 0 "eval $words" "$lm" eval scheme.st
   status 0 "sample $words" "$lm" sample scheme.st --tokens 20
   status 0 "routes $words" "$lm" routes scheme.st
   status 0 "info $words" "$lm" info scheme.st
   status 0 "resume $words" "$lm" train --resume scheme.st --out again.st --threads 1
   same again.st scheme.st
done <<'END'
--select token
--select random
--select every --capacity 0.5
--select first
--select none
--gate tanh --gated-bypass
--kv 0.3 --select all
--mlp moe --select all --choices 2 --experts 3
--mlp moe --capacity 0.5 --factor 1.5
--mlp moe --select all --choice expert
--mlp mode --capacity 0.5
--dropout 0.1 --capacity-warmup 10 --threshold-decay 0.9
END
# shellcheck disable=SC2086
status 1 "a gated bypass without the tanh gate" "$lm" train --data text.txt --out no.st $tiny --gated-bypass
says 'needs MOD_GATE_TANH' err
# shellcheck disable=SC2086
status 1 "mode in blocks that select" "$lm" train --data text.txt --out no.st $tiny --mlp mode --select learned
says 'takes every token' err

# shellcheck disable=SC2086
status 1 "experts without an MLP for them" "$lm" train --data text.txt --out no.st $tiny --experts 3
says 'need --mlp moe or mode' err
# shellcheck disable=SC2086
status 1 "dense and a selection" "$lm" train --data text.txt --out no.st $tiny --dense --select token
says 'cannot be both' err

# ---- sums: a task instead of a text, without --data ever after ----
# shellcheck disable=SC2086
status 0 "train on sums" "$lm" train --task sums --out sums.st --steps 60 --calibrate $tiny
says '360,000 bytes of sums' out
says "^Spearman's correlation of routing with entropy: rho = -*[01]\.[0-9]*, n = 2,048" out
status 0 "eval on sums" "$lm" eval sums.st --part all
says '^answer, tens  *answer, units .*%' out
says '^answers: .* right' out
says '^Spearman' out
if [ "$(grep -c '%.*%$' out)" -ge 9 ]; then ok; else bad "eval on sums: not a row for each place of a line"; fi
status 0 "sums on another text" "$lm" eval sums.st --data text.txt
if grep -q '^answer' out; then bad "$what: a table of sums"; else ok; fi
says '^Spearman' out
status 0 "routes of sums" "$lm" routes sums.st
says '^ *[0-9]+[0-9]+[0-9]=[0-9][0-9]' out
status 0 "info of sums" "$lm" info sums.st
says '^text  *sums: 360,000 bytes' out
status 0 "resume on sums" "$lm" train --resume sums.st --threads 1 --out again.st
says 'finished already' out
same again.st sums.st
status 1 "resume sums on a text" "$lm" train --resume sums.st --data text.txt
says 'is not the text' err
# shellcheck disable=SC2086
status 0 "dense on sums" "$lm" train --task sums --out dense.st --steps 2 --dense $tiny
if grep -q '^Spearman' out; then bad "$what: a correlation without routing"; else ok; fi
status 2 "a task and a text" "$lm" train --task sums --data text.txt
says 'data or --task' err
status 2 "a task that is none" "$lm" train --task products
says 'expected one of sums' err
sed 's/"lm.task":"sums"/"lm.task":"cubs"/' sums.st >cubs.st
status 1 "a file with a task that is none" "$lm" eval cubs.st
says 'cubs: a task' err

# Ctrl-C: saved, said how to go on; and the end is the same as without.
# shellcheck disable=SC2086
status 0 "400 steps" "$lm" train --data text.txt --out straight.st --steps 400 --seed 7 $tiny
# shellcheck disable=SC2086
"$lm" train --data text.txt --out stopped.st --steps 400 --seed 7 --save-every 0 $tiny >out 2>err &
pid=$!
while [ ! -e stopped.st ] && kill -0 $pid 2>/dev/null; do sleep 0.02; done
kill -INT $pid
wait $pid
got=$?
what="Ctrl-C"
if [ $got -eq 130 ]; then
   ok
   says 'train --resume stopped.st' out
elif [ $got -eq 0 ]; then
   skip "Ctrl-C: the training was over before"
else
   bad "Ctrl-C: exit status $got: $(cat err)"
fi
status 0 "resume" "$lm" train --resume stopped.st --threads 1
same stopped.st straight.st
status 0 "resume what is finished" "$lm" train --resume stopped.st --threads 1
says 'finished already' out
same stopped.st straight.st
status 2 "settings that resume has already" "$lm" train --resume stopped.st --width 64
# shellcheck disable=SC2086
status 1 "a model that is there already" "$lm" train --data text.txt --out straight.st $tiny
says 'is there already' err
# shellcheck disable=SC2086
status 1 "a model in the place of the text" "$lm" train --data text.txt --out text.txt $tiny
# shellcheck disable=SC2086
status 1 "a text whose name is no UTF-8" sh -c 'cp text.txt "$1" && exec "$2" train --data "$1" --out name.st '"$tiny" \
   sh "$(printf 'caf\351.txt')" "$lm"
says 'UTF-8' err
[ -e name.st ] && bad "it was written all the same" || ok
cp text.txt original.txt
echo more >>text.txt
status 1 "resume on a text that has changed" "$lm" train --resume stopped.st
says 'is not the text' err
mv original.txt text.txt

# Kill it at random moments until 30 kills have hit: the file is whole at every moment, and nothing but time is lost.
kills=0
seed=100
while [ $kills -lt 30 ] && [ $failed -eq 0 ]; do
   seed=$((seed + 1))
   rm -f straight.st
   # shellcheck disable=SC2086
   status 0 "seed $seed" "$lm" train --data text.txt --out straight.st --steps 300 --seed $seed $tiny
   rm -f killed.st
   for try in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
      how="--data text.txt --out killed.st --steps 300 --seed $seed $tiny"
      [ -e killed.st ] && how="--resume killed.st"
      # shellcheck disable=SC2086
      "$lm" train $how --save-every 0 --threads 1 >out 2>err &
      pid=$!
      sleep "0.$(awk -v s=$seed$try 'BEGIN { srand(s); printf "%03d", 30 + 200 * rand() }')"
      kill -9 $pid 2>/dev/null
      wait $pid 2>/dev/null
      ended=$?
      [ $ended -eq 0 ] && break
      [ $ended -eq 137 ] || bad "killed: exit status $ended: $(cat err)"
      kills=$((kills + 1))
      if [ -e killed.st ]; then status 0 "after a kill" "$lm" info killed.st; fi
   done
   [ $ended -eq 0 ] || status 0 "to the end" "$lm" train --resume killed.st --threads 1
   what="killed and resumed, seed $seed"
   same killed.st straight.st
done
if [ $kills -ge 30 ]; then ok; else bad "only $kills kills"; fi

# ---- what cannot be written ----
cp straight.st old.st
(
   trap '' XFSZ
   ulimit -f 8
   exec "$lm" train --resume old.st --out old.st --threads 1 >out 2>err
) && bad "a full disk was not noticed" || ok
what="full disk"
says 'old.st: ' err
same old.st straight.st
[ -e old.st.tmp ] && bad "a full disk left old.st.tmp" || ok
# shellcheck disable=SC2086
status 1 "a folder that is not there" "$lm" train --data text.txt --out nowhere/a.st $tiny
says 'nowhere/a.st: No such file' err
mkdir -p sealed && chmod 555 sealed
as=""
[ "$(id -u)" != 0 ] || as="setpriv --reuid=65534 --regid=65534 --clear-groups" # root may write anywhere
if $as test -r text.txt -a ! -w sealed 2>/dev/null; then
   # shellcheck disable=SC2086
   status 1 "a read-only folder" $as "$lm" train --data text.txt --out sealed/a.st $tiny
   says 'sealed/a.st: Permission denied' err
else
   skip "a read-only folder: root may write to it, and there is no setpriv to be someone else"
fi
chmod 755 sealed
if [ -c /dev/full ]; then
   "$lm" sample whole.st >/dev/full 2>err && bad "/dev/full was not noticed" || ok
   what="/dev/full"
   says 'cannot be written' err
   status 1 "a map into /dev/full" "$lm" routes whole.st --svg /dev/full
else
   skip "/dev/full: there is none"
fi
{
   # shellcheck disable=SC2086
   "$lm" train --data text.txt --out piped.st --steps 2000 $tiny 2>err
   echo $? >code
} | true
what="a closed pipe"
if [ "$(cat code)" -eq 1 ]; then ok; else bad "$what: exit status $(cat code)"; fi
says 'standard output: cannot be written' err
status 0 "after a closed pipe" "$lm" info piped.st

cd .. && rm -rf lm.test
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
