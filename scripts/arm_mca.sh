#!/usr/bin/env bash
# Models the inner loops of the AArch64 kernels with llvm-mca: how close each comes to the most multiply instructions
# that a CPU can start, or, for one row, to the most loads. A model of the core with everything in its first cache, not
# a measurement. Prints the Markdown table of CONTRIBUTING.md.
#   scripts/arm_mca.sh              cross-builds the kernels (scripts/arm.sh --configure)
#   scripts/arm_mca.sh BUILD_DIR    takes the objects of an AArch64 build
# Needs the package llvm-19 (older ones have one model for all CPUs), which is installed where it can be had.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
levels=(neon_dotprod neon_i8mm_bf16 sve256_i8mm_bf16)

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }
if ! command -v llvm-mca-19 >/dev/null; then
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends llvm-19 >/dev/null 2>&1 || true
fi
if ! command -v llvm-mca-19 >/dev/null; then
  echo "scripts/arm_mca.sh: no llvm-mca-19 here, and package llvm-19 cannot be installed from this machine's sources" >&2
  exit 1
fi

build=${1:-$root/build/arm64}
[ $# -gt 0 ] || "$root/scripts/arm.sh" --configure
objects=()
for level in "${levels[@]}"; do
  objects+=("CMakeFiles/epmoe.dir/src/experts/kernels/kernels_$level.cpp.o")
done
ninja -C "$build" "${objects[@]}" >&2
python3 "$root/scripts/arm_mca.py" "${objects[@]/#/$build/}"
