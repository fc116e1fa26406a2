#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Makes sure that the tools for building and testing are here.  As root on Debian or Ubuntu it installs what is missing
# from the distribution's packages; elsewhere it says what is missing.  When nothing is missing it changes nothing.
#
#   sh cmake/setup.sh       compiler, CMake, Ninja, make (the preset package names no generator, and CMake takes that
#                           one then), pkg-config, Catch2, Google Benchmark, JSON: every preset but clang, sanitize
#                           and fuzz
#   sh cmake/setup.sh ci    clang with its sanitizers and libFuzzer, clang-tidy, clang-format, and Python for Conan
#   sh cmake/setup.sh docs  Doxygen as well: the preset docs
set -eu

includes() {
  for header in "$@"; do
    if printf '#include <%s>\n' "$header" | c++ -x c++ -E - >/dev/null 2>&1; then
      return 0
    fi
  done
  return 1
}

cmake_is_recent() {
  version=$(cmake --version 2>/dev/null | sed -n 's/^cmake version \([0-9]*\)\.\([0-9]*\).*/\1 \2/p')
  [ -n "$version" ] || return 1
  major=${version% *}
  minor=${version#* }
  [ "$major" -gt 3 ] || { [ "$major" -eq 3 ] && [ "$minor" -ge 25 ]; }
}

clang_has_fuzzer() {
  folder=$(mktemp -d)
  echo 'extern "C" int LLVMFuzzerTestOneInput(char const*, unsigned long) { return 0; }' >"$folder/probe.cpp"
  found=0
  clang++ -fsanitize=fuzzer,address,undefined "$folder/probe.cpp" -o "$folder/probe" >/dev/null 2>&1 || found=1
  rm -rf "$folder"
  return $found
}

# The Debian package with the sanitizers and libFuzzer of the clang that is here, or else of the one that the package
# clang is. Its name has clang's version.
clang_runtime() {
  version=$(clang++ -dumpversion 2>/dev/null | sed 's/[^0-9].*//') || version=
  if [ -z "$version" ]; then
    version=$(apt-cache depends clang 2>/dev/null | sed -n 's/^ *Depends: clang-\([0-9][0-9]*\)$/\1/p' | head -n 1)
  fi
  for package in "libclang-rt-$version-dev" "libclang-common-$version-dev"; do
    if apt-cache show "$package" >/dev/null 2>&1; then
      echo "$package"
      return
    fi
  done
  echo "libclang-rt-${version:+$version-}dev"
}

# The Debian packages for what is not here, a blank before each.
missing() {
  list=
  command -v g++ >/dev/null 2>&1 && command -v c++ >/dev/null 2>&1 || list="$list g++"
  cmake_is_recent || list="$list cmake"
  command -v ninja >/dev/null 2>&1 || list="$list ninja-build"
  command -v make >/dev/null 2>&1 || list="$list make"
  command -v pkg-config >/dev/null 2>&1 || list="$list pkgconf"
  includes catch2/catch.hpp catch2/catch_test_macros.hpp || list="$list catch2"
  includes benchmark/benchmark.h || list="$list libbenchmark-dev"
  includes nlohmann/json.hpp || list="$list nlohmann-json3-dev"
  if [ "$1" = ci ]; then
    command -v clang++ >/dev/null 2>&1 || list="$list clang"
    command -v clang-tidy >/dev/null 2>&1 || list="$list clang-tidy"
    command -v clang-format >/dev/null 2>&1 || list="$list clang-format"
    clang_has_fuzzer || list="$list $(clang_runtime)"
    python3 -c 'import ensurepip, venv' >/dev/null 2>&1 || list="$list python3-venv"
  fi
  if [ "$1" = docs ]; then
    command -v doxygen >/dev/null 2>&1 || list="$list doxygen"
  fi
  echo "$list"
}

wanted=${1:-build}
needed=$(missing "$wanted")
if [ -z "$needed" ]; then
  exit 0
fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
  echo "setup: missing (by the names of the Debian packages):$needed" >&2
  echo "setup: install them, or run this as root on Debian or Ubuntu" >&2
  exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
needed=$(missing "$wanted")  # again, since the name of a package may depend on what there is
echo "setup: installing$needed"
# shellcheck disable=SC2086 # a list of packages
apt-get -qq install -y --no-install-recommends $needed >/dev/null
needed=$(missing "$wanted")
if [ -n "$needed" ]; then
  echo "setup: still missing, or too old (CMake must be 3.25 or later):$needed" >&2
  exit 1
fi
