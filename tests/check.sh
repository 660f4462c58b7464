#!/usr/bin/env bash
# check.sh [PATTERN] - what `make check` runs beyond `make test`: other compilers, standards, levels, switches; linking;
# symbols; system headers; sanitizers; races; stack; the committed hashes, and files written on one and read on the
# other, on every compiler, processor and system that is here.
# Each lane passes, fails, or is skipped with a reason; the last line counts them. PATTERN: only lanes named so.
# JOBS=N: lanes at a time (default 2). Needs bash and what each lane asks for (tests/deps.sh installs it).

set -u
export LC_ALL=C
top=$(cd "$(dirname "$0")/.." && pwd)
cd "$top" || exit 2
pattern=${1-}
jobs=${JOBS:-2}
tmp=$(mktemp -d "${TMPDIR:-/tmp}/modcheck.XXXXXX") || exit 2
trap 'wine_end; rm -rf "$tmp"' EXIT
trap 'trap - INT TERM; kill 0; exit 130' INT TERM
compile=tests/compile

strict="-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wdouble-promotion -Wundef -Wcast-qual
   -Wcast-align -Werror"
x32="-m32 -idirafter /usr/include/x86_64-linux-gnu"

# ---------------------------------------------------------------------------------------------------------- lanes ----

n_lanes=0

# All lanes share one folder for wine, which takes ten seconds to make. Its servers outlive its programs, and know the
# folder by its inode, which may be given to the next: so they are ended before it is removed.
export WINEPREFIX="$tmp/wine" WINEDEBUG=-all WINEDLLOVERRIDES=mscoree,mshtml= # no questions about .NET and HTML
wine_begin() {
   need flock
   (
      flock 9
      [ -d "$WINEPREFIX" ] || wine wineboot -i 9>&-
   ) 9>"$tmp/wine.lock" >"$dir/wineboot" 2>&1 || skip "wine does not start here"
}
wine_end() {
   local server
   [ -d "$WINEPREFIX" ] || return 0
   server=$(command -v wineserver || echo /usr/lib/wine/wineserver)
   "$server" -k >/dev/null 2>&1
   timeout 20 "$server" -w >/dev/null 2>&1
}

# lane NAME COMMAND...: runs the function COMMAND in its own folder $dir, beside others. It fails at its first failing
# command; `skip` ends it otherwise.
lane() {
   local name=$1
   shift
   case $name in *"$pattern"*) ;; *) return ;; esac
   while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
   n_lanes=$((n_lanes + 1))
   run_lane "$tmp/$n_lanes" "$name" "$@" &
}
run_lane() {
   dir=$1
   local name=$2 status start=$SECONDS
   shift 2
   mkdir "$dir"
   (
      set -eu
      "$@"
   ) >"$dir.log" 2>&1 </dev/null
   status=$?
   case $status in
   0)
      echo passed >"$dir.result"
      echo "ok      $name ($((SECONDS - start)) s)"
      ;;
   77)
      echo skipped >"$dir.result"
      echo "skipped $name: $(tail -n 1 "$dir.log")"
      ;;
   *)
      echo failed >"$dir.result"
      echo "$name" >"$dir.failed"
      { echo "FAILED  $name"; tail -n 40 "$dir.log" | cut -c 1-400 | sed 's/^/   | /'; } >"$dir.out"
      cat "$dir.out" # at once, so that lanes do not mix
      ;;
   esac
   rm -rf "$dir"
}
skip() {
   echo "$*"
   exit 77
}
need() {
   local program
   for program in "$@"; do command -v "$program" >/dev/null 2>&1 || skip "$program is not installed"; done
}
show() { # runs a command, and says which: a log then ends with the one that failed
   printf '+'
   printf ' %q' "$@"
   printf '\n'
   "$@"
}
must_fail() { # MESSAGE COMMAND...: it must not work, and say MESSAGE
   local message=$1
   shift
   if show "$@" >"$dir/said" 2>&1; then
      cat "$dir/said"
      echo "should have failed: $*"
      return 1
   fi
   grep -q -e "$message" "$dir/said" || {
      cat "$dir/said"
      echo "does not say: $message"
      return 1
   }
}

is_cxx() { case $1 in *++*) return 0 ;; *) return 1 ;; esac; }
lang() { if is_cxx "$1"; then echo "-x c++"; else echo "-x c"; fi; }
standard() { if is_cxx "$1"; then echo c++11; else echo c99; fi; } # the oldest that is promised
has_openmp() { # CC
   printf '#include <omp.h>\nint main(void) { return omp_get_max_threads() < 1; }\n' >"$dir/omp.c"
   # shellcheck disable=SC2046
   "$1" $(lang "$1") -fopenmp "$dir/omp.c" -o "$dir/omp" 2>/dev/null && "$dir/omp"
}

# ------------------------------------------------------------------------------ strict builds, standards, switches ----

# Flags of each form in which the header can be used: words of OVERRIDES, and their combinations.
form_flags() {
   case $1 in
   plain) ;;
   MOD_STATIC) flags+=(-DMOD_STATIC) ;;
   MODDEF) flags+=('-DMODDEF=__attribute__((visibility("hidden")))') ;;
   MOD_USE_DOUBLE) flags+=(-DMOD_USE_DOUBLE) ;;
   MOD_NO_OPENMP) flags+=(-DMOD_NO_OPENMP) ;;
   MOD_NO_MALLOC) flags+=(-DMOD_NO_MALLOC) ;;
   MOD_NO_STDIO) flags+=(-DMOD_NO_STDIO) ;;
   MOD_MALLOC) flags+=(-include "$compile/mine.h" -DMOD_MALLOC=my_malloc) ;;
   MOD_FREE) flags+=(-DMOD_FREE=my_free) ;;
   MOD_ASSERT) flags+=(-include "$compile/mine.h" '-DMOD_ASSERT(x)=((x) ? (void)0 : my_assert(#x))') ;;
   MOD_ALLOW_FAST_MATH) flags+=(-DMOD_ALLOW_FAST_MATH -ffast-math) ;;
   MOD_NO_SIMD) flags+=(-DMOD_NO_SIMD) ;;
   MOD_FAST_FMA) flags+=(-DMOD_FAST_FMA) ;;
   MOD_SELF) flags+=('-DMOD_SELF="mod.h"') ;;
   openmp) flags+=(-fopenmp) ;;
   *)
      echo "tests/check.sh has no lane for the switch $1"
      return 1
      ;;
   esac
}

