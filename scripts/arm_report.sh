#!/usr/bin/env bash
# For those who have an Arm server (Graviton, Altra, Grace, …): builds epmoe, measures it, and writes one JSON file to
# send back: the CPU, the kernel sets that run on it, what memory and multipliers give, `epmoe bench experts`, the
# memory order test, stage times of two ranks with and without overlap. Runs on x86-64 too. Takes about half an hour and
# 8 GB of memory; nothing is sent anywhere.
#   scripts/arm_report.sh                      builds in build/release, writes epmoe_report.json
#   scripts/arm_report.sh --output FILE        another file
#   scripts/arm_report.sh --tiny               seconds instead of minutes: shows that all parts work, measures nothing
#   scripts/arm_report.sh --build BUILD_DIR    takes programs that are built already
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
output=epmoe_report.json
build=
tiny=()
usage() { echo "usage: scripts/arm_report.sh [--tiny] [--output FILE] [--build BUILD_DIR]" >&2; exit 2; }
while [ $# -gt 0 ]; do
  case "$1" in
    --tiny) tiny=(--tiny) ;;
    --output | --build)
      [ $# -gt 1 ] || usage
      if [ "$1" = --output ]; then output=$2; else build=$2; fi
      shift ;;
    *) usage ;;
  esac
  shift
done

programs=(epmoe memory_order_test)
if [ -z "$build" ]; then
  "$root/scripts/setup.sh"
  build=$root/build/release
  log=$root/build/release.log
  mkdir -p "$root/build"
  build_programs() { (cd "$root" && cmake --preset release && cmake --build --preset release --target epmoe_cli memory_order_test); }
  if ! build_programs >"$log" 2>&1; then
    echo "scripts/arm_report.sh: the build failed, there is nothing to report on; what it printed is in $log" >&2
    exit 1
  fi
fi
for program in "${programs[@]}"; do
  if [ ! -x "$build/bin/$program" ]; then
    echo "scripts/arm_report.sh: found no $program in $build/bin, wanted a build with apps and tests" >&2
    exit 1
  fi
done
mpiexec=$(sed -n 's/^MPIEXEC_EXECUTABLE:[^=]*=//p' "$build/CMakeCache.txt")
# shellcheck source=scripts/mpi_env.sh
. "$root/scripts/mpi_env.sh"
unset OMP_NUM_THREADS  # the threads are what is measured
exec python3 "$root/scripts/arm_report.py" --root "$root" --build "$build" --mpiexec "${mpiexec:-mpirun}" \
  --output "$output" "${tiny[@]}"
