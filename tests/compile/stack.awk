# Reads gcc's -fcallgraph-info=su (a .ci file): prints the deepest chain of calls by its stack use, and any frame whose
# size is not known at compile time. -v limit=BYTES: exits 1 above it or if there is such a frame. An indirect call
# may reach any function that makes none itself, or one that only leaves through another library.

/^node:/ {
   match($0, /title: "[^"]*"/)
   name = substr($0, RSTART + 8, RLENGTH - 9)
   if (match($0, /[0-9]+ bytes \([a-z,]*\)/)) {
      text = substr($0, RSTART, RLENGTH)
      size[name] = text + 0
      ++frames
      if (text ~ /dynamic/ && text !~ /bounded/) { print "unbounded frame: " name; bad = 1 }
   }
}
/^edge:/ {
   match($0, /sourcename: "[^"]*"/)
   from = substr($0, RSTART + 13, RLENGTH - 14)
   match($0, /targetname: "[^"]*"/)
   to = substr($0, RSTART + 13, RLENGTH - 14)
   if (to == "__indirect_call") indirect[from] = 1
   else if (from != to) calls[from, ++n_calls[from]] = to
   else { print "recursion: " from; bad = 1 }
}
function depth(f,    i, d, best) { # without indirect calls
   if (f in memo) return memo[f]
   if (f in open) { print "recursion through " f; bad = 1; return 0 }
   open[f] = 1
   best = 0
   for (i = 1; i <= n_calls[f]; ++i) {
      d = depth(calls[f, i])
      if (d > best) { best = d; next_of[f] = calls[f, i] }
   }
   delete open[f]
   return memo[f] = best + size[f]
}
function chain(f,    text) {
   text = f " (" size[f] + 0 ")"
   while (f in next_of) { f = next_of[f]; text = text " > " f " (" size[f] + 0 ")" }
   return text
}
function makes_indirect(f,    i) {
   if (f in indirect) return 1
   if (f in asked) return asked[f]
   asked[f] = 0
   for (i = 1; i <= n_calls[f]; ++i) if (makes_indirect(calls[f, i])) return asked[f] = 1
   return 0
}
END {
   for (f in size) {
      d = depth(f)
      if (d > worst) { worst = d; at = f }
      if (!makes_indirect(f) && d > worst_leaf) { worst_leaf = d; leaf_at = f }
   }
   for (f in size) if (makes_indirect(f) && memo[f] > worst_caller) { worst_caller = memo[f]; caller_at = f }
   total = worst_caller + worst_leaf
   if (total < worst) total = worst
   print frames " functions; deepest chain " worst " bytes: " chain(at)
   if (caller_at) print "through an indirect call at most " worst_caller " + " worst_leaf ": " caller_at ", then " chain(leaf_at)
   if (frames < 50) { print "too few functions were seen"; bad = 1 }
   if (total >= limit) { print total " bytes of stack are not below " limit; bad = 1 }
   exit bad
}
