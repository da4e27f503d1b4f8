#!/usr/bin/env bash
# Proves that nothing outside the kernels needs more than the x86-64 baseline: runs tests of the release build on an
# emulated CPU without AVX (qemu-user). Needs build/release (made here if it is missing) and qemu-x86_64-static.
# The last line is "N passed, N failed".
#   scripts/baseline_cpu.sh
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root" || exit 1
if [ "$(uname -m)" != x86_64 ]; then
  echo "left out: this machine is not x86-64"
  exit 0
fi
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }
if ! command -v qemu-x86_64-static >/dev/null; then
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends qemu-user-static >/dev/null || exit 1
fi
build=$root/build/release
tests=(core_test experts_kernels_test experts_native_test modular_kernel_test)
[ -e "$build/build.ninja" ] || cmake --preset release >/dev/null || exit 1
cmake --build "$build" -j "$(nproc)" --target "${tests[@]}" >/dev/null || exit 1

# shellcheck source=scripts/mpi_env.sh
. scripts/mpi_env.sh
# The emulator has no process_vm_readv.
export OMP_NUM_THREADS=1 OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_smsc=^cma
emulator=(qemu-x86_64-static -cpu Nehalem)
work=$(mktemp -d)
passed=0
failed=0
trap 'rm -rf "$work"; echo "$passed passed, $failed failed"' EXIT

# check NAME COMMAND… : output is shown only when it fails.
check() {
  local name=$1 start=$SECONDS
  shift
  if "$@" >"$work/log" 2>&1; then
    passed=$((passed + 1))
    echo "ok      $name ($((SECONDS - start)) s)"
  else
    failed=$((failed + 1))
    tail -n 60 "$work/log"
    echo "FAILED  $name ($((SECONDS - start)) s)"
  fi
}

# An AVX instruction must end a program here, or the rest proves nothing.
avx_is_refused() {
  printf '%s\n' '#include <immintrin.h>' 'int main(int n, char**) {' \
    '  return _mm256_movemask_ps(_mm256_set1_ps(static_cast<float>(n))) == 0 ? 0 : 1; }' >"$work/avx.cpp"
  "${CXX:-c++}" -O1 -mavx "$work/avx.cpp" -o "$work/avx" || return 1
  "${emulator[@]}" "$work/avx"
  [ $? -eq 132 ]  # SIGILL
}
# A function that another file could share must not come from a file built for AVX: the linker might take that one.
kernels_share_nothing() {
  local object count=0
  while read -r object; do
    count=$((count + 1))
    if nm -C "$object" | grep -E ' [WVu] '; then return 1; fi
  done < <(find "$build" -name 'kernels_avx*.o')
  [ "$count" -gt 0 ]
}
check "AVX is refused" avx_is_refused
check "AVX objects share no code" kernels_share_nothing
for test in core_test experts_kernels_test experts_native_test; do
  check "$test" timeout -k 5 900 "${emulator[@]}" "$build/bin/$test" --ranks=1
done
check "modular_kernel_test on 2 ranks" timeout -k 5 900 mpirun -n 2 "${emulator[@]}" "$build/bin/modular_kernel_test" --ranks=2
[ "$failed" -eq 0 ]
