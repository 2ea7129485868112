#!/usr/bin/env bash
# dev_install.sh DEV: `./dev install` without a place says at once what to write. Tried on a copy that finds no tool: one
# that begins to set up or to build fails by that, and has changed nothing.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cp "$1" "$place/dev"
mkdir "$place/bin"
: >"$place/.venv"   # no folder: nothing can be installed there
for tool in dirname nproc; do ln -s "$(command -v "$tool")" "$place/bin/$tool"; done
if said=$(PATH=$place/bin "$BASH" "$place/dev" install 2>&1); then echo "it did not fail: $said"; exit 1; fi
if [[ $said != *"say where: ./dev install PREFIX"* ]]; then echo "it says: $said"; exit 1; fi