# The words that mod.h documents as switches.
documented() {
   sed -n '/^ *OVERRIDES/,/^ *$/p' mod.h | grep -oE '^      MOD[A-Z_]*(, MOD[A-Z_]*)*' | tr -d ' ' | tr ',' '\n'
}

# Each documented switch has a lane, and each MOD_ macro that the preprocessor asks for is documented.
switches() {
   local word count=0
   for word in $(documented); do
      flags=()
      form_flags "$word"
      count=$((count + 1))
   done
   echo "$count documented switches"
   [ "$count" -ge 9 ]
   { documented; echo MOD_IMPLEMENTATION; echo MOD_IMPL; } | sort -u >"$dir/known"
   grep -E '^ *# *(if|ifdef|ifndef|elif)' mod.h | grep -oE '\bMOD(DEF|_[A-Z][A-Z_0-9]*)\b' |
      grep -vE '^MOD_H_|^MOD__' | sort -u >"$dir/asked"
   [ "$(wc -l <"$dir/asked")" -ge 9 ]
   echo "asked for by #if but not among the OVERRIDES of mod.h:"
   comm -23 "$dir/asked" "$dir/known" | tee "$dir/unknown"
   [ ! -s "$dir/unknown" ]
}

# build CC STANDARD LEVELS FORM...: the declarations alone and the implementation, at each level.
build() {
   local cc=$1 std=$2 levels=$3 level word
   shift 3
   need "$cc"
   flags=()
   for word in "$@"; do form_flags "$word"; done
   case " $* " in *" openmp "*) has_openmp "$cc" || skip "$cc has no OpenMP" ;; esac
   for level in $levels; do
      # shellcheck disable=SC2046,SC2086
      show "$cc" -std="$std" "-$level" $strict "${flags[@]}" $(lang "$cc") -c $compile/one.c -o "$dir/one.o"
   done
   case " $* " in *" MOD_STATIC "*) return ;; esac
   # shellcheck disable=SC2046,SC2086
   show "$cc" -std="$std" -O1 $strict "${flags[@]}" -DNAME=f $(lang "$cc") -c $compile/only.c -o "$dir/only.o"
}

# What the header refuses to be built with.
refusals() {
   local cc=$1 std
   need "$cc"
   std=$(standard "$cc")
   # shellcheck disable=SC2046
   set -- "$cc" -std="$std" $(lang "$cc") -c $compile/one.c -o "$dir/x.o"
   show "$@"
   must_fail 'error.*fast-math' "$@" -ffast-math
   must_fail 'error.*fast-math' "$@" -Ofast
   must_fail 'error.*MOD_FREE' "$@" -DMOD_MALLOC=my_malloc
   must_fail 'error.*MOD_FREE' "$@" -DMOD_FREE=my_free
   must_fail 'error.*MOD_IMPLEMENTATION' "$@" -DMOD_IMPL
   printf '#include "%s/mod.h"\n' "$top" >"$dir/d.c"
   # shellcheck disable=SC2046
   must_fail 'error.*MOD_IMPLEMENTATION' "$cc" -std="$std" $(lang "$cc") -c "$dir/d.c" -o "$dir/x.o" -DMOD_STATIC
}

build_32() {
   need "$1"
   printf '#include <stdlib.h>\nint main(void) { return 0; }\n' >"$dir/x.c"
   # shellcheck disable=SC2086
   "$1" $x32 "$dir/x.c" -o "$dir/x" 2>/dev/null || skip "$1 -m32 does not work here (no 32-bit libc)"
   # shellcheck disable=SC2046,SC2086
   show "$1" -std="$(standard "$1")" -O2 $x32 $strict $(lang "$1") -c $compile/one.c -o "$dir/one.o"
}
# The header by another name: it says what it needs, and works with it, or without what needs it. Not with another one.
renamed() { # CC FLAGS...
   need "$1"
   printf '#define MOD_IMPLEMENTATION\n#include "other.h"\n' >"$dir/x.c"
   cp mod.h "$dir/other.h"
   # shellcheck disable=SC2046
   set -- "$@" $(lang "$1") -fsyntax-only "$dir/x.c"
   must_fail 'error.*define MOD_SELF' "$@"
   show "$@" '-DMOD_SELF="other.h"'
   sed 's/MOD_H_VERSION != [0-9]*/MOD_H_VERSION != 1/' mod.h >"$dir/old.h"
   must_fail 'error.*another version' "$@" '-DMOD_SELF="old.h"'
   : >"$dir/mod.h"
   must_fail 'error.*is another file' "$@"
   rm "$dir/mod.h"
   show "$@" -DMOD_NO_SIMD
   show "$@" -DMOD_USE_DOUBLE
}
# No macro stays behind but what the declarations need, what the implementation has to remember, and the defaults.
leftovers() { # CC FLAGS...
   local form
   need "$1"
   for form in plain MOD_STATIC MOD_NO_SIMD MOD_FAST_FMA MOD_USE_DOUBLE openmp MOD_ALLOW_FAST_MATH; do
      flags=()
      form_flags $form
      # shellcheck disable=SC2046
      "$@" "${flags[@]}" $(lang "$1") -E -dM $compile/one.c >"$dir/all"
      grep -q ' MOD_H_IMPLEMENTED' "$dir/all"
      # shellcheck disable=SC2046
      "$@" "${flags[@]}" $(lang "$1") -E -dM -include stddef.h /dev/null >"$dir/given"
      echo "left behind, $form:"
      awk '{ print $2 }' "$dir/all" | grep -iE '^mod' | grep -vE '^mod_[a-z_]*$|^MOD_H_[A-Z_]*$|^MOD__UNUSED$' |
         grep -vE '^MOD(DEF|_IMPLEMENTATION|_MALLOC|_FREE|_ASSERT\(condition\)|_SELF)$' >"$dir/left" || :
      awk '{ print $2 }' "$dir/given" | grep -iE '^mod' >"$dir/mine" || : # what the command line defined
      grep -vxFf "$dir/mine" "$dir/left" || continue
      return 1
   done
}

