#!/usr/bin/env bash
# Formats all C++ files with the one clang-format version that counts, or checks them.
#   scripts/format.sh [--check] [FILES…]      --where: only print the clang-format used; exit 3 if there is none
# The version comes from PyPI into a cache directory; a clang-format of that version on the PATH is taken as well.
set -euo pipefail
wanted=19.1.7
root=$(cd "$(dirname "$0")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/epmoe/clang-format-$wanted

is_wanted() { "$1" --version 2>/dev/null | grep -q "version $wanted"; }
find_clang_format() {
  local candidate
  for candidate in "$(command -v clang-format || true)" "$cache/bin/clang-format"; do
    if [ -n "$candidate" ] && is_wanted "$candidate"; then echo "$candidate"; return; fi
  done
  mkdir -p "$(dirname "$cache")"
  # A package directory without a venv works where python3-venv is not installed; a venv where pip is not.
  if { python3 -m venv "$cache" && "$cache/bin/pip" install -q "clang-format==$wanted"; } >/dev/null 2>&1 ||
     { rm -rf "$cache" && python3 -m pip install -q --target "$cache" "clang-format==$wanted"; } >/dev/null 2>&1; then
    if is_wanted "$cache/bin/clang-format"; then echo "$cache/bin/clang-format"; return; fi
  fi
  echo "scripts/format.sh: clang-format $wanted is neither here nor to be had from PyPI (python3 -m pip install clang-format==$wanted)" >&2
  return 3
}
clang_format=$(find_clang_format) || exit 3

mode=(-i)
case "${1:-}" in
  --where) echo "$clang_format"; exit 0 ;;
  --check) mode=(--dry-run --Werror); shift ;;
esac
cd "$root"
if [ $# -gt 0 ]; then
  exec env PYTHONPATH="$cache" "$clang_format" "${mode[@]}" "$@"
fi
git ls-files -z --cached --others --exclude-standard '*.hpp' '*.h' '*.cpp' | xargs -0 -n 40 env PYTHONPATH="$cache" "$clang_format" "${mode[@]}"
