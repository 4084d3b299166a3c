#!/usr/bin/env bash
# is_found.sh PROGRAM WORDS: the program, whose code has a deliberate bug, must fail with a message that has the words.
set -uo pipefail
output=$("./$1" 2>&1)
status=$?
if ((status == 0)); then
  echo "the bug was not found"
  exit 1
fi
if ! grep -oFm1 -- "$2" <<< "$output"; then
  printf 'failed with %d, but nothing says "%s":\n%s\n' "$status" "$2" "$output"
  exit 1
fi