build_tcc() {
   need tcc
   show tcc -std=c99 -Wall -Werror -c $compile/one.c -o "$dir/one.o"
   show tcc -std=c99 -Wall -Werror -DMOD_STATIC -DMOD_NO_STDIO -c $compile/one.c -o "$dir/one.o"
}
build_there() { # CC FLAGS...: a compiler for another system
   need "$1"
   printf '#include <stdlib.h>\nint main(void) { return 0; }\n' >"$dir/x.c"
   "$@" "$dir/x.c" -o "$dir/x.out" 2>/dev/null || skip "$* does not work here"
   # shellcheck disable=SC2086
   show "$@" -std=c99 -O2 $strict -c $compile/one.c -o "$dir/one.o"
   # shellcheck disable=SC2086
   show "$@" -std=c99 -O0 $strict -DMOD_NO_STDIO -c $compile/one.c -o "$dir/one.o"
}

# The examples' small headers: each alone, under the strict flags, with nothing of it used.
common() {
   local cc=$1 header
   need "$cc"
   for header in examples/common/*.h; do
      printf '#include "%s/%s"\nint main(void) { return 0; }\n' "$top" "$header" >"$dir/x.c"
      # shellcheck disable=SC2046,SC2086
      show "$cc" -std="$(standard "$cc")" -O1 $strict $(lang "$cc") -c "$dir/x.c" -o "$dir/x.o"
   done
}

# The tests, examples and the learning check themselves, without a warning.
warnings() {
   local cc=$1 file
   need "$cc"
   for file in tests/test_*.c tests/exchange.c examples/*.c examples/variants/*.c bench/*.c; do
      show "$cc" -std=c99 -Wall -Wextra -Wshadow -Werror -fsyntax-only "$file"
   done
   show "$cc" -std=c99 -Wall -Wextra -Wshadow -Werror -DMOD_FAST_FMA -fsyntax-only bench/bench.c # as `make bench` does
}

# -------------------------------------------------------------------------------------------------------- linking ----

object() { # CC SOURCE OUTPUT FLAGS...: at -O0 unless they say otherwise
   local cc=$1 source=$2 output=$3
   shift 3
   # shellcheck disable=SC2046
   show "$cc" -std="$(standard "$cc")" -O0 $(lang "$cc") -c "$compile/$source" -o "$dir/$output" "$@"
}
link_run() { # CC OBJECT...
   local cc=$1
   shift
   (cd "$dir" && show "$cc" "$@" -o prog -lm && ./prog)
}
# One file has the implementation (compiled by $1), two others use it ($2).
link_two() {
   need "$1" "$2" g++
   object "$1" one.c one.o
   object "$2" only.c a.o -DNAME=A
   object "$1" only.c b.o -DNAME=B
   object "$2" main.c main.o
   link_run "$3" one.o a.o b.o main.o
}
# Two files each with the whole library as their own, a third with the public one: three copies in one program.
link_static() {
   need "$1" "$2" g++
   object "$1" own.c a.o -DNAME=A
   object "$2" own.c b.o -DNAME=B
   object "$1" main.c main.o
   link_run "$3" a.o b.o main.o
   object "$2" one.c one.o
   link_run "$3" a.o b.o one.o main.o
}
# Files that disagree about MOD_USE_DOUBLE must not become a program; files that agree must.
link_mixed() {
   need "$1"
   object "$1" one.c float.o
   object "$1" one.c double.o -DMOD_USE_DOUBLE
   object "$1" only.c use_float.o -DNAME=A
   object "$1" only.c use_double.o -DNAME=A -DMOD_USE_DOUBLE
   object "$1" main.c main.o -DB=A
   link_run "$1" float.o use_float.o main.o
   link_run "$1" double.o use_double.o main.o
   cd "$dir"
   must_fail 'undefined.*mod_' "$1" float.o use_double.o main.o -o prog -lm
   must_fail 'undefined.*mod_' "$1" double.o use_float.o main.o -o prog -lm
}

# ------------------------------------------------------------------------------------------------- system headers ----

c_headers="assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdarg stdbool stddef
   stdint stdio stdlib string tgmath time wchar wctype stdalign uchar
   aio arpa/inet cpio dirent dlfcn fcntl fmtmsg fnmatch ftw glob grp iconv langinfo libgen monetary mqueue ndbm net/if
   netdb netinet/in netinet/tcp nl_types poll pthread pwd regex sched search semaphore spawn strings stropts sys/ipc
   sys/mman sys/msg sys/resource sys/select sys/sem sys/shm sys/socket sys/stat sys/statvfs sys/time sys/times
   sys/types sys/uio sys/un sys/utsname sys/wait syslog tar termios trace ulimit unistd utime utmpx wordexp
   sys/param sys/ioctl sys/sysinfo sys/sysmacros sys/prctl sys/epoll sys/ptrace sys/user sys/cdefs endian byteswap
   execinfo getopt ieee754 malloc memory err error values link elf features ucontext linux/limits linux/types
   immintrin x86intrin arm_neon cpuid omp"
c_only_headers="stdatomic stdnoreturn threads" # in C++ they contradict <atomic> and attributes
cxx_headers="algorithm any array atomic barrier bit bitset cassert ccomplex cctype cerrno cfenv cfloat charconv chrono
   cinttypes ciso646 climits clocale cmath codecvt compare complex concepts condition_variable coroutine csetjmp
   csignal cstdalign cstdarg cstdbool cstddef cstdint cstdio cstdlib cstring ctgmath ctime cuchar cwchar cwctype deque
   exception execution filesystem format forward_list fstream functional future initializer_list iomanip ios iosfwd
   iostream istream iterator latch limits list locale map memory memory_resource mutex new numbers numeric optional
   ostream queue random ranges ratio regex scoped_allocator semaphore set shared_mutex source_location span sstream
   stack stdexcept stop_token streambuf string string_view strstream syncstream system_error thread tuple type_traits
   typeindex typeinfo unordered_map unordered_set utility valarray variant vector version"

# Appends to all.h those of the headers that compile without mod.h: all at once if they do, else each half.
add_headers() {
   local half=$(($# / 2))
   printf '#include <%s>\n' "$@" >"$dir/try.c"
   if "${try[@]}" 2>/dev/null; then
      cat "$dir/try.c" >>"$dir/all.h"
   elif [ "$half" -gt 0 ]; then
      add_headers "${@:1:half}"
      add_headers "${@:half+1}"
   else
      echo "not usable here: $1"
   fi
}
# headers CC STANDARD DEFINES: every header that works here by itself, then mod.h; and mod.h, then every header.
headers() {
   local cc=$1 std=$2 more=$3 h least=60 names
   need "$cc"
   # shellcheck disable=SC2086
   if is_cxx "$cc"; then
      names="$(printf '%s.h ' $c_headers) $cxx_headers"
      least=130
   else
      names=$(printf '%s.h ' $c_headers $c_only_headers)
   fi
   for h in $names; do printf '#if __has_include(<%s>)\nexists %s\n#endif\n' "$h" "$h"; done >"$dir/names.c"
   # shellcheck disable=SC2046,SC2086
   names=$("$cc" -std="$std" $more $(lang "$cc") -E -P "$dir/names.c" | sed -n 's/^exists //p' | tr -d ' ')
   # shellcheck disable=SC2046,SC2206
   try=("$cc" -std="$std" $more $(lang "$cc") -w -fsyntax-only "$dir/try.c")
   : >"$dir/all.h"
   # shellcheck disable=SC2086
   add_headers $names
   echo "$(wc -l <"$dir/all.h") headers: $(tr -d '\n' <"$dir/all.h" | sed 's/#include/ /g')"
   [ "$(wc -l <"$dir/all.h")" -ge "$least" ]
   printf '#include "all.h"\n#define MOD_IMPLEMENTATION\n#include "%s/mod.h"\n' "$top" >"$dir/before.c"
   printf '#define MOD_IMPLEMENTATION\n#include "%s/mod.h"\n#include "all.h"\n' "$top" >"$dir/after.c"
   printf '#include "%s/mod.h"\n#include "all.h"\n#define MOD_IMPLEMENTATION\n#include "%s/mod.h"\n' "$top" "$top" \
      >"$dir/between.c"
   set -- before after
   is_cxx "$cc" || set -- before after between # slow in C++, and the same header
   for h in "$@"; do
      # shellcheck disable=SC2046,SC2086
      show "$cc" -std="$std" $more $strict -Wno-deprecated $(lang "$cc") -fsyntax-only "$dir/$h.c"
   done
}
macros() {
   need "$1"
   # shellcheck disable=SC2046,SC2086
   show "$1" -std="$(standard "$1")" -O1 $strict $(lang "$1") -c $compile/macros.c -o "$dir/x.o"
}

# -------------------------------------------------------------------------------------------------------- symbols ----

runtime='_GLOBAL_OFFSET_TABLE_|__stack_chk_(fail|guard)|__(u|)(div|mod)ti3|__popcount[a-z0-9]*|_Unwind_Resume'
runtime="$runtime|__cpu_(model|indicator_init|features2)" # of libgcc and compiler-rt: __builtin_cpu_supports
runtime="$runtime|__gxx_personality_v0|_ZSt9terminatev|__cxa_begin_catch" # an OpenMP body in C++ may not throw
helpers='DW\.ref\.__gxx_personality_v0|__clang_call_terminate'            # that C++ compilers add for the same
libc_string='memcpy|memset|memmove|memcmp|bcmp|strlen|strcmp|strncmp|strchr|memchr|strcpy|stpcpy|strcat'
libc_stdio='fopen|fclose|fread|fwrite|fseek|ftell|remove|rename'
libc="$libc_string|$libc_stdio|malloc|free"
libm='sqrtf?|floorf?|fabsf?' # exactly rounded, so the same everywhere
libm_double="$libm|exp|log|log1p|tanh|sin|cos|pow"
openmp='GOMP_[a-z_0-9]*|omp_[a-z_0-9]*|__kmpc_[a-z_0-9]*'

allowed() { # OBJECT REGEXP: nothing else is undefined
   nm -u "$1" | awk '{ print $NF }' | sed 's/@.*//' | sort -u >"$dir/undefined"
   echo "undefined: $(tr '\n' ' ' <"$dir/undefined")"
   if grep -vxE "$2" "$dir/undefined"; then
      echo "(above: more than $2)"
      return 1
   fi
}
no_globals() { # OBJECT: no bytes that can be written, in a section of its own or common
   objdump -hw "$1" | awk '$2 ~ /^\.(data|bss|tdata|tbss|sdata|sbss|ldata|lbss)/ && $2 !~ /^\.data\.rel\.ro|DW\.ref\./ {
      if ($3 !~ /^0+$/) { print "writable: " $2 " has 0x" $3 " bytes"; bad = 1 } } END { exit bad }'
   if nm "$1" | grep -E ' [CcBbSsGg] '; then
      echo "(above: writable globals)"
      return 1
   fi
}
symbols() {
   local cc=$1 level double levels="O0 O2"
   need "$cc" nm objdump
   ! is_cxx "$cc" || levels=O0 # the optimiser is the same
   # What the header declares, under its two sets of names.
   grep -oE '^MODDEF [^(]*\(' mod.h | sed -E 's/.*[ *](mod_[a-z0-9_]+)\($/\1/' | grep -x 'mod_[a-z0-9_]*' | sort -u \
      >"$dir/declared"
   [ "$(wc -l <"$dir/declared")" -ge 90 ]
   for level in $levels; do
      for double in "" -DMOD_USE_DOUBLE; do
         [ $level$double != O2-DMOD_USE_DOUBLE ] || continue
         # shellcheck disable=SC2086
         object "$cc" one.c o.o -$level $double
         nm -g --defined-only "$dir/o.o" | awk '{ print $NF }' | sed 's/_f64$//' | sort -u >"$dir/exported"
         echo "declared and exported differ:"
         comm -3 "$dir/declared" "$dir/exported" | tee "$dir/differ"
         [ ! -s "$dir/differ" ]
         allowed "$dir/o.o" "$runtime|$libc|$([ -z "$double" ] && echo "$libm" || echo "$libm_double")"
         no_globals "$dir/o.o"
      done
      object "$cc" one.c o.o -$level -DMOD_STATIC
      [ -z "$(nm -g --defined-only "$dir/o.o")" ]
      no_globals "$dir/o.o"
      object "$cc" own.c o.o -$level -DNAME=only_name # used, so that the compiler keeps the library
      [ "$(nm -g --defined-only "$dir/o.o" | awk '{ print $NF }')" = only_name ]
      no_globals "$dir/o.o"
   done
   object "$cc" one.c o.o -fPIC
   no_globals "$dir/o.o"
   # The switches do what they say.
   object "$cc" one.c o.o -DMOD_NO_SIMD -O0 -DMOD_NO_MALLOC
   allowed "$dir/o.o" "$runtime|$libc_string|$libc_stdio|$libm"
   for level in $levels; do
      object "$cc" one.c o.o -DMOD_NO_SIMD -$level -DMOD_NO_STDIO
      allowed "$dir/o.o" "$runtime|$libc_string|malloc|free|$libm"
      object "$cc" one.c o.o -DMOD_NO_SIMD -$level -DMOD_NO_STDIO -DMOD_NO_MALLOC
      allowed "$dir/o.o" "$runtime|$libc_string|$libm"
   done
   flags=()
   form_flags MOD_MALLOC
   form_flags MOD_FREE
   object "$cc" one.c o.o -DMOD_NO_SIMD -O0 "${flags[@]}"
   allowed "$dir/o.o" "$runtime|$libc_string|$libc_stdio|$libm|my_malloc|my_free"
   grep -qx my_malloc "$dir/undefined"
   grep -qx my_free "$dir/undefined"
   flags=()
   form_flags MOD_ASSERT
   object "$cc" one.c o.o -DMOD_NO_SIMD -O0 "${flags[@]}"
   allowed "$dir/o.o" "$runtime|$libc|$libm|my_assert"
   grep -qx my_assert "$dir/undefined"
}
symbols_openmp() {
   need "$1" nm objdump
   has_openmp "$1" || skip "$1 has no OpenMP"
   object "$1" one.c o.o -O2 -fopenmp
   allowed "$dir/o.o" "$runtime|$libc|$libm|$openmp"
   grep -qE "^(GOMP_|__kmpc_)" "$dir/undefined" # it is used
   no_globals "$dir/o.o"
   nm -g --defined-only "$dir/o.o" | awk '{ print $NF }' | grep -vE "^mod_|^($helpers)$" >"$dir/others" || :
   [ ! -s "$dir/others" ]
   object "$1" one.c o.o -O2 -fopenmp -DMOD_NO_OPENMP
   allowed "$dir/o.o" "$runtime|$libc|$libm"
}

