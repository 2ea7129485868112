#!/usr/bin/env bash
# run.sh BUILD WORK [LAUNCHER...]: installs the build tree BUILD below WORK, configures and builds the project beside this
# file against that, and runs its programs. LAUNCHER is the compiler launcher (ccache), if any.
set -euo pipefail
source=$(dirname "$(realpath "$0")")
build=$1
work=$2
launcher=$(IFS=';'; echo "${*:3}")

rm -rf "$work/prefix" "$work/build"
cmake --install "$build" --prefix "$work/prefix" >"$work/install.log"
if grep -rn "$(dirname "$(dirname "$source")")\|$build" "$work"/prefix/lib*/cmake/shoal/shoalTargets*.cmake; then
  echo "the installed package refers to the tree it was built in"
  exit 1
fi
cmake -G Ninja -S "$source" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_BUILD_TYPE=Release \
      -DCMAKE_CXX_COMPILER_LAUNCHER="$launcher"
cmake --build "$work/build"
for program in messages processes shared_tensor; do
  [ -x "$work/build/$program" ] || continue
  echo "-- $program"
  "$work/build/$program"
done
