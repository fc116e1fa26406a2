#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Makes a release of the commit that is checked out: archives, their checksums, a list of what is in them (SBOM), the
# registries' recipes with these checksums, a signature, and the tag. What it makes, but for signatures, depends on the
# commit alone: everyone who runs it gets the same bytes. It sends nothing anywhere, and says at the end what is left.
#
#   release.sh --repository OWNER/NAME (--gpg KEY | --ssh KEY_FILE) [--output FOLDER]
#   release.sh --repository OWNER/NAME --dry-run [--output FOLDER]     without signature and tag, of any commit
#
#   --repository  where the release will be on GitHub; by default what the remote origin says
#   --gpg         a key of gpg's, by name or fingerprint; --ssh: a private key's file, or a public one's with an agent
#   --output      a new or empty folder, by default build/release/<version>
set -euo pipefail
export LC_ALL=C
unset GZIP
started=$PWD
cd "$(dirname "$0")/.."

refuse() {
  echo "release: $*" >&2
  exit 1
}

repository='' key='' signs_by='' output='' is_dry=0
while [ $# -gt 0 ]; do
  case $1 in
    --dry-run) is_dry=1 && shift && continue ;;
    --repository | --gpg | --ssh | --output) [ $# -ge 2 ] || refuse "$1 needs a value" ;;
    *) refuse "there is no option $1" ;;
  esac
  case $1 in
    --repository) repository=$2 ;;
    --output) output=$(cd "$started" && realpath -m "$2") ;;
    *) [ -z "$key" ] || refuse "one key signs a release, not two"
      signs_by=${1#--} key=$2
      [ "$signs_by" = gpg ] || key=$(cd "$started" && realpath "$2") ;;
  esac
  shift 2
done
if [ -z "$repository" ]; then
  repository=$(git remote get-url origin 2>/dev/null | sed -nE 's#\.git$##; s#^.*github\.com[:/](.*)$#\1#p') || true
fi
[[ $repository =~ ^[A-Za-z0-9-]+/[A-Za-z0-9._-]+$ ]] ||
  refuse "say --repository OWNER/NAME: \"$repository\" is none, and the remote origin is not on GitHub"
[ $is_dry -eq 1 ] || [ -n "$key" ] || refuse "a release is signed: say --gpg KEY or --ssh KEY_FILE, or --dry-run"
[ $is_dry -eq 0 ] || [ -z "$key" ] || refuse "a dry run signs nothing, so it takes no key"

# What must hold of the tree. Only a dry run may have a version without a date.
version=$(sed -nE 's/^#define TESSERA_VERSION_STRING "([0-9]+\.[0-9]+\.[0-9]+)"$/\1/p' include/tessera/version.hpp)
[ -n "$version" ] || refuse "include/tessera/version.hpp names no version of three numbers"
name=tessera-$version
tag=v$version
dirt=$(git status --porcelain)
[ -z "$dirt" ] || refuse "the tree has changes that are not committed:"$'\n'"$dirt"
! git rev-parse -q --verify "refs/tags/$tag" >/dev/null || refuse "the tag $tag exists already"
section=$(grep -m 1 '^## ' CHANGELOG.md || true)
case $section in
  "## $version, "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]) ;;
  "## $version, not released yet")
    [ $is_dry -eq 1 ] || refuse "CHANGELOG.md says \"$section\": write the day of the release there" ;;
  *) refuse "CHANGELOG.md begins with \"$section\", not with \"## $version, \" and a day" ;;
esac
said=$(cmake -D "INCLUDE=$PWD" -P tests/checks/versions.cmake 2>&1) || refuse "the versions differ:"$'\n'"$said"

