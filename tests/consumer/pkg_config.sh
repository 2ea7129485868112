#!/usr/bin/env bash
# pkg_config.sh BUILD WORK COMPILER: installs BUILD below WORK and builds a program by what pkg-config says of it.
set -euo pipefail
source=$(dirname "$(realpath "$0")")
rm -rf "$2" && mkdir -p "$2"
cmake --install "$1" --prefix "$2/prefix" >"$2/install.log"
PKG_CONFIG_PATH=$(dirname "$(find "$2/prefix" -name shoal.pc)")
export PKG_CONFIG_PATH
read -ra flags <<<"$(pkg-config --cflags --libs shoal)"
"$3" -std=c++20 -O0 "$source/processes.cpp" -o "$2/processes" "${flags[@]}"
"$2/processes"
if pkg-config --exists shoal-torch; then
  read -ra flags <<<"$(pkg-config --cflags --libs shoal-torch)"
  "$3" -std=c++20 -O0 "$source/shared_tensor.cpp" -o "$2/shared_tensor" "${flags[@]}"
  "$2/shared_tensor"
fi
