#!/usr/bin/env bash
# Set-up, build and tests. The last line sums up all legs: "N passed, N failed"; exit 1 if anything failed.
#   scripts/test.sh           what CI runs: format; a release build with warnings as errors and all its tests; a build
#                             with ASan and UBSan and the tests of up to 2 ranks; a build with MPICH and the tests of
#                             2 ranks; AArch64 under an emulator
#   scripts/test.sh --quick   the release build and its tests only
#   scripts/test.sh --full    all of these, the long tests, a build with ThreadSanitizer and its tests, x86-64 without
#                             AVX and the other Debian release
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

# run_leg NAME COMMAND… : a script that may end with "N passed, N failed" of its own; else it counts as one test.
run_leg() {
  local name=$1 start=$SECONDS log good bad status
  shift
  log=$(mktemp)
  "$@" >"$log" 2>&1
  status=$?
  read -r good bad < <(tail -n 1 "$log" | sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p')
  if [ -z "${bad:-}" ]; then good=$((status == 0)) bad=$((status != 0)); fi
  if [ "$status" -ne 0 ] && [ "$bad" -eq 0 ]; then bad=1; fi
  passed=$((passed + good))
  failed=$((failed + bad))
  if [ "$bad" -eq 0 ]; then
    echo "ok      $name ($((SECONDS - start)) s)"
  else
    tail -n 200 "$log"
    echo "FAILED  $name ($((SECONDS - start)) s)"
  fi
  rm -f "$log"
}
# build_leg NAME BUILD_DIR [CMake arguments]
build_leg() {
  local name=$1 dir=$2
  shift 2
  run_step "$name: configure" cmake -S . -B "$dir" "$@" && run_step "$name: build" cmake --build "$dir" -j "$(nproc)"
}

# ccache then shares objects between the legs and between checkouts.
export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1

if [ "$mode" = quick ]; then
  run_step "set-up" scripts/setup.sh || exit 1
elif [ "$mode" = full ]; then
  run_step "set-up" scripts/setup.sh --mpich --tsan || exit 1
else
  run_step "set-up" scripts/setup.sh --mpich || exit 1
fi
# shellcheck source=scripts/mpi_env.sh
. scripts/mpi_env.sh

if [ "$mode" != quick ]; then
  if scripts/format.sh --where >/dev/null 2>&1; then
    run_step "format" scripts/format.sh --check
  else
    echo "left out: format (the clang-format that counts cannot be had here)"
  fi
fi

# soak: long; large: many GiB; exhaustive: hours; release_only: too slow with sanitizers.
left_out='^(soak|large|exhaustive)$'
[ "$mode" != full ] || left_out='^exhaustive$'
build_leg "release" build/release --preset release && run_ctest "release: tests" build/release -LE "$left_out"

if [ "$mode" != quick ]; then
  build_leg "ASan and UBSan" build/dev --preset dev &&
    run_ctest "ASan and UBSan: tests" build/dev -L '^np[12]$' -LE '^(soak|large|exhaustive|release_only)$'
  build_leg "MPICH" build/mpich -G Ninja -DCMAKE_BUILD_TYPE=Release -DEPMOE_WARNINGS_AS_ERRORS=ON \
      -DMPI_CXX_COMPILER=mpicxx.mpich -DMPIEXEC_EXECUTABLE="$(command -v mpiexec.mpich)" &&
    run_ctest "MPICH: tests" build/mpich -L '^np2$' -LE '^soak$'
fi

if [ "$mode" != quick ]; then
  if [ "$(uname -m)" = aarch64 ]; then
    echo "left out: AArch64 under an emulator (this machine is one)"
  else
    run_leg "AArch64" scripts/arm.sh
  fi
fi

if [ "$mode" = full ]; then
  run_step "ThreadSanitizer: configure" cmake --preset tsan &&
    run_step "ThreadSanitizer: build" cmake --build build/tsan -j "$(nproc)" --target tsan_tests &&
    run_ctest "ThreadSanitizer: tests" build/tsan -L '^tsan$'
  run_leg "x86-64 without AVX" scripts/baseline_cpu.sh
  run_leg "the other Debian release" scripts/other_release.sh
fi

[ "$failed" -eq 0 ]
