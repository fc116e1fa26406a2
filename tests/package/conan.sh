#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Both recipes, that at the top and that for Conan Center, in the hands of Conan as PyPI has it, in an environment of
# its own and without remote recipes.  Ends with 77 when PyPI cannot be reached.
#
#   conan.sh REPOSITORY WORK_FOLDER
set -euo pipefail
repository=$(cd "$1" && pwd)
mkdir -p "$2"
work=$(cd "$2" && pwd)
conan_version=2.34.0
export CONAN_HOME=$work/home

conan() {
  "$work/venv/bin/conan" "$@"
}

fail() {
  echo "conan: $*" >&2
  exit 1
}

# expect_refusal WORDS ARGUMENTS...: Conan fails, and says so.
expect_refusal() {
  local words=$1
  shift
  if conan "$@" >"$work/log" 2>&1; then
    fail "not refused: conan $*"
  fi
  grep -qF -- "$words" "$work/log" || fail "no \"$words\" from conan $*: $(tail -n 3 "$work/log")"
}

if [ "$(conan --version 2>/dev/null || true)" != "Conan version $conan_version" ]; then
  rm -rf "$work/venv"
  python3 -m venv "$work/venv"
  if ! "$work/venv/bin/pip" install --retries 1 --timeout 20 "conan==$conan_version" >"$work/log" 2>&1; then
    tail -n 3 "$work/log" >&2
    if grep -qE 'Retrying|from versions: none' "$work/log"; then
      echo "conan: PyPI cannot be reached, so the recipe was not tested"
      exit 77
    fi
    exit 1
  fi
fi

rm -rf "$CONAN_HOME" "$work/test"
conan profile detect >"$work/log" 2>&1 || fail "$(cat "$work/log")"
conan remote disable '*' >"$work/log" 2>&1
cd "$repository"
conan create . --build=missing -c tools.cmake.cmaketoolchain:generator=Ninja \
  -c tools.cmake.cmake_layout:test_folder="$work/test"

# One package serves all.
reference=tessera/$(conan inspect . -f json 2>"$work/log" | sed -n 's/.*"version": "\(.*\)".*/\1/p')
for settings in '-s build_type=Debug' '-s arch=armv8' '-s compiler=clang -s compiler.version=14'; do
  # shellcheck disable=SC2086 # a list of arguments
  conan install --requires="$reference" --build=never -of "$work/test" $settings >"$work/log" 2>&1 ||
    fail "no package for $settings: $(tail -n 3 "$work/log")"
done
expect_refusal 'tessera needs gcc 12 or later, not 11' install --requires="$reference" -of "$work/test" \
  -s compiler=gcc -s compiler.version=11 -s compiler.cppstd=17
CUDACXX=/nowhere/nvcc expect_refusal 'with_cuda needs nvcc 12.8 or later, not None' install --requires="$reference" \
  -of "$work/test" -o 'tessera/*:with_cuda=True'

# The recipe for Conan Center, with the archive of a release as release.sh makes it, but of the tree as it is.
version=${reference#tessera/}
registries=$work/registries
rm -rf "$registries" "$work/tree"
cp -R cmake/registries/conan-center/recipes/tessera "$registries"
mkdir -p "$work/tree/tessera-$version"
cp -R CMakeLists.txt CMakePresets.json LICENSE NOTICE README.md CHANGELOG.md cmake include "$work/tree/tessera-$version"
tar -czf "$work/headers.tar.gz" -C "$work/tree" "tessera-$version"
sum=$(sha256sum "$work/headers.tar.gz" | cut -d ' ' -f 1)
sed -i -E "s#url: .*#url: \"file://$work/headers.tar.gz\"#; s#0{64}#$sum#" "$registries/all/conandata.yml"
conan create "$registries/all" --version "$version" --build=missing -s compiler.cppstd=20 -s build_type=Debug \
  -c tools.cmake.cmaketoolchain:generator=Ninja -c tools.cmake.cmake_layout:test_folder="$work/center_test"
package=$(conan cache path "$reference:da39a3ee5e6b4b0d3255bfef95601890afd80709" 2>"$work/log")  # the id of no settings
diff -r include "$package/include" || fail "the package for Conan Center has other headers"
[ -s "$package/licenses/LICENSE" ] || fail "the package for Conan Center has no licence"
found=$(find "$package" -iname '*config*.cmake' -o -iname '*targets.cmake' -o -name '*.pc')
[ -z "$found" ] || fail "Conan makes these files, so Conan Center takes none: $found"
for refused in 'lower than the required C++ standard (20) -s compiler.cppstd=17' 'not for Windows -s os=Windows'; do
  # shellcheck disable=SC2086 # a list of arguments
  expect_refusal "${refused%% -s*}" install --requires="$reference" -of "$work/test" -s compiler.cppstd=20 \
    -s ${refused##* -s }
done
echo "conan: each recipe makes one package, which works"
