#!/usr/bin/env bash
# other_compiler.sh COMPILER WORK SOURCE INCLUDE BUILT...: compiles names_test.cpp by COMPILER below WORK, optimised and without libfmt,
# as users may; links it with what is BUILT by the project's own compiler, the tests' main and the libraries; runs it. Names of members
# and enumerators come from what each compiler says. The preset asan-clang has all tests by clang, with libraries by clang.
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
