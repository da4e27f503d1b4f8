#!/usr/bin/env bash
# ggml's MUL_MAT_ID as a column of the experts benchmark:
#   epmoe bench experts --model qwen3-30b-a3b --peer scripts/peers/ggml.sh …
# Builds ggml and ggml_driver.cpp for this CPU on first use, outside the tree, then answers epmoe. --build only builds.
# EPMOE_GGML_SOURCE=DIR takes a checkout that is there already; else the commit below is fetched from GitHub.
set -euo pipefail
commit=d99724f2b141fed9e1a9f402213506c081433465
url=https://github.com/ggml-org/ggml
here=$(cd "$(dirname "$0")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/epmoe/ggml-${commit:0:12}
say() { echo "ggml.sh: $*" >&2; }

source_dir=${EPMOE_GGML_SOURCE:-$cache/source}
if [ -n "${EPMOE_GGML_SOURCE:-}" ]; then
  [ -f "$source_dir/include/ggml.h" ] || { say "EPMOE_GGML_SOURCE=$source_dir: no include/ggml.h there, a ggml checkout wanted"; exit 3; }
  cache=$cache-$(echo "$source_dir" | cksum | cut -d' ' -f1)
elif [ ! -f "$source_dir/.complete" ]; then
  rm -rf "$source_dir"
  mkdir -p "$source_dir"
  if ! { git -C "$source_dir" init -q && timeout 300 git -C "$source_dir" fetch -q --depth 1 "$url" "$commit" &&
         git -C "$source_dir" checkout -q FETCH_HEAD; } >&2; then
    say "neither EPMOE_GGML_SOURCE is set nor can $url be fetched"
    exit 3
  fi
  touch "$source_dir/.complete"
fi

build=$cache/build
if [ ! -f "$build/.complete" ]; then
  say "building ggml (some minutes, once)"
  cmake -S "$source_dir" -B "$build" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DGGML_NATIVE=ON -DGGML_OPENMP=ON \
    -DGGML_LLAMAFILE=ON -DGGML_BUILD_TESTS=OFF -DGGML_BUILD_EXAMPLES=OFF >&2
  cmake --build "$build" -j "${EPMOE_BUILD_JOBS:-2}" >&2
  touch "$build/.complete"
fi
driver=$cache/ggml_driver
if [ ! "$driver" -nt "$here/ggml_driver.cpp" ] || [ ! "$driver" -nt "$build/.complete" ]; then
  library() { find "$build" -name "lib$1.a" | head -1; }
  "${CXX:-c++}" -std=c++20 -O2 -fopenmp -I "$source_dir/include" "$here/ggml_driver.cpp" -o "$driver.new" \
    "$(library ggml)" "$(library ggml-cpu)" "$(library ggml-base)" -ldl -lpthread -lm >&2
  mv "$driver.new" "$driver"
fi
[ "${1:-}" = --build ] && exit 0
# A thread a core, and none that spins while others are measured.
export OMP_PROC_BIND=true OMP_PLACES=cores OMP_WAIT_POLICY=passive
exec "$driver"
