#!/usr/bin/env bash
# Set-up, release build and the main job on two ranks. Arguments replace "run --verify":
#   scripts/run.sh                                   the built-in model, verified
#   scripts/run.sh run MODEL_DIR --layers 0 --verify a checkpoint's layer
#   RANKS=4 scripts/run.sh                           another number of ranks
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
"$root/scripts/setup.sh"
# shellcheck source=scripts/mpi_env.sh
. "$root/scripts/mpi_env.sh"

log=$root/build/release.log
mkdir -p "$root/build"
build() { (cd "$root" && cmake --preset release && cmake --build --preset release --target epmoe_cli); }
if ! build >"$log" 2>&1; then
  cat "$log" >&2
  exit 1
fi

[ $# -gt 0 ] || set -- run --verify
exec mpirun -n "${RANKS:-2}" "$root/build/release/bin/epmoe" "$@"
