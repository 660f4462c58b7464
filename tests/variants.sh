#!/bin/sh
# variants.sh - examples/variants in their quick form: each runs, gives the same line twice, and does not look ahead
# when it runs; those whose training does are caught at it. And sensor.c. VARIANTS: where the programs are (default
# build/variants; sensor stands one above).
cd "$(dirname "$0")/.." || exit 1
dir=${VARIANTS:-build/variants}
out=build/variants.test
mkdir -p $out && rm -f $out/* || exit 1
passed=0
failed=0
skipped=0
ok() { passed=$((passed + 1)); }
bad() {
   echo "FAILED $*"
   failed=$((failed + 1))
}
# status WANTED WHAT COMMAND...: runs it, output in out, errors in err.
status() {
   wanted=$1
   what=$2
   shift 2
   "$@" >$out/out 2>$out/err </dev/null
   got=$?
   if [ "$got" -eq "$wanted" ]; then ok; else bad "$what: status $got, not $wanted: $(head -n 3 $out/err)"; fi
}
says() { # PATTERN FILE
   if grep -q -e "$1" "$out/$2"; then ok; else bad "$what: '$1' is not in $2: $(head -n 5 "$out/$2")"; fi
}

# sensor.c: six lines, the same in every run.
status 0 sensor "$dir/../sensor" 20
mv $out/out $out/sensor
if [ "$(grep -c ' FLOPs a reading' $out/sensor)" -eq 6 ]; then ok; else bad "sensor: $(cat $out/sensor)"; fi
status 0 sensor "$dir/../sensor" 20
if cmp -s $out/out $out/sensor; then ok; else bad "sensor: two runs differ"; fi
status 2 "sensor, no number" "$dir/../sensor" many
says usage err

# Figure 2: as documented, and what it is to show.
status 0 figure2 "$dir/figure2"
awk '/^    token-choice: / { on = 1 } on && /^[^ ]/ { exit } on { print substr($0, 5) }' docs/variants.md |
   sed -e :a -e '/^\n*$/{$d;N;ba' -e '}' >$out/documented
if cmp -s $out/out $out/documented; then ok; else bad "figure2: docs/variants.md has something else"; fi
says 'purple .*dropped: its expert is full' out
says 'yellow .*chosen twice' out
says 'orange .*chosen by none' out
says 'orange .*passes by' out

# The table: ten lines, each with a loss that is a number; the second run gives the same, but for the speed.
status 0 "the table" sh examples/variants/table.sh "$dir" --quick
mv $out/out $out/table
says 'at decode$' table
awk '/ at decode$/ { on = 1; next } on && /^$/ { exit } on { print substr($0, 1, 55) }' $out/table >$out/lines
if [ "$(wc -l <$out/lines)" -eq 10 ]; then ok; else bad "the table: $(wc -l <$out/lines) lines, not 10"; fi
awk '{ loss = $NF; flops = $(NF - 1); if (!(loss > 1 && loss < 6 && flops > 1000)) exit 1 }' $out/lines && ok ||
   bad "the table: a loss or cost that cannot be"
sed -n '/^   dense /,$p' $out/table >$out/maps
if [ "$(wc -l <$out/maps)" -eq 8 ]; then ok; else bad "the maps: $(wc -l <$out/maps) lines, not 8"; fi
for v in dense mod exit act mor_expert mor_token gateskip layerroute colt5 paths; do
   status 0 $v "$dir/$v" --quick --threads 2
   cut -c 1-55 $out/out >$out/again
   if grep -q -x -F -f $out/again $out/lines; then ok; else bad "$v: not the table's line: $(cat $out/again)"; fi
   case $v in
   mod | mor_expert | gateskip | colt5)
      status 1 "$v looks ahead in training" "$dir/$v" --quick --steps 20 --look-ahead
      says 'depends on a later token' err
      ;;
   *) status 0 "$v does not look ahead in training" "$dir/$v" --quick --steps 20 --look-ahead ;;
   esac
done
# In the last tokens of a window something is left out, and something is not.
for v in mod act mor_expert mor_token gateskip layerroute paths; do
   if sed 1,2d "$dir/$v.map" | grep -q '·' && grep -q '█' "$dir/$v.map"; then ok; else bad "$v: routes nothing"; fi
done
if command -v python3 >/dev/null 2>&1; then
   status 0 "the pictures are XML" python3 -c \
      'import sys, xml.dom.minidom; [xml.dom.minidom.parse(f) for f in sys.argv[1:]]' "$dir"/*.svg
else
   echo "skipped the pictures: no python3"
   skipped=$((skipped + 1))
fi

# Another text; words that are none.
status 0 "another text" "$dir/exit" --quick --data README.md
status 1 "a text that is not there" "$dir/exit" --quick --data nowhere.txt
says 'cannot open' err
status 2 "an unknown option" "$dir/exit" --quikc
status 0 "--help" "$dir/exit" --help
says '--look-ahead' out

rm -rf $out
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
