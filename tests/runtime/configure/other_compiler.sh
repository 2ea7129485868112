#!/usr/bin/env bash
# other_compiler.sh COMPILER WORK SOURCE INCLUDE LIBRARY...: compiles a program by another compiler than the one that made the
# libraries, optimised and without libfmt, as users may, below WORK, and runs it: of the names of members and enumerators, which come
# from what each compiler says. The preset asan-clang has all tests by clang, with libraries by clang.
set -euo pipefail
compiler=$1 work=$2 source=$3 include=$4
shift 4
rm -rf "$work" && mkdir -p "$work"
printf '#define CATCH_CONFIG_MAIN\n#include <catch2/catch.hpp>\n' >"$work/main_2.cpp"
printf '#include <catch2/catch_all.hpp>\nint main(int argc, char** argv) { return Catch::Session().run(argc, argv); }\n' >"$work/main_3.cpp"
main=main_2
libraries=()
if printf '#include <catch2/catch_all.hpp>\n' | "$compiler" -std=c++20 -E -x c++ - >/dev/null 2>&1; then
  main=main_3
  libraries=(-lCatch2)
fi
flags=(-std=c++20 -O1 -DFMT_HEADER_ONLY=1 -I"$include" -I"$source")
objects=()
for file in "$work/$main.cpp" "$source/tests/runtime/configure/names_test.cpp"; do
  object=$work/$(basename "$file" .cpp).o
  "$compiler" "${flags[@]}" -c "$file" -o "$object"
  objects+=("$object")
done
"$compiler" "${objects[@]}" "$@" "${libraries[@]}" -Wl,--build-id -pthread -ldl -lrt -o "$work/configure_test"
"$work/configure_test"
