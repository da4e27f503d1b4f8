#!/usr/bin/env bash
# Builds tests/consumer/project against epmoe in one of three ways and runs it on 1 and 2 ranks.
#   consumer.sh static|shared|subdirectory SOURCE_DIR BUILD_DIR WORK_DIR MPIEXEC [CMake arguments]
# static installs BUILD_DIR as it is; shared configures, builds and installs the library once more as a shared one.
set -euo pipefail
way=$1 source=$2 build=$3 work=$4 mpiexec=$5
shift 5
rm -rf "$work/prefix" "$work/project"
mkdir -p "$work"

case "$way" in
  static)
    cmake --install "$build" --prefix "$work/prefix"
    set -- "$@" -DCMAKE_PREFIX_PATH="$work/prefix" ;;
  shared)
    cmake -S "$source" -B "$work/library" -G Ninja "$@" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON -DEPMOE_BUILD_TESTS=OFF \
      -DEPMOE_BUILD_APPS=OFF
    cmake --build "$work/library"
    cmake --install "$work/library" --prefix "$work/prefix"
    ls "$work"/prefix/lib*/libepmoe.so "$work"/prefix/lib*/*/libepmoe.so 2>/dev/null | grep -q . || { echo "no libepmoe.so installed"; exit 1; }
    set -- "$@" -DCMAKE_PREFIX_PATH="$work/prefix" ;;
  subdirectory)
    set -- "$@" -DEPMOE_SOURCE_DIR="$source" ;;
  *) echo "static, shared or subdirectory wanted, found $way" >&2; exit 2 ;;
esac

cmake -S "$source/tests/consumer/project" -B "$work/project" -G Ninja -DCMAKE_BUILD_TYPE=Release "$@"
cmake --build "$work/project"
for ranks in 1 2; do
  timeout -k 5 60 "$mpiexec" -n "$ranks" "$work/project/consumer" "$ranks"
done