# ---------------------------------------------------------------------------------------------- stack, sanitizers ----

stack() { # LEVEL FLAGS...: below 40 KB, as the header says
   need gcc awk
   show gcc -std=c99 "$@" -fstack-usage -fcallgraph-info=su -c $compile/one.c -o "$dir/one.o"
   [ "$(awk -F '\t' '$2 >= 40960' "$dir/one.su" | wc -l)" -eq 0 ]
   show awk -v limit=40960 -f $compile/stack.awk "$dir/one.ci"
}

threads() { # CC TEST: what test_session needs to have threads, as the Makefile finds it
   [ "$2" = test_session ] || return 0
   printf '#include <pthread.h>\nint main(void) { return pthread_join(pthread_self(), 0) == 0; }\n' >"$dir/p.c"
   if "$1" -pthread "$dir/p.c" -o "$dir/p" 2>/dev/null; then echo -pthread; else echo -DMOD_TEST_NO_THREADS; fi
}
# Threads that share a model, with ThreadSanitizer; without OpenMP, whose libraries it does not understand.
races() { # CC TEST
   local cc=$1 test=$2
   need "$cc"
   printf 'int main(void) { return 0; }\n' >"$dir/x.c"
   "$cc" -fsanitize=thread "$dir/x.c" -o "$dir/x" 2>/dev/null && "$dir/x" || skip "$cc has no ThreadSanitizer here"
   show "$cc" -std=c99 -O1 -g -fsanitize=thread -pthread "tests/$test.c" -o "$dir/$test" -lm
   TSAN_OPTIONS=halt_on_error=1 show sh tests/run.sh "$dir/$test"
}

