#!/bin/sh
# Installs, with apt and as well as it can, what `make check` uses beyond one C compiler. Never fails: what could not be
# installed makes its lanes of tests/check.sh skip with a reason.

have() { command -v "$1" >/dev/null 2>&1; }

if ! have apt-get; then
   echo "deps: no apt-get here, nothing installed"
   exit 0
fi

want=""
need() { # PROGRAM PACKAGE..: the packages, unless the program is there
   program=$1
   shift
   have "$program" || want="$want $*"
}
need gcc gcc libc6-dev
need make make
need g++ g++
need clang clang
need nm binutils
[ -e /usr/include/omp.h ] || ls /usr/lib/llvm-*/lib/libomp.so >/dev/null 2>&1 || want="$want libomp-dev"
ls /usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.asan-*.a >/dev/null 2>&1 ||
   want="$want libclang-rt-dev"
need qemu-aarch64 qemu-user
need aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu libc6-dev-arm64-cross
need s390x-linux-gnu-gcc gcc-s390x-linux-gnu libc6-dev-s390x-cross
need arm-linux-gnueabihf-gcc gcc-arm-linux-gnueabihf libc6-dev-armhf-cross
need musl-gcc musl-tools
need tcc tcc
# WebAssembly: clang's linker, a libc, clang's helpers; node, to run it, is large: it is used if it is there.
need wasm-ld lld
[ -e /usr/include/wasm32-wasi/stdio.h ] || want="$want wasi-libc"
ls /usr/lib/llvm-*/lib/clang/*/lib/wasi/libclang_rt.builtins-wasm32.a >/dev/null 2>&1 ||
   want="$want libclang-rt-dev-wasm32"
# Windows: one of the two thread models (gcc-mingw-w64-x86-64 is both), and wine for 64-bit programs alone.
need x86_64-w64-mingw32-gcc gcc-mingw-w64-x86-64-win32
[ "$(uname -m)" != x86_64 ] || need wine wine64 wine
# 32-bit x86: gcc-multilib would remove the cross compilers above, gcc-<version>-multilib does not.
version=$(gcc -dumpversion 2>/dev/null | cut -d. -f1)
[ "$(uname -m)" != x86_64 ] || [ -e /usr/include/gnu/stubs-32.h ] || want="$want gcc-${version:-12}-multilib"

if [ -z "$want" ]; then
   echo "deps: all there"
   exit 0
fi
[ "$(id -u)" = 0 ] && sudo="" || sudo="sudo -n"
export DEBIAN_FRONTEND=noninteractive
echo "deps:$want"
$sudo apt-get update -qq >/dev/null 2>&1
# One after the other: one that does not exist must not keep the others out.
for package in $want; do
   timeout 240 $sudo apt-get install -y -qq --no-install-recommends "$package" >/dev/null 2>&1 </dev/null ||
      echo "deps: could not install $package"
done
exit 0
