#!/usr/bin/env bash
# Refuses includes that go the wrong way between folders, headers that only one folder may know, and library code that
# reads the environment, prints or ends the process.
#   scripts/check_layers.sh [ROOT]     exit 0: clean; 1: violations, one "file:line: why" each; 2: nothing to check
set -euo pipefail
cd "${1:-$(dirname "$0")/..}"

mapfile -t files < <(find include src apps -type f \( -name '*.hpp' -o -name '*.cpp' -o -name '*.h' -o -name '*.inc' \) 2>/dev/null | LC_ALL=C sort)
if [ "${#files[@]}" -eq 0 ]; then
  echo "check_layers: no sources under $PWD" >&2
  exit 2
fi

LC_ALL=C awk '
BEGIN {
  # folder: the folders it may include from
  layers["core"] = "core"
  layers["quantize"] = "core quantize"
  layers["observe"] = "core observe"
  layers["comm"] = "core comm"
  layers["route"] = "core quantize route"
  layers["experts"] = "core quantize experts"
  layers["checkpoint"] = "core quantize checkpoint"
  layers["prepare_finalize"] = "core quantize comm prepare_finalize"
  layers["balance"] = "core quantize comm balance"
  all = "core quantize observe comm route experts checkpoint prepare_finalize balance runtime"
  layers["runtime"] = all
  layers["capi"] = all " capi top"
  layers["top"] = all " top"    # umbrella headers and <epmoe/mpi.hpp>
  layers["apps"] = all " top"
  for (folder in layers) known[folder] = 1
  mpi_free["include/epmoe/mpi.hpp"] = mpi_free["include/epmoe_mpi.h"] = 1
  # Of the headers beside the folders, what the four stages may not need: comm defines what mpi.hpp declares.
  opt_in["epmoe/mpi.hpp"] = opt_in["epmoe_mpi.h"] = 1
}

function fail(why) { printf "%s:%d: %s\n", FILENAME, FNR, why; ++failures }
function may(from, to) { return index(" " layers[from] " ", " " to " ") > 0 }

function folder_of(path,   part, n) {
  n = split(path, part, "/")
  if (part[1] == "apps") return "apps"
  if (part[1] == "include") return part[2] == "epmoe" && n > 3 ? part[3] : "top"
  return n > 2 ? part[2] : "top"
}

function check_include(line,   target, quoted, part, n, to, internal) {
  quoted = line ~ /include[ \t]*"/
  target = line
  sub(/^[ \t]*#[ \t]*include[ \t]*["<]/, "", target)
  sub(/[">].*$/, "", target)

  if (target == "mpi.h" && from != "comm" && !(FILENAME in mpi_free))
    fail("<mpi.h> belongs to src/comm and the opt-in headers epmoe/mpi.hpp and epmoe_mpi.h")
  if (target == "mpi.h" && from == "comm" && is_public) fail("<mpi.h> in a public header of comm: keep it in src/comm")
  if (target ~ /(^|\/)dnnl[^\/]*$/ && FILENAME !~ /^src\/experts\/onednn\//) fail("<" target "> belongs to src/experts/onednn")
  if (target == "iostream" && from != "apps") fail("<iostream>: the library does not print")

  n = split(target, part, "/")
  internal = n > 1 && part[1] != "epmoe" && (part[1] in known)
  if (is_public && !quoted && !internal && target !~ /^epmoe/) {
    if (target ~ /[.\/]/ && target != "mpi.h" && !(FILENAME ~ /\.h$/ && target ~ /^std(int|def|bool)\.h$/))
      fail("<" target "> in a public header: they include the standard library and our own headers only")
    return
  }
  if (part[1] == "epmoe" && n > 2) to = part[2]
  else if (internal) to = part[1]
  else if (part[1] == "epmoe" || target ~ /^epmoe(_mpi)?\.h$/) to = "top"
  else if (is_public && quoted) { fail("\"" target "\" in a public header is not one of ours"); return }
  else return

  if (internal && (is_public || from == "apps")) fail("\"" target "\" is private to src/: include an epmoe/ header")
  else if (!(to in known)) fail("\"" target "\": folder " to " is not in the table of layers")
  else if (to == "top" && from == "comm" && (target in opt_in)) return
  else if (!may(from, to)) fail(from " must not include " (to == "top" ? "\"" target "\"" : to) ": it may include from " layers[from])
}

FNR == 1 {
  in_comment = 0
  ++files
  from = folder_of(FILENAME)
  is_public = FILENAME ~ /^include\//
  if (!(from in known)) { fail("folder " from " is not in the table of layers"); from = "top" }
}

{
  line = $0
  if (in_comment) {
    if (!match(line, /\*\//)) next
    line = substr(line, RSTART + 2)
    in_comment = 0
  }
  if (line ~ /^[ \t]*#[ \t]*include/) { check_include(line); next }
  # Without literals and comments, the rest is code.
  gsub(/\047(\\.|[^\\\047])\047/, "0", line)
  gsub(/"([^"\\]|\\.)*"/, "\"\"", line)
  sub(/\/\/.*$/, "", line)
  while (match(line, /\/\*/)) {
    rest = substr(line, RSTART + 2)
    line = substr(line, 1, RSTART - 1)
    if (match(rest, /\*\//)) line = line " " substr(rest, RSTART + 2)
    else in_comment = 1
  }
  if (from == "apps") next
  gsub(/std::/, "", line)
  if (line ~ /(^|[^A-Za-z0-9_:.>])(::)?(secure_)?(getenv|setenv|putenv|unsetenv)[ \t]*\(/) fail("the library does not read or change the environment")
  if (line ~ /(^|[^A-Za-z0-9_:.>])(::)?v?f?printf[ \t]*\(/ || line ~ /(^|[^A-Za-z0-9_:.>])(::)?(f?puts|f?putc|putchar|perror)[ \t]*\(/ ||
      line ~ /fmt::print(ln)?[ \t]*\(/ || line ~ /(^|[^A-Za-z0-9_])(cout|cerr|clog)[ \t]*(<<|\.)/)
    fail("the library does not print: use ExecutionContext::log")
  if (line ~ /(^|[^A-Za-z0-9_:.>])(::)?(exit|_exit|_Exit|quick_exit|abort|terminate|MPI_Abort)[ \t]*\(/) fail("the library does not end the process: throw an Error")
}

END {
  printf "check_layers: %d files, %d violations\n", files, failures + 0
  exit (failures > 0)
}
' "${files[@]}"
