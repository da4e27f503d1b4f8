#!/usr/bin/env bash
# Set-up, build and tests. The last line sums up all legs: "N passed, N failed"; exit 1 if anything failed.
#   scripts/test.sh           what CI runs: release build with warnings as errors
#   scripts/test.sh --quick   the same for now
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root" || exit 1
mode=default
case "${1:-}" in
  "") ;;
  --quick) mode=quick ;;
  --full) mode=full ;;
  *) echo "usage: scripts/test.sh [--quick|--full]" >&2; exit 2 ;;
esac

passed=0
failed=0
trap 'echo "$passed passed, $failed failed"' EXIT

# run_step NAME COMMAND… : counts as one test; output is shown only when it fails.
run_step() {
  local name=$1 start=$SECONDS log
  shift
  log=$(mktemp)
  if "$@" >"$log" 2>&1; then
    passed=$((passed + 1))
    echo "ok      $name ($((SECONDS - start)) s)"
    rm -f "$log"
    return 0
  fi
  failed=$((failed + 1))
  cat "$log"
  rm -f "$log"
  echo "FAILED  $name ($((SECONDS - start)) s)"
  return 1
}
# run_ctest NAME BUILD_DIR [ctest arguments] : adds ctest's counts.
run_ctest() {
  local name=$1 dir=$2 start=$SECONDS log total bad
  shift 2
  log=$(mktemp)
  ctest --test-dir "$dir" -j "$(nproc)" --output-on-failure --no-tests=error "$@" >"$log" 2>&1
  local status=$?
  # "98% tests passed, 2 tests failed out of 113"
  read -r bad total < <(sed -n 's/^[0-9]*% tests passed, \([0-9]*\) tests\{0,1\} failed out of \([0-9]*\)$/\1 \2/p' "$log")
  if [ -z "${total:-}" ]; then
    cat "$log"
    failed=$((failed + 1))
    echo "FAILED  $name: no test ran ($((SECONDS - start)) s)"
  else
    passed=$((passed + total - bad))
    failed=$((failed + bad))
    if [ "$status" -eq 0 ]; then
      echo "ok      $name: $total tests ($((SECONDS - start)) s)"
    else
      cat "$log"
      echo "FAILED  $name: $bad of $total tests ($((SECONDS - start)) s)"
    fi
  fi
  rm -f "$log"
}

run_step "set-up" scripts/setup.sh || exit 1
# shellcheck source=scripts/mpi_env.sh
. scripts/mpi_env.sh

run_step "release: configure" cmake --preset release &&
  run_step "release: build" cmake --build --preset release -j "$(nproc)" &&
  run_ctest "release: tests" build/release

[ "$failed" -eq 0 ]