# A test with AddressSanitizer (leaks too) and UndefinedBehaviorSanitizer; with OpenMP if the compiler has it. At -O0,
# which builds in seconds; those that run long at -O1; without vectors where these are not what is tested.
sanitize() { # CC TEST
   local cc=$1 test=$2 second=tests/$2_f64.c omp="" how
   need "$cc"
   [ -e "$second" ] || second=""
   printf 'int main(void) { return 0; }\n' >"$dir/x.c"
   "$cc" -fsanitize=address,undefined "$dir/x.c" -o "$dir/x" 2>/dev/null && "$dir/x" ||
      skip "$cc has no sanitizers here"
   # libgomp and libomp keep their threads' memory: not leaks of ours, and reachable, so leak checks stay on.
   # (Not with clang's and test_file: its leak checker itself crashes on libomp's threads when that ends.)
   if [ "$cc $test" != "clang test_file" ] && has_openmp "$cc"; then omp=-fopenmp; fi
   case $test in
   test_file | test_math | test_route) how="-O1 -DMOD_NO_SIMD" ;;
   test_gradients | test_model | test_session | test_train) how=-O1 ;;
   *) how=-O0 ;;
   esac
   # shellcheck disable=SC2086
   show "$cc" -std=c99 $how -g -fno-omit-frame-pointer -fsanitize=address,undefined,float-cast-overflow \
      -fno-sanitize-recover=all $omp $(threads "$cc" "$test") "tests/$test.c" $second -o "$dir/$test" -lm
   export ASAN_OPTIONS=allocator_may_return_null=1:detect_stack_use_after_return=1 UBSAN_OPTIONS=print_stacktrace=1
   case $test in
   test_hash) at_each_level "$dir/$test" ;;
   *) show sh tests/run.sh "$dir/$test" ;;
   esac
}

