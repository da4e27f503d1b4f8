#!/usr/bin/env bash
# expect_report.sh REPORT COMMAND…: passes if the command fails and prints REPORT; with an empty REPORT, if it succeeds
# and no sanitizer prints anything.
set -uo pipefail
report=$1
shift
output=$("$@" 2>&1)
status=$?
echo "$output"
if [ -z "$report" ]; then
  [ "$status" -eq 0 ] && ! grep -qE 'Sanitizer|runtime error' <<<"$output"
else
  [ "$status" -ne 0 ] && grep -qF -- "$report" <<<"$output"
fi
