#!/bin/sh
# table.sh DIR [OPTION]... - runs the variants that were built into DIR: figure 2 of the paper, a table with a line for
# each, and which token went through which layer, side by side, as in the paper's figure 1. `make variants` calls it.
# In DIR it leaves NAME.map and NAME.svg of each.
dir=$1
shift
export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-passive}"
"$dir/figure2" || exit
echo
"$dir/dense" --heading "$@" || exit
for variant in dense mod exit act mor_expert mor_token gateskip layerroute colt5 paths; do
   "$dir/$variant" --map "$dir/$variant.map" --svg "$dir/$variant.svg" "$@" || exit
done
echo
paste -d ' ' "$dir/dense.map" "$dir/exit.map" "$dir/mod.map"
