#!/usr/bin/env bash
# Installs what epmoe needs to build, on Debian 12 and 13 and on Ubuntu: only what is missing, so it works offline
# when everything is there. Elsewhere it prints what to install.
#   scripts/setup.sh [--mpich] [--tsan]      for scripts/test.sh. --mpich: also MPICH, the second MPI;
#                                            --tsan: also clang with ThreadSanitizer and an OpenMP that it understands
set -euo pipefail

packages=(g++ cmake ninja-build ccache pkg-config python3 openmpi-bin libopenmpi-dev libhwloc-dev libdnnl-dev
          libfmt-dev libspdlog-dev libcli11-dev nlohmann-json3-dev libgtest-dev libgmock-dev)
for argument in "$@"; do
  case "$argument" in
    --mpich) packages+=(mpich libmpich-dev) ;;
    --tsan) packages+=(clang libclang-rt-dev libomp-dev) ;;
    *) echo "usage: scripts/setup.sh [--mpich] [--tsan]" >&2; exit 2 ;;
  esac
done

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  cat >&2 <<TEXT
scripts/setup.sh installs packages on Debian and Ubuntu only. Elsewhere, please install:
  a C++20 compiler (g++ 12 or clang 14 or newer), CMake 3.25 or newer, Ninja, pkg-config, Python 3, ccache (optional);
  an MPI (Open MPI 4.1 or newer, or MPICH 4), hwloc, oneDNN 2.6 or newer, fmt, spdlog, CLI11, nlohmann-json, GoogleTest
with their headers, then run: cmake --preset release && cmake --build --preset release
TEXT
  exit 1
fi

installed() { [ "$(dpkg-query -W -f='${db:Status-Abbrev}' "$1" 2>/dev/null | cut -c1-2)" = ii ]; }
# Tools that came from elsewhere (say CMake from PyPI) count as there.
present() {
  case "$1" in
    g++ | cmake | ccache | python3 | pkg-config) command -v "$1" >/dev/null ;;
    ninja-build) command -v ninja >/dev/null ;;
    *) installed "$1" ;;
  esac
}
missing=()
for package in "${packages[@]}"; do
  present "$package" || missing+=("$package")
done

as_root=()
need_root() {
  [ "$(id -u)" -eq 0 ] && return
  if command -v sudo >/dev/null; then as_root=(sudo); return; fi
  echo "scripts/setup.sh: these packages are missing, and there is neither root nor sudo: ${missing[*]}" >&2
  echo "please have them installed: apt-get install ${missing[*]}" >&2
  exit 1
}
apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 "$@"; }

if [ ${#missing[@]} -gt 0 ]; then
  need_root
  echo "installing: ${missing[*]}"
  apt update
  apt install -y --no-install-recommends "${missing[@]}" >/dev/null
fi
# oneDNN 2.x of Debian 12 is built with OpenCL, and its CMake package wants the headers without depending on them.
if dpkg-query -W -f='${Version}' libdnnl-dev 2>/dev/null | grep -q '^2\.' && ! installed ocl-icd-opencl-dev; then
  missing=(ocl-icd-opencl-dev)
  need_root
  echo "installing: ocl-icd-opencl-dev"
  apt update
  apt install -y --no-install-recommends ocl-icd-opencl-dev >/dev/null
fi

version=$(cmake --version | sed -n 's/^cmake version \([0-9.]*\).*/\1/p')
if [ "$(printf '%s\n3.25\n' "$version" | sort -V | head -n 1)" != 3.25 ]; then
  echo "scripts/setup.sh: CMake $version found, 3.25 or newer wanted (python3 -m pip install cmake has a newer one)" >&2
  exit 1
fi
