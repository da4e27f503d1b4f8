#!/usr/bin/env bash
# Cross-builds for AArch64 and runs a subset of the tests under qemu-user with the host's mpirun. Nothing is installed
# for the foreign architecture: its packages are unpacked into a cache directory. Needs Debian, and root (or sudo) once
# for the cross compiler and qemu.
#   scripts/arm.sh                    the covering set of cmake/EpmoeTestSets.cmake
#   scripts/arm.sh CTEST_ARGUMENTS    builds everything and runs what they select
#   scripts/arm.sh --configure        prepares build/arm64 and stops
# The last line is "N passed, N failed". Emulation says nothing about speed, and gives x86 memory ordering: it proves
# results and run-time dispatch.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/epmoe
release=$(. /etc/os-release && echo "${VERSION_CODENAME:-unknown}")
export EPMOE_ARM_SYSROOT=${EPMOE_ARM_SYSROOT:-$cache/arm64-$release}

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }
if ! command -v aarch64-linux-gnu-g++ >/dev/null || ! command -v qemu-aarch64-static >/dev/null; then
  as_root apt-get update -q >/dev/null
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
    g++-aarch64-linux-gnu qemu-user-static >/dev/null
fi

make_sysroot() {
  local work=$EPMOE_ARM_SYSROOT.apt gcc packages deb link target
  gcc=$(aarch64-linux-gnu-gcc -dumpversion | cut -d. -f1)
  packages="libc6-dev libstdc++-$gcc-dev libgcc-$gcc-dev libgomp1 openmpi-bin libopenmpi-dev libdnnl-dev
    libspdlog-dev libfmt-dev libcli11-dev nlohmann-json3-dev libhwloc-dev libgtest-dev libgmock-dev"
  rm -rf "$work" "$EPMOE_ARM_SYSROOT.partial"
  mkdir -p "$work"/{lists/partial,cache/archives/partial,etc} "$EPMOE_ARM_SYSROOT.partial"
  : >"$work/status"
  # The host's own sources; entries that lack arm64 are left out by apt.
  cp /etc/apt/sources.list.d/debian.sources "$work/etc/" 2>/dev/null || grep -hE '^deb ' /etc/apt/sources.list >"$work/etc/sources.list"
  cat >"$work/apt.conf" <<C
Dir::Etc::sourcelist "$work/etc/sources.list"; Dir::Etc::sourceparts "$work/etc";
Dir::State::lists "$work/lists"; Dir::State::status "$work/status"; Dir::Cache "$work/cache";
APT::Architecture "arm64"; APT::Architectures { "arm64"; }; APT::Sandbox::User "root"; Debug::NoLocking "1";
C
  APT_CONFIG=$work/apt.conf apt-get -q update >/dev/null
  # shellcheck disable=SC2086
  APT_CONFIG=$work/apt.conf apt-get -q -y -d --no-install-recommends install $packages >"$work/download.log" 2>&1 ||
    { tail -5 "$work/download.log" >&2; return 1; }
  for deb in "$work"/cache/archives/*.deb; do
    case ${deb##*/} in  # compilers, interpreters and shells are not needed to link and run
      gcc-[0-9]*-base_*) ;;
      gcc-[0-9]*|cpp-[0-9]*|g++-[0-9]*|gfortran-[0-9]*|perl*|libperl*|openssh*|autoconf*|automake*|m4_*|binutils*|libllvm*|python3*) continue ;;
    esac
    dpkg-deb -x "$deb" "$EPMOE_ARM_SYSROOT.partial"
  done
  # Absolute links would leave the root.
  find "$EPMOE_ARM_SYSROOT.partial" -type l -lname '/*' | while read -r link; do
    target=$(readlink "$link")
    if [ -e "$EPMOE_ARM_SYSROOT.partial$target" ]; then
      ln -sfn "$(realpath --relative-to="$(dirname "$link")" "$EPMOE_ARM_SYSROOT.partial$target")" "$link"
    fi
  done
  [ -e "$EPMOE_ARM_SYSROOT.partial/lib" ] || ln -s usr/lib "$EPMOE_ARM_SYSROOT.partial/lib"
  mv "$EPMOE_ARM_SYSROOT.partial" "$EPMOE_ARM_SYSROOT"
  rm -rf "$work"
}
mkdir -p "$(dirname "$EPMOE_ARM_SYSROOT")"
exec 9>"$EPMOE_ARM_SYSROOT.lock"  # several checkouts share the root
flock 9
[ -e "$EPMOE_ARM_SYSROOT/usr/lib/aarch64-linux-gnu/openmpi/lib/libmpi.so" ] || make_sysroot 9>&-
flock -u 9
exec 9>&-

build=$root/build/arm64
cmake -G Ninja -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release -DEPMOE_WARNINGS_AS_ERRORS=ON \
  -DCMAKE_TOOLCHAIN_FILE="$root/cmake/aarch64-linux-gnu.cmake" >/dev/null
if [ "${1:-}" = --configure ]; then exit 0; fi
if [ $# -gt 0 ]; then
  cmake --build "$build" -j "$(nproc)"
else
  set -- -L '^arm$' -j "$(nproc)"
  cmake --build "$build" -j "$(nproc)" --target arm_tests
fi
# qemu has no process_vm_readv, which Open MPI's shared-memory transport would use.
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_smsc=^cma
log=$build/arm_tests.log
status=0
ctest --test-dir "$build" --output-on-failure --no-tests=error "$@" 2>&1 | tee "$log" || status=$?
# "98% tests passed, 2 tests failed out of 113"
sed -n 's/^[0-9]*% tests passed, \([0-9]*\) tests\{0,1\} failed out of \([0-9]*\)$/\1 \2/p' "$log" |
  while read -r bad total; do echo "$((total - bad)) passed, $bad failed"; done
exit "$status"
