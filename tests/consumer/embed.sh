#!/usr/bin/env bash
# embed.sh SOURCE WORK WAY [LAUNCHER...]: builds the project in embedded/, which takes shoal from SOURCE by WAY (FetchContent
# or add_subdirectory), below WORK, and runs it.
set -euo pipefail
project=$(dirname "$(realpath "$0")")/embedded
launcher=$(IFS=';'; echo "${*:4}")
rm -rf "$2"
# It is the build that is tried here, so the sources are compiled in the quickest way.
cmake -G Ninja -S "$project" -B "$2" -DSHOAL_SOURCE="$1" -DSHOAL_WAY="$3" -DCMAKE_BUILD_TYPE=Release \
      -DCMAKE_CXX_FLAGS_RELEASE=-O0 -DCMAKE_CXX_COMPILER_LAUNCHER="$launcher"
cmake --build "$2" --target messages
"$2/messages"
