#!/bin/sh
# must_fail.sh PATTERN COMMAND...: passes if COMMAND fails and its output, as one line, matches the extended regular
# expression PATTERN.
pattern=$1
shift
if output=$("$@" 2>&1); then
  echo "passed, but should have failed: $*"
  echo "$output"
  exit 1
fi
if ! printf '%s' "$output" | tr '\n' ' ' | grep -Eq -- "$pattern"; then
  echo "failed as it should, but without a word of '$pattern':"
  echo "$output"
  exit 1
fi