output=${output:-build/release/$version}
[ -z "$(ls -A "$output" 2>/dev/null || true)" ] || refuse "$output is not empty"
mkdir -p "$output"
output=$(cd "$output" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
commit=$(git rev-parse HEAD)

# archive COMMIT PREFIX [PATH...]: on the standard output. Files are in the order of their names, of the commit's time
# and of root; nothing that a user has configured changes them. The whole tree gives the bytes of GitHub's own archive
# of the tag, which begins with the repository's name, as long as that is made in the same way.
archive() {
  GIT_ATTR_NOSYSTEM=1 git -c core.autocrlf=false -c core.eol=lf -c core.attributesFile=/dev/null -c tar.umask=0002 \
    archive --format=tar --prefix="$2/" "$1" "${@:3}" | gzip -n -6
}

sum_of() {
  "$1sum" "$2" | cut -d ' ' -f 1
}

# The library alone: what is installed, and CMake's files that install it.
headers=(CMakeLists.txt CMakePresets.json LICENSE NOTICE README.md CHANGELOG.md cmake include)
whole=${repository#*/}-$version
archive "$commit" "$whole" >"$output/$name.tar.gz"
archive "$commit" "$name" "${headers[@]}" >"$output/$name-headers.tar.gz"

# The list of all files with their checksums and licences, in the JSON of SPDX 2.3.
sbom() {
  local tree=$work/$whole created
  tar -xzf "$output/$name.tar.gz" -C "$work"
  created=$(TZ=UTC0 git show -s --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ "$commit")
  (cd "$tree" && find . -type f | sort | tee "$work/files" | tr '\n' '\0' | xargs -0 sha1sum) >"$work/sha1"
  (cd "$tree" && tr '\n' '\0' <"$work/files" | xargs -0 sha256sum) >"$work/sha256"
  (cd "$tree" && tr '\n' '\0' <"$work/files" |
    xargs -0 grep -lF 'SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception' || true) >"$work/licensed"
  ! grep -vE '^[A-Za-z0-9_./+-]+$' "$work/files" || refuse "these names of files have characters that need quoting"
  # SPDX's code of a package: the SHA-1 of the sorted SHA-1 of its files.
  awk -v version="$version" -v repository="https://github.com/$repository" -v commit="$commit" -v created="$created" \
    -v archive="$name.tar.gz" -v sum="$(sum_of sha256 "$output/$name.tar.gz")" \
    -v code="$(cut -d ' ' -f 1 "$work/sha1" | sort | tr -d '\n' | sha1sum | cut -d ' ' -f 1)" \
    -f cmake/sbom.awk "$work/licensed" "$work/sha1" "$work/sha256"
}
sbom >"$output/$name.spdx.json"

# The registries' recipes, for this release: with its checksums, and as they are to lie in their repositories.
registries() {
  local sha256 sha512 file
  sha256=$(sum_of sha256 "$output/$name-headers.tar.gz")
  sha512=$(sum_of sha512 "$output/$name.tar.gz")
  cp -R cmake/registries/conan-center cmake/registries/vcpkg cmake/registries/conda-forge "$1"
  cp cmake/ports/tessera/usage "$1/vcpkg/ports/tessera/"
  mkdir "$1/conda-forge/recipes/tessera/test"
  cp "$1"/conan-center/recipes/tessera/all/test_package/{CMakeLists.txt,test_package.cpp} \
    "$1/conda-forge/recipes/tessera/test/"
  find "$1" -type f | while read -r file; do
    sed -i -E "s#OWNER/tessera#$repository#; s#^( *- )OWNER\$#\1${repository%/*}#; s#0{64}#$sha256#; \
      s#SHA512 0\$#SHA512 $sha512#" "$file"
  done
  ! grep -rnwE 'OWNER|0{64}|SHA512 0' "$1" || refuse "something in cmake/registries is not filled in"
}
mkdir "$output/registries"
registries "$output/registries"
sed -n "1,/^## /d; /^## /q; p" CHANGELOG.md | sed '${/^## /d}' >"$output/notes.md"

(cd "$output" && sha256sum "$name-headers.tar.gz" "$name.spdx.json" "$name.tar.gz" >SHA256SUMS)

if [ $is_dry -eq 1 ]; then
  echo "release: a dry run of $name at $commit, without signature and tag: $output"
  cat "$output/SHA256SUMS"
  exit 0
fi
if [ "$signs_by" = gpg ]; then
  gpg --batch --yes --local-user "$key" --armor --detach-sign --output "$output/SHA256SUMS.asc" "$output/SHA256SUMS"
  git tag --sign --local-user="$key" --message="tessera $version" "$tag" "$commit"
  signature=SHA256SUMS.asc
else
  ssh-keygen -q -Y sign -f "$key" -n tessera-release "$output/SHA256SUMS"
  git -c gpg.format=ssh -c user.signingKey="$key" tag --sign --message="tessera $version" "$tag" "$commit"
  signature=SHA256SUMS.sig
fi
archive "$tag" "$whole" | cmp - "$output/$name.tar.gz" || refuse "the tag's archive differs from the commit's"
echo "release: $name is in $output and tagged $tag. What is left:
  git push origin $tag
  upload $name.tar.gz, $name-headers.tar.gz, $name.spdx.json, SHA256SUMS and $signature
  to the release of $tag on GitHub, with notes.md
  open pull requests with what is in registries: cmake/registries/README.md says where"
