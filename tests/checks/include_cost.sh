#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# What including each host header outside of detail/, and with nvcc's pass for the device each that brings programs for
# CUDA, costs in milliseconds of user time, against a budget for its folder.  A header fails at twice its budget.
#
#   include_cost.sh read <compiler and arguments>         reads a source and keeps the time beside the object
#                                                         (an empty one: nothing is written) or the PTX
#   include_cost.sh check <folder that holds tessera/> <folder of sources> <folder of their objects>
#                         <C++ compiler> [nvcc]
#
# With nvcc it checks the executor for CUDA and the algorithms that end with a .cuh, else all host headers.
#
# Sources hold chains of headers (cmake/TesseraCheckHeaders.cmake), each of which takes no longer than its source. Only
# headers whose source took too long for them are measured alone: it may be another header's time, or the machine was
# busy.
# Budgets are for a machine that parses the ruler in ruler_budget; a slower one gets more.
set -u
export LC_ALL=C TIMEFORMAT=%U
ruler_budget=250

# Sets `budget`: a process for each header would take longer than all else.
find_budget() {
  [ -z "$nvcc" ] || { budget=2000 && return; }
  case $1 in
    tessera/core/* | tessera/concepts/* | tessera/config.hpp | tessera/version.hpp) budget=300 ;;
    tessera/quantize/* | tessera/reduce/* | tessera/entropy/* | tessera/merge/*) budget=300 ;;
    tessera/project/* | tessera/select/* | tessera/view/*) budget=300 ;;
    tessera/tile/* | tessera/program/* | tessera/tuning/*) budget=500 ;;
    tessera/exec/*) budget=1000 ;;
    *) budget=1500 ;;
  esac
}

milliseconds() {
  echo $((10#${1/./}))
}

read_source() {
  local argument before='' object='' seconds status=0
  for argument in "$@"; do
    [ "$before" != -o ] || object=$argument
    before=$argument
  done
  [ "${object##*.}" = ptx ] || set -- "$@" -fsyntax-only
  exec 3>&1 4>&2
  seconds=$({ time "$@" 1>&3 2>&4; } 2>&1) || status=$?
  [ "$status" -ne 0 ] || milliseconds "$seconds" >"$object.cost"
  [ "$status" -ne 0 ] || [ "${object##*.}" = ptx ] || : >"$object"
  return "$status"
}

# Prints the user time of reading $1; fails when it does not compile.
cost_of() {
  local seconds command=("$compiler" -fsyntax-only -x c++)
  [ "${1##*.}" != cu ] || command=("$nvcc" -arch=sm_90a -ptx -o "$work/ptx")
  if ! seconds=$({ time "${command[@]}" -std=c++20 -I "$include" "$1" 2>"$work/errors"; } 2>&1); then
    cat "$work/errors" >&2
    return 1
  fi
  milliseconds "$seconds"
}

# How many times slower than the machine of the budgets this one is, in percent.
measured_scale() {
  local ruler
  printf '#include <algorithm>\n#include <string>\n#include <vector>\n' >"$work/ruler.cpp"
  cost_of "$work/ruler.cpp" >/dev/null && ruler=$(cost_of "$work/ruler.cpp") || return 1
  echo $((ruler > ruler_budget ? ruler * 100 / ruler_budget : 100))
}

# Whether header $1, whose source cost $2, is within its limit.  A busy machine inflates a single measurement: only a
# header that is over three times more in a row fails.
is_within_limit() {
  local header=$1 cost=$2 budget limit text=$work/one.$source attempt
  find_budget "$header"
  limit=$((2 * budget))
  printf '#include <%s>\n' "$header" >"$text"
  if [ "$cost" -gt "$limit" ]; then
    [ -n "$scale" ] || scale=$(measured_scale) || return 1
    limit=$((limit * scale / 100))
  fi
  for attempt in 1 2 3; do
    [ "$cost" -gt "$limit" ] || break
    cost=$(cost_of "$text") || return 1
  done
  echo "$header: $cost ms of $limit ms"
  [ "$cost" -le "$limit" ] || { echo "$header: more than twice its budget" && return 1; }
}

headers() {
  if [ -n "$nvcc" ]; then
    echo tessera/exec/cuda.cuh
    grep -lE '^#include <tessera/.*[.]cuh>$' tessera/algorithm/*/*.hpp
  else
    find tessera -name '*.hpp' -not -path '*/detail/*'
  fi
}

check() {
  local include=$1 sources=$2 objects=$3 compiler=$4 nvcc=${5:-}
  local scale='' count=0 failed=0 source=cpp suffix=cpp.o file stem header cost
  local -A costs=()
  [ -z "$nvcc" ] || source=cu suffix=ptx
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  for file in "$sources"/*."$source"; do
    stem=${file##*/}
    read -r cost <"$objects/${stem%."$source"}.$suffix.cost" || continue
    while IFS='<>' read -r _ header _; do costs[$header]=$cost; done <"$file"
  done
  while IFS= read -r header; do
    count=$((count + 1))
    cost=${costs[$header]:-}
    if [ -z "$cost" ]; then
      echo "$header was not compiled"
      failed=$((failed + 1))
    elif ! is_within_limit "$header" "$cost"; then
      failed=$((failed + 1))
    fi
  done < <(cd "$include" && headers | sort)
  echo "$count headers, $failed of them over twice their budget or not compiled"
  [ "$count" -gt 0 ] && [ "$failed" -eq 0 ]
}

case $1 in
  read) shift && read_source "$@" ;;
  check) shift && check "$@" ;;
  *) echo "include_cost.sh: $1 is neither read nor check" >&2 && exit 2 ;;
esac
