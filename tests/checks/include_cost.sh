#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# What including each host header costs, in milliseconds of user time, against a budget for its folder.  A header
# fails at twice its budget.  Budgets are for a machine that parses the ruler in ruler_budget; a slower one gets more.
#
#   include_cost.sh <folder that holds tessera/> <C++ compiler>
set -u
include=$1
compiler=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LC_ALL=C TIMEFORMAT=%U

ruler_budget=250
budget_of() {
  case $1 in
    tessera/core/* | tessera/concepts/* | tessera/config.hpp | tessera/version.hpp) echo 300 ;;
    tessera/quantize/* | tessera/reduce/* | tessera/entropy/* | tessera/merge/*) echo 300 ;;
    tessera/project/* | tessera/select/* | tessera/view/*) echo 300 ;;
    tessera/tile/* | tessera/program/* | tessera/tuning/*) echo 500 ;;
    tessera/exec/*) echo 1000 ;;
    *) echo 1500 ;;
  esac
}

# Prints the user time of parsing $1 in milliseconds; fails when it does not compile.
cost_of() {
  local seconds
  if ! seconds=$({ time "$compiler" -std=c++20 -fsyntax-only -I "$include" -x c++ "$1" 2>"$work/errors"; } 2>&1); then
    cat "$work/errors" >&2
    return 1
  fi
  echo $((10#${seconds/./}))
}

printf '#include <algorithm>\n#include <string>\n#include <vector>\n' >"$work/ruler.cpp"
cost_of "$work/ruler.cpp" >/dev/null || exit 1
ruler=$(cost_of "$work/ruler.cpp")
scale=$((ruler > ruler_budget ? ruler * 100 / ruler_budget : 100))
echo "ruler: $ruler ms (budget $ruler_budget), so budgets count for $scale%"

count=0
failed=0
while IFS= read -r header; do
  count=$((count + 1))
  printf '#include <%s>\n' "$header" >"$work/one.cpp"
  limit=$((2 * $(budget_of "$header") * scale / 100))
  # A busy machine inflates a single measurement: only a header that is over three times in a row fails.
  for attempt in 1 2 3; do
    if ! cost=$(cost_of "$work/one.cpp"); then
      cost=-1
      break
    fi
    [ "$cost" -le "$limit" ] && break
  done
  if [ "$cost" -lt 0 ]; then
    echo "$header does not compile"
    failed=$((failed + 1))
  elif [ "$cost" -gt "$limit" ]; then
    echo "$header: $cost ms, more than twice its budget ($limit ms)"
    failed=$((failed + 1))
  else
    echo "$header: $cost ms of $limit ms"
  fi
done < <(cd "$include" && find tessera -name '*.hpp' | LC_ALL=C sort)

echo "$count headers measured, $failed over twice their budget or broken"
[ "$count" -gt 0 ] && [ "$failed" -eq 0 ]