# The fuzzers' seeds, through their harness as a plain program, and whether it makes them still.
replay() { # CC
   need "$1"
   printf 'int main(void) { return 0; }\n' >"$dir/x.c"
   "$1" -fsanitize=address,undefined "$dir/x.c" -o "$dir/x" 2>/dev/null && "$dir/x" || skip "$1 has no sanitizers here"
   show "$1" -std=c99 -O0 -g -Wall -Wextra -Wshadow -Werror -fno-omit-frame-pointer -fno-sanitize-recover=all \
      -fsanitize=address,undefined,float-cast-overflow -DMOD_FUZZ_MAIN tests/fuzz/fuzz_file.c -o "$dir/replay" -lm
   show "$dir/replay" tests/fuzz/seeds/file/* tests/checkpoint-v*.safetensors
   mkdir "$dir/seeds"
   show "$dir/replay" --seeds "$dir/seeds"
   show diff -r tests/fuzz/seeds/file "$dir/seeds"
}

# --------------------------------------------------------------------------------------------------------- hashes ----

# hash CC FLAGS...: tests/test_hash.c gives the committed hashes.
# at_each_level PROGRAM: test_hash at each level that it has here, the best last and as the choice of the library.
# RUN: an emulator.
at_each_level() {
   local level
   # shellcheck disable=SC2086
   ${RUN-} "$1" --levels | tr -d '\r' >"$dir/levels"
   [ -s "$dir/levels" ]
   sed '$d' "$dir/levels" >"$dir/others"
   while read -r level; do
      echo "level $level"
      MOD_TEST_SIMD=$level show sh tests/run.sh "$1" </dev/null
   done <"$dir/others"
   echo "level $(tail -n 1 "$dir/levels"), chosen"
   show sh tests/run.sh "$1"
}
hash() {
   local cc=$1
   shift
   need "$cc"
   case " $* " in *" -fopenmp "*) has_openmp "$cc" || skip "$cc has no OpenMP" ;; esac
   # shellcheck disable=SC2046
   show "$cc" $(lang "$cc") "$@" tests/test_hash.c -x none -o "$dir/test_hash" -lm
   at_each_level "$dir/test_hash"
}
# hash_at CC LEVEL FEATURE FLAGS...: that level is there if the processor has the feature, and gives the same hashes.
hash_at() {
   local cc=$1 level=$2 feature=$3
   shift 3
   need "$cc"
   printf 'int main(void) { return !__builtin_cpu_supports("%s"); }\n' "$feature" >"$dir/x.c"
   "$cc" "$dir/x.c" -o "$dir/x" 2>/dev/null || skip "no x86-64 here"
   "$dir/x" || skip "this processor has no $level"
   show "$cc" "$@" tests/test_hash.c -o "$dir/test_hash" -lm
   MOD_TEST_SIMD=$level show sh tests/run.sh "$dir/test_hash"
}
# MOD_FAST_FMA: levels without a fused multiply-add give the committed hashes; those with one give others, the same on
# x86-64 and AArch64.
hash_fused() { # EMULATOR CC-OF-AARCH64
   local emulator=$1 cc=$2 level plain fused
   need gcc
   there "$emulator" "$cc"
   show gcc -std=gnu17 -O1 -DMOD_FAST_FMA tests/test_hash.c -o "$dir/here" -lm
   show "$cc" -std=gnu17 -O1 -DMOD_FAST_FMA tests/test_hash.c -o "$dir/there.out" -lm
   "$dir/here" --levels >"$dir/levels"
   grep -qx AVX2 "$dir/levels" || skip "this processor has no AVX2"
   for level in scalar SSE2; do MOD_TEST_SIMD=$level show sh tests/run.sh "$dir/here"; done
   plain=$(MOD_TEST_SIMD=SSE2 "$dir/here" --print)
   # shellcheck disable=SC2086
   fused=$($emulator "$dir/there.out" --print)
   echo "plain $plain, NEON fused $fused"
   [ "$plain" != "$fused" ]
   grep AVX "$dir/levels" >"$dir/fusing"
   while read -r level; do
      echo "$level $(MOD_TEST_SIMD=$level "$dir/here" --print)"
      [ "$fused" = "$(MOD_TEST_SIMD=$level "$dir/here" --print)" ]
   done <"$dir/fusing"
}
# unfused CC OBJDUMP REGEXP LEVELS FLAGS...: not one fused multiply-add in the whole library, the functions of LEVELS
# among it. A compiler may make them of patterns (gcc's vfmaddsub) in spite of the pragma, and the hash need not pass
# through all of them. With MOD_FAST_FMA: some in the products of each of LEVELS, and none elsewhere.
unfused() {
   local cc=$1 objdump=$2 fused=$3 levels=$4 level
   shift 4
   need "$cc" "$objdump"
   show "$cc" "$@" -c $compile/one.c -o "$dir/o.o"
   "$objdump" -d "$dir/o.o" >"$dir/code"
   [ "$(wc -l <"$dir/code")" -gt 5000 ]
   for level in $levels; do grep -q "^[0-9a-f]* <mod__dot_$level" "$dir/code"; done # all levels are in the object
   awk '/^[0-9a-f]+ </ { f = $2 } { print f, $0 }' "$dir/code" | grep -E "$fused" >"$dir/all" || :
   case " $* " in
   *" -DMOD_FAST_FMA "*)
      for level in $levels; do grep -qE "^<mod__(multiply|tiles?)_$level" "$dir/all"; done
      grep -vE "^<mod__(multiply|tiles?)_(${levels// /|})" "$dir/all" >"$dir/fused" || return 0
      ;;
   *)
      cp "$dir/all" "$dir/fused"
      [ -s "$dir/fused" ] || return 0
      ;;
   esac
   head -n 20 "$dir/fused"
   echo "(above: fused multiply-adds)"
   return 1
}
# there EMULATOR CC FLAGS...: skips unless programs for another processor or system can be compiled and run here. Their
# names need a dot: else a compiler for Windows adds .exe.
there() {
   local emulator=$1
   shift
   # shellcheck disable=SC2086
   need ${emulator%% *} "$1"
   [ "$emulator" != wine ] || wine_begin
   printf '#include <stdlib.h>\nint main(void) { return 0; }\n' >"$dir/x.c"
   "$@" "$dir/x.c" -o "$dir/x.out" 2>/dev/null && $emulator "$dir/x.out" || skip "$* or $emulator does not work here"
}
# other EMULATOR CC TEST FLAGS...: a test on another processor or system.
other() {
   local emulator=$1 cc=$2 test=$3
   shift 3
   there "$emulator" "$cc" "$@"
   show "$cc" "$@" "tests/$test.c" -o "$dir/$test.out" -lm
   case $test in
   test_hash) RUN=$emulator at_each_level "$dir/$test.out" ;;
   *) RUN=$emulator show sh tests/run.sh "$dir/$test.out" ;;
   esac
}
# exchange EMULATOR CC FLAGS...: a file written there has the bytes of one written here, and each loads on the other.
exchange() {
   local emulator=$1
   shift
   need gcc cmp
   there "$emulator" "$@"
   show gcc -std=c99 -O0 tests/exchange.c -o "$dir/here" -lm
   show "$@" tests/exchange.c -o "$dir/there.out" -lm
   show "$dir/here" write "$dir/from_here"
   # shellcheck disable=SC2086
   show $emulator "$dir/there.out" write "$dir/from_there"
   show cmp "$dir/from_here" "$dir/from_there"
   # shellcheck disable=SC2086
   show $emulator "$dir/there.out" read "$dir/from_here"
   show "$dir/here" read "$dir/from_there"
}

# ------------------------------------------------------------------------------------------------------- the list ----

lane "switches: the header's list and this file agree" switches

for cc in gcc clang g++ clang++; do
   std=$(standard $cc)
   lane "strict $cc $std -O0 to -O3" build $cc "$std" "O0 O2 O3" plain
   lane "strict $cc $std -O0 and -O2: MOD_STATIC" build $cc "$std" "O0 O2" MOD_STATIC
   lane "strict $cc $std -O2: MOD_FAST_FMA" build $cc "$std" O2 MOD_FAST_FMA
   lane "strict $cc $std -O0 and -O2: MOD_USE_DOUBLE" build $cc "$std" "O0 O2" MOD_USE_DOUBLE
   for form in "MOD_USE_DOUBLE MOD_STATIC" MODDEF MOD_NO_OPENMP openmp "MOD_NO_OPENMP openmp" "MOD_STATIC openmp" \
      MOD_NO_MALLOC "MOD_NO_MALLOC MOD_STATIC" MOD_NO_STDIO "MOD_NO_MALLOC MOD_NO_STDIO" \
      "MOD_MALLOC MOD_FREE" MOD_ASSERT MOD_ALLOW_FAST_MATH MOD_NO_SIMD; do
      # shellcheck disable=SC2086
      lane "strict $cc $std: $form" build $cc "$std" O0 $form
   done
   lane "strict $cc -m32" build_32 $cc
   lane "refusals $cc" refusals $cc
   lane "macros of other headers, $cc" macros $cc
   lane "macros left behind, $cc" leftovers $cc
   is_cxx $cc || lane "header by another name, $cc" renamed $cc
done
for std in c11 c17 gnu17 gnu99; do
   for cc in gcc clang; do
      lane "strict $cc $std" build $cc $std O0 plain
   done
done
for std in c++14 c++17 c++20 gnu++17; do
   for cc in g++ clang++; do
      lane "strict $cc $std" build $cc $std O0 plain
   done
done
lane "strict tcc" build_tcc
lane "strict musl-gcc c99" build_there musl-gcc
lane "strict ARMv7 gcc c99" build_there arm-linux-gnueabihf-gcc -mfpu=vfpv3-d16
lane "strict Windows (mingw) gcc c99" build_there x86_64-w64-mingw32-gcc
lane "strict WebAssembly clang c99" build_there clang --target=wasm32-wasi
lane "strict WebAssembly clang c99 -msimd128" build_there clang --target=wasm32-wasi -msimd128
lane "strict AArch64 gcc c99" build_there aarch64-linux-gnu-gcc
lane "strict AArch64 gcc c99: MOD_FAST_FMA" build_there aarch64-linux-gnu-gcc -DMOD_FAST_FMA
lane "macros left behind, AArch64 gcc" leftovers aarch64-linux-gnu-gcc
lane "macros left behind, WebAssembly clang -msimd128" leftovers clang --target=wasm32-wasi -msimd128
lane "header by another name, AArch64 gcc" renamed aarch64-linux-gnu-gcc
for cc in gcc clang g++ clang++; do lane "strict $cc: examples/common" common $cc; done
lane "tests and examples without warnings, gcc" warnings gcc
lane "tests and examples without warnings, clang" warnings clang

for pair in "gcc gcc gcc" "clang clang clang" "gcc clang gcc" "g++ g++ g++" "clang++ clang++ clang++" "gcc g++ g++" \
   "g++ gcc g++" "clang clang++ clang++" "g++ clang g++"; do
   # shellcheck disable=SC2086
   lane "linking $pair: one implementation, two users" link_two $pair
   # shellcheck disable=SC2086
   lane "linking $pair: MOD_STATIC twice" link_static $pair
done
for cc in gcc clang g++ clang++; do
   lane "linking $cc: float and double do not mix" link_mixed $cc
done

for cc in gcc clang; do
   lane "system headers, $cc c99" headers $cc c99 ""
   lane "system headers, $cc gnu17 -D_GNU_SOURCE" headers $cc gnu17 -D_GNU_SOURCE
done
for cc in g++ clang++; do
   lane "system headers, $cc c++11" headers $cc c++11 ""
   lane "system headers, $cc c++20" headers $cc c++20 ""
done

for cc in gcc clang g++ clang++; do
   lane "symbols, $cc" symbols $cc
   lane "symbols with OpenMP, $cc" symbols_openmp $cc
done

for level in -O0 -O2 -O3; do
   lane "stack, gcc $level" stack $level
done
lane "stack, gcc -O3 -fopenmp" stack -O3 -fopenmp

for file in tests/test_*.c; do
   test=$(basename "$file" .c)
   case $test in *_f64) continue ;; esac
   if [ "$test" = test_learn ]; then
      lane "sanitizers: $test" skip "minutes of the code that test_train runs too"
      continue
   fi
   lane "sanitizers, clang: $test" sanitize clang "$test"
   # gcc's are slower and find what clang's find: the one that runs all kernels
   [ "$test" != test_hash ] || lane "sanitizers, gcc: $test" sanitize gcc "$test"
done

lane "races, clang: test_session" races clang test_session
lane "fuzz, gcc: the seeds of fuzz_file" replay gcc
lane "fuzz, clang: the seeds of fuzz_file" replay clang

for cc in gcc clang; do
   for cpu in x86-64 skylake-avx512; do # as a user builds it, and where any function may have them
      lane "no fused multiply-add, $cc gnu17 -march=$cpu" unfused $cc objdump '\sv?fn?m(add|sub)' "avx2 avx512" \
         -std=gnu17 -O3 -march=$cpu
   done
   lane "MOD_FAST_FMA: fused in products alone, $cc gnu17" unfused $cc objdump '\sv?fn?m(add|sub)' "avx2 avx512" \
      -std=gnu17 -O2 -DMOD_FAST_FMA
done
lane "no fused multiply-add, aarch64 gcc gnu17" unfused aarch64-linux-gnu-gcc aarch64-linux-gnu-objdump \
   '\sfn?m(add|sub|la|ls)\s' neon -std=gnu17 -O3
lane "MOD_FAST_FMA: fused in products alone, aarch64 gcc gnu17" unfused aarch64-linux-gnu-gcc \
   aarch64-linux-gnu-objdump '\sfn?m(add|sub|la|ls)\s' neon -std=gnu17 -O2 -DMOD_FAST_FMA

arm64="qemu-aarch64 -L /usr/aarch64-linux-gnu"
arm="qemu-arm -L /usr/arm-linux-gnueabihf"
z="qemu-s390x -L /usr/s390x-linux-gnu"
wasi="node --no-warnings tests/wasi.js"
if [ -e tests/test_hash.c ]; then
   # `make test` has c99, gnu17 and C++ at -O0, -O2 and -O3 by one compiler, mostly gcc
   for cc in gcc clang; do
      for level in -O1 -Os; do lane "hash, $cc gnu17 $level" hash $cc -std=gnu17 $level; done
   done
   lane "hash, clang c99 -O2" hash clang -std=c99 -O2
   lane "hash, clang gnu17 -O3" hash clang -std=gnu17 -O3
   for level in -O0 -O3; do lane "hash, clang++ c++11 $level" hash clang++ -std=c++11 $level; done
   for cc in gcc clang; do
      lane "hash, $cc gnu17 -O0: scalar" hash_at $cc scalar sse2 -std=gnu17 -O0
      lane "hash, $cc gnu17 -O0: SSE2" hash_at $cc SSE2 sse2 -std=gnu17 -O0
      lane "hash, $cc gnu17 -O0: AVX2" hash_at $cc AVX2 avx2 -std=gnu17 -O0
      lane "hash, $cc gnu17 -O0: AVX-512" hash_at $cc AVX-512 avx512f -std=gnu17 -O0
      lane "hash, $cc gnu17 -O3: MOD_NO_SIMD" hash $cc -std=gnu17 -O3 -DMOD_NO_SIMD
   done
   for cc in gcc clang g++ clang++; do
      if is_cxx $cc; then std=gnu++17; else std=gnu17; fi
      lane "hash, $cc $std -O3 -march=native -fopenmp" hash $cc -std=$std -O3 -march=native -fopenmp
   done
   lane "hash, gcc gnu17 -O3 -march=haswell -ffp-contract=fast" hash gcc -std=gnu17 -O3 -march=haswell \
      -ffp-contract=fast
   lane "hash, gcc gnu17 -O2 -flto" hash gcc -std=gnu17 -O2 -flto
   lane "hash, tcc" hash tcc -std=c99
   lane "hash, musl-gcc gnu17 -O3" hash musl-gcc -std=gnu17 -O3 -static
   lane "hash, aarch64 gnu17 -O3" other "$arm64" aarch64-linux-gnu-gcc test_hash -std=gnu17 -O3
   lane "hash, ARMv7 with VFP gnu17 -O3" other "$arm" arm-linux-gnueabihf-gcc test_hash -std=gnu17 -O3 -mfpu=vfpv3-d16
   lane "hash, WebAssembly gnu17 -O3" other "$wasi" clang test_hash --target=wasm32-wasi -std=gnu17 -O3
   lane "hash, WebAssembly gnu17 -O3 -msimd128" other "$wasi" clang test_hash --target=wasm32-wasi -msimd128 \
      -std=gnu17 -O3
   lane "hash, Windows (mingw, wine) gnu17 -O3" other wine x86_64-w64-mingw32-gcc test_hash -std=gnu17 -O3
   lane "hash, s390x (big-endian) gnu17 -O3" other "$z" s390x-linux-gnu-gcc test_hash -std=gnu17 -O3
   # shellcheck disable=SC2086
   lane "hash, i386 with SSE, gcc" other qemu-i386 gcc test_hash -std=gnu17 -O3 $x32 -msse2 -mfpmath=sse
   # shellcheck disable=SC2086
   lane "hash, i386 with SSE, clang" other qemu-i386 clang test_hash -std=c99 -O2 $x32 -msse2 -mfpmath=sse
   lane "hash, x86-64 without AVX" other "qemu-x86_64 -cpu qemu64" gcc test_hash -std=gnu17 -O3
   lane "hash, MOD_FAST_FMA: AArch64 as x86-64" hash_fused "$arm64" aarch64-linux-gnu-gcc
fi
if [ -e tests/exchange.c ]; then
   # gnu17, because on s390x c99 has FLT_EVAL_METHOD 1: floats computed as doubles
   lane "files, s390x (big-endian)" exchange "$z" s390x-linux-gnu-gcc -std=gnu17 -O1
   lane "files, aarch64" exchange "$arm64" aarch64-linux-gnu-gcc -std=c99 -O1
   lane "files, ARMv7 with VFP" exchange "$arm" arm-linux-gnueabihf-gcc -std=c99 -O1 -mfpu=vfpv3-d16
   # shellcheck disable=SC2086
   lane "files, i386 with SSE" exchange qemu-i386 gcc -std=c99 -O1 $x32 -msse2 -mfpmath=sse
   lane "files, WebAssembly" exchange "$wasi" clang --target=wasm32-wasi -std=c99 -O1
   lane "files, Windows (mingw, wine)" exchange wine x86_64-w64-mingw32-gcc -std=c99 -O1
   lane "files, clang C++" exchange env clang -x c++ -std=c++11 -O1
   lane "files, musl-gcc" exchange env musl-gcc -std=c99 -O1 -static
   lane "files, tcc" exchange env tcc -std=c99
fi
for test in test_refuse test_math test_route; do
   [ -e tests/$test.c ] || continue
   # shellcheck disable=SC2086
   lane "i386 with SSE: $test" other qemu-i386 gcc $test -std=c99 -O2 $x32 -msse2 -mfpmath=sse
   [ $test = test_math ] || # which knows no bytes, and is slow there
      lane "s390x (big-endian): $test" other "$z" s390x-linux-gnu-gcc $test -std=gnu17 -O2
done

wait
passed=$(cat "$tmp"/*.result 2>/dev/null | grep -c passed)
failed=$(cat "$tmp"/*.result 2>/dev/null | grep -c failed)
skipped=$(cat "$tmp"/*.result 2>/dev/null | grep -c skipped)
lost=$((n_lanes - passed - failed - skipped)) # a lane that left no result is a failure
failed=$((failed + lost))
if [ "$failed" -gt 0 ]; then
   echo
   echo "What failed (see above; $lost without a result):"
   cat "$tmp"/*.failed 2>/dev/null | sed 's/^/   /'
fi
echo "$((SECONDS / 60)) min $((SECONDS % 60)) s"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
