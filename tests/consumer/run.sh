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
# What an installed header includes of shoal's is installed, too.
grep -rhoE '^ *# *include +[<"]shoal/[^>"]+' "$work/prefix/include" | sed 's/.*[<"]//' | sort -u |
  while read -r header; do [ -f "$work/prefix/include/$header" ] || echo "included, but not installed: $header"; done >"$work/lacking"
if [ -s "$work/lacking" ]; then
  cat "$work/lacking"
  exit 1
fi
# At -O0, in which the programs are compiled soonest.
cmake -G Ninja -S "$source" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_BUILD_TYPE=Release \
      -DCMAKE_CXX_FLAGS_RELEASE=-O0 -DCMAKE_CXX_COMPILER_LAUNCHER="$launcher"
cmake --build "$work/build"
# A libtorch of another version, which would crash the programs, is refused by name.
torch=$(sed -n 's/.*Libtorch_FALLBACK_DIRS "\(.*\)").*/\1/p' "$work"/prefix/lib*/cmake/shoal/shoalConfig.cmake)
if [ -e "$work"/prefix/lib*/cmake/shoal/FindLibtorch.cmake ] && grep -q 'if(ON)' "$work"/prefix/lib*/cmake/shoal/shoalConfig.cmake; then
  rm -rf "$work/other"
  mkdir -p "$work/other/share/cmake/Torch"
  ln -s "$(realpath "$torch/../../../lib")" "$(realpath "$torch/../../../include")" "$work/other"
  ln -s "$(realpath "$torch/../Caffe2")" "$work/other/share/cmake"
  touch "$work/other/share/cmake/Torch/TorchConfig.cmake"
  echo 'set(PACKAGE_VERSION "2.99.0")' >"$work/other/share/cmake/Torch/TorchConfigVersion.cmake"
  if cmake -G Ninja -S "$source" -B "$work/refused" -DCMAKE_PREFIX_PATH="$work/prefix" -DTorch_DIR="$work/other/share/cmake/Torch" \
           >"$work/refused.log" 2>&1; then
    echo "a libtorch of another version was taken"
    exit 1
  fi
  tr -s ' \n' '  ' <"$work/refused.log" | grep -o "shoal was built with libtorch [0-9.]*, and this is 2.99.0"
fi
# What the installed program's help names is installed.
if [ -x "$work/prefix/bin/shoal" ]; then
  for page in $("$work/prefix/bin/shoal" run --help | grep -o '[a-z-]*\.md') $("$work/prefix/bin/shoal" top --help | grep -o '[a-z-]*\.md'); do
    echo "-- page $page"
    test -s "$work/prefix/share/doc/shoal/$page"
  done
fi
# Two launchers of one run, which meet by the installed companion: it has to find libtorch by itself.
if [ -x "$work/prefix/libexec/shoal/shoal-rendezvous" ]; then
  echo "-- shoal run --nnodes 2"
  port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  run() {
    env -u LD_LIBRARY_PATH "$work/prefix/bin/shoal" run --nnodes 2 --rdzv-endpoint "127.0.0.1:$port" --rdzv-id installed \
      -- /bin/sh -c 'echo "rank $RANK of $WORLD_SIZE"'
  }
  run >"$work/first.log" 2>&1 &
  first=$!
  run >"$work/second.log" 2>&1 || { cat "$work/second.log"; exit 1; }
  wait "$first" || { cat "$work/first.log"; exit 1; }
  cat "$work/first.log" "$work/second.log" | grep -o 'rank [0-9] of 2' | sort >"$work/ranks.log"
  printf 'rank 0 of 2\nrank 1 of 2\n' | cmp - "$work/ranks.log"
fi
for program in messages processes shared_tensor; do
  [ -x "$work/build/$program" ] || continue
  echo "-- $program"
  "$work/build/$program"
done
