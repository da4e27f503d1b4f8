#!/usr/bin/env bash
# Builds tests/consumer/project against epmoe in one of three ways and runs it on 1 and 2 ranks.
#   consumer.sh static|shared|subdirectory SOURCE_DIR BUILD_DIR MPIEXEC [CMake arguments]
# static installs BUILD_DIR as it is; shared configures, builds and installs the library once more as a shared one.
# The builds lie beside BUILD_DIR: with the same number of folders above them, ccache finds the library's objects.
set -euo pipefail
way=$1 source=$2 build=$3 mpiexec=$4
shift 4
work=$build-consumer-$way
rm -rf "$work/prefix"
mkdir -p "$work"

project=$work/project
case "$way" in
  static)
    cmake --install "$build" --prefix "$work/prefix" >/dev/null
    set -- "$@" -DCMAKE_PREFIX_PATH="$work/prefix" ;;
  shared)
    cmake -S "$source" -B "$work" -G Ninja "$@" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON \
      -DEPMOE_BUILD_TESTS=OFF -DEPMOE_BUILD_APPS=OFF
    cmake --build "$work"
    cmake --install "$work" --prefix "$work/prefix" >/dev/null
    find "$work/prefix" -name libepmoe.so | grep -q . || { echo "no libepmoe.so installed" >&2; exit 1; }
    set -- "$@" -DCMAKE_PREFIX_PATH="$work/prefix" ;;
  subdirectory)
    project=$work
    set -- "$@" -DEPMOE_SOURCE_DIR="$source" ;;
  *) echo "static, shared or subdirectory wanted, found $way" >&2; exit 2 ;;
esac

cmake -S "$source/tests/consumer/project" -B "$project" -G Ninja -DCMAKE_BUILD_TYPE=Release "$@"
cmake --build "$project"
for ranks in 1 2; do
  timeout -k 5 60 "$mpiexec" -n "$ranks" "$project/consumer" "$ranks"
done
