#!/usr/bin/env bash
# other_compiler.sh COMPILER WORK SOURCE INCLUDE BUILT...: compiles a test of names by another compiler than the one that made what is
# BUILT, libraries and the tests' main, optimised and without libfmt, as users may, below WORK, and runs it: names of members and
# enumerators come from what each compiler says. The preset asan-clang has all tests by clang, with libraries by clang.
set -euo pipefail
compiler=$1 work=$2 source=$3 include=$4
shift 4
rm -rf "$work" && mkdir -p "$work"
libraries=()
if printf '#include <catch2/catch_all.hpp>\n' | "$compiler" -std=c++20 -E -x c++ - >/dev/null 2>&1; then
  libraries=(-lCatch2)
fi
"$compiler" -std=c++20 -O1 -DFMT_HEADER_ONLY=1 -I"$include" -I"$source" -c "$source/tests/runtime/configure/names_test.cpp" -o "$work/names_test.o"
"$compiler" "$work/names_test.o" "$@" "${libraries[@]}" -Wl,--build-id -pthread -ldl -lrt -o "$work/names_test"
"$work/names_test"
