#!/usr/bin/env bash
# Proves that scripts/check_layers.sh finds what it is for: a copy of the sources passes, and fails with the right
# place and reason once a violation is put in.
set -euo pipefail
root=$1
check=$root/scripts/check_layers.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$root/include" "$root/src" "$root/apps" "$work"
cd "$work"
mkdir -p src/{experts/onednn,balance,comm,route,runtime,prepare_finalize,observe} include/epmoe/{balance,comm} apps/epmoe
failures=0
cases=0

complain() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# refuses FILE LINE REASON : with LINE put first into FILE, the check names that line and the reason, and nothing else.
refuses() {
  local file=$1 line=$2 reason=$3 output status=0
  cases=$((cases + 1))
  cp "$file" saved
  { printf '%s\n' "$line"; cat saved; } >"$file"
  output=$("$check" "$work") || status=$?
  cp saved "$file"
  [ "$status" -eq 1 ] || complain "exit $status instead of 1 for '$line' in $file"
  grep -qF "$file:1: " <<<"$output" && grep -qF -- "$reason" <<<"$output" || complain "'$line' in $file gave: $output"
  [ "$(tail -n 1 <<<"$output" | grep -c ' 1 violations$')" -eq 1 ] || complain "not one violation for '$line' in $file: $output"
}

# accepts FILE LINE : the same, and the check must pass.
accepts() {
  local file=$1 line=$2 output
  cases=$((cases + 1))
  cp "$file" saved
  { printf '%s\n' "$line"; cat saved; } >"$file"
  output=$("$check" "$work") || complain "'$line' in $file was refused: $output"
  cp saved "$file"
}

"$check" "$work" >/dev/null || complain "the unchanged copy was refused"
touch src/experts/onednn/seed.cpp src/balance/seed.cpp include/epmoe/balance/seed.hpp src/comm/seed.cpp src/route/seed.cpp \
  src/runtime/seed.cpp src/prepare_finalize/seed.cpp src/observe/seed.cpp include/epmoe/mpi.hpp \
  include/epmoe/comm/seed.hpp apps/epmoe/seed.cpp

# Includes against the arrows.
refuses src/core/error.cpp '#include "epmoe/quantize/int8.hpp"' 'core must not include quantize'
refuses include/epmoe/core/dtype.hpp '#include "epmoe/comm/communicator.hpp"' 'core must not include comm'
refuses src/quantize/int8.cpp '#include "epmoe/route/router.hpp"' 'quantize must not include route'
refuses src/comm/seed.cpp '#include "epmoe/quantize/int8.hpp"' 'comm must not include quantize'
refuses src/route/seed.cpp '#include "epmoe/comm/communicator.hpp"' 'route must not include comm'
refuses src/route/seed.cpp '#  include <epmoe/experts/experts.hpp>' 'route must not include experts'
refuses src/experts/onednn/seed.cpp '#include "epmoe/runtime/modular_kernel.hpp"' 'experts must not include runtime'
refuses src/prepare_finalize/seed.cpp '#include "epmoe/experts/experts.hpp"' 'prepare_finalize must not include experts'
refuses src/prepare_finalize/seed.cpp '#include "route/select.hpp"' 'prepare_finalize must not include route'
refuses src/balance/seed.cpp '#include "epmoe/experts/expert_slots.hpp"' 'balance must not include experts'
refuses src/observe/seed.cpp '#include "epmoe/comm/communicator.hpp"' 'observe must not include comm'
refuses src/runtime/seed.cpp '#include "epmoe/apps/run.hpp"' 'runtime must not include apps'
refuses src/core/error.cpp '#include "epmoe/epmoe.hpp"' 'core must not include "epmoe/epmoe.hpp"'
refuses src/core/error.cpp '#include "epmoe/gadgets/gadget.hpp"' 'folder gadgets is not in the table'
accepts src/runtime/seed.cpp '#include "epmoe/experts/experts.hpp"'
accepts src/comm/seed.cpp '#include "epmoe/mpi.hpp"'
accepts src/core/error.cpp '#include <vector>'

# Headers that one folder may know.
refuses src/runtime/seed.cpp '#include <mpi.h>' '<mpi.h> belongs to src/comm'
refuses apps/epmoe/seed.cpp '#include <mpi.h>' '<mpi.h> belongs to src/comm'
refuses include/epmoe/comm/seed.hpp '#include <mpi.h>' 'keep it in src/comm'
accepts src/comm/seed.cpp '#include <mpi.h>'
accepts include/epmoe/mpi.hpp '#include <mpi.h>'
refuses src/runtime/seed.cpp '#include <dnnl.hpp>' 'belongs to src/experts/onednn'
refuses src/runtime/seed.cpp '#include <oneapi/dnnl/dnnl.hpp>' 'belongs to src/experts/onednn'
accepts src/experts/onednn/seed.cpp '#include <dnnl.hpp>'
for header in spdlog/spdlog.h fmt/format.h nlohmann/json.hpp CLI/CLI.hpp hwloc.h omp.h; do
  refuses include/epmoe/core/dtype.hpp "#include <$header>" "<$header> in a public header"
  accepts src/core/error.cpp "#include <$header>"
done
refuses include/epmoe/core/dtype.hpp '#include "core/name_table.hpp"' 'private to src/'
refuses apps/epmoe/seed.cpp '#include "core/name_table.hpp"' 'private to src/'

# Reading the environment, printing, ending the process.
refuses src/core/error.cpp 'const char* a = std::getenv("HOME");' 'environment'
refuses src/core/error.cpp 'int a = setenv("A", "B", 1);' 'environment'
refuses src/core/error.cpp 'void f() { printf("x"); }' 'does not print'
refuses src/core/error.cpp 'void f() { std::fprintf(stderr, "x"); }' 'does not print'
refuses src/core/error.cpp 'void f() { std::cout << 1; }' 'does not print'
refuses src/core/error.cpp 'void f() { fmt::print("x"); }' 'does not print'
refuses src/core/error.cpp '#include <iostream>' 'does not print'
refuses src/core/error.cpp 'void f() { std::exit(1); }' 'end the process'
refuses src/core/error.cpp 'void f() { ::_exit(1); }' 'end the process'
refuses include/epmoe/core/dtype.hpp 'inline void f() { std::abort(); }' 'end the process'
refuses src/comm/seed.cpp 'void f() { MPI_Abort(0, 1); }' 'end the process'
accepts src/core/error.cpp '// printf("x"), exit(1) and getenv("HOME") in a comment /*'
accepts src/core/error.cpp '/* std::abort(); */ const char* text = "exit(1) // ";'
accepts src/core/error.cpp 'void f(Call& call) { call.abort(); fmt::format("{}", 1); snprintf(a, 1, "x"); }'
accepts apps/epmoe/seed.cpp 'void f() { std::printf("x"); std::exit(1); }'

# Nothing to check is not a pass.
status=0
"$check" "$(mktemp -d -p "$work")" 2>/dev/null || status=$?
[ "$status" -eq 2 ] || complain "exit $status instead of 2 for an empty directory"

echo "$cases cases, $failures failures"
[ "$failures" -eq 0 ]
