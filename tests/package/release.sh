#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Tries cmake/release.sh on a small repository: the same bytes for everyone, signatures that verify, and refusals. Keys
# are made for this and thrown away. Without git it is skipped, and without gpg or ssh-keygen their signatures.
#
#   release.sh REPOSITORY WORK_FOLDER
set -euo pipefail
source=$(cd "$1" && pwd)
rm -rf "$2"
mkdir -p "$2"
work=$(cd "$2" && pwd)
cd "$work"

fail() {
  echo "release: $*" >&2
  exit 1
}

command -v git >/dev/null || { echo "[tessera:skipped] there is no git" && exit 0; }
version=$(sed -nE 's/^#define TESSERA_VERSION_STRING "(.*)"$/\1/p' "$source/include/tessera/version.hpp")
name=tessera-$version

# Nothing of this user's or machine's configuration, and a tree of what release.sh and the check of versions read.
export HOME=$work/home GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=$work/home/gitconfig XDG_CONFIG_HOME=$work/home
unset GIT_DIR GIT_WORK_TREE
export GIT_AUTHOR_DATE='2001-02-03T04:05:06+0700' GIT_COMMITTER_DATE='2001-02-03T04:05:06+0700'
mkdir "$HOME" tree
git config --global user.name Someone
git config --global user.email someone@example.org
(
  cd "$source"
  tar -cf - CHANGELOG.md CMakeLists.txt CMakePresets.json LICENSE NOTICE README.md cmake docs/install.md \
    examples/support/find_tessera.cmake include/tessera/{config,version}.hpp tests/checks/versions.cmake \
    tests/data/README.md tests/package/CMakeLists.txt
) | tar -xf - -C tree
sed -i "0,/^## .*/s//## $version, 2001-02-03/" tree/CHANGELOG.md
printf 'a\r\nb\n' >tree/tests/data/lines.txt
git init -q tree
git -C tree add -A
git -C tree commit -q -m "A release"

# The same commit elsewhere, by someone whose clock, umask and configuration differ.
git clone -q tree other
printf '[core]\n\tautocrlf = true\n\tattributesFile = %s\n[tar]\n\tumask = 0077\n' "$HOME/attributes" >"$HOME/other"
echo '*.hpp export-ignore' >"$HOME/attributes"
tree/cmake/release.sh --repository someone/tessera --dry-run --output one >log
(umask 077 && TZ=Asia/Tokyo GZIP=--rsyncable GIT_CONFIG_GLOBAL=$HOME/other \
  other/cmake/release.sh --repository someone/tessera --dry-run --output two >log) 2>/dev/null
diff -r one two || fail "two people make different releases of one commit"
(cd one && sha256sum --quiet --check SHA256SUMS) || fail "the checksums differ from the files'"
for file in "$name.tar.gz" "$name-headers.tar.gz"; do
  tar -tvzf "one/$file" >names
  ! grep -vE '^([-d]rwxrwxr-x|-rw-rw-r--) root/root .* 2001-02-0[23] ' names || fail "$file says more than the commit"
done
tar -xzf "one/$name.tar.gz"
diff -r --exclude=.git tree "$name" || fail "the archive is not the tree"
! tar -tzf "one/$name-headers.tar.gz" | grep -E '/tests/|/docs/' || fail "the library's archive holds more than that"

# The list has each file with its checksum; the licence of data by others is left open.
sbom=one/$name.spdx.json
cmake -D "SBOM=$work/$sbom" -D "TREE=$work/$name" -P "$source/tests/package/sbom.cmake"

# Recipes have the archives' checksums.
sums=$(sha256sum "one/$name-headers.tar.gz" && sha512sum "one/$name.tar.gz")
for sum in $(cut -d ' ' -f 1 <<<"$sums"); do
  grep -rq "$sum" one/registries || fail "no recipe has $sum"
done
[ "$(grep -rlE 'github\.com/someone/tessera|REPO someone/tessera' one/registries | wc -l)" -eq 5 ] ||
  fail "not all recipes say where the release is"

# expect_refusal WORDS ARGUMENTS...: release.sh ends in these words and makes no tag. --output is given where it does
# not matter.
expect_refusal() {
  local words=$1 tags
  shift
  tags=$(git -C tree tag)
  rm -rf three
  if tree/cmake/release.sh --repository someone/tessera --output three "$@" >log 2>&1; then
    fail "not refused: $*"
  fi
  grep -qF -- "$words" log || fail "no \"$words\" from $*: $(cat log)"
  [ "$(git -C tree tag)" = "$tags" ] || fail "a tag was made in spite of \"$words\""
}
expect_refusal 'a release is signed'
expect_refusal 'there is no option --force' --force
expect_refusal '"someone" is none' --repository someone --dry-run
expect_refusal 'is not empty' --dry-run --output one
expect_refusal 'a dry run signs nothing' --dry-run --gpg someone
tree/cmake/release.sh --repository owners-OWNER2/other.name --dry-run --output other_name >log
grep -rqF 'owners-OWNER2/other.name/releases/download' other_name/registries &&
  tar -tzf "other_name/$name.tar.gz" >names && grep -qxF "other.name-$version/LICENSE" names ||
  fail "a repository of another name is not followed"
touch tree/new
expect_refusal '?? new' --dry-run
rm tree/new
# committed FILE SCRIPT: expect_refusal for the tree with FILE changed by sed's SCRIPT.
committed() {
  sed -i "$2" "tree/$1"
  git -C tree commit -q -a -m "A mistake"
  expect_refusal "${@:3}"
  git -C tree reset -q --hard HEAD^
}
committed CHANGELOG.md "0,/^## .*/s//## 9.9.9, 2001-02-03/" "not with \"## $version, \" and a day" --dry-run
committed CHANGELOG.md "0,/^## .*/s//## $version, not released yet/" 'write the day of the release' --gpg someone
committed cmake/ports/tessera/vcpkg.json "s/$version/9.9.9/" 'the versions differ' --dry-run
git -C tree tag "v$version"
expect_refusal "the tag v$version exists" --dry-run
git -C tree tag -d "v$version" >log

# Signatures, of the checksums and of the tag.
release() {
  rm -rf signed
  tree/cmake/release.sh --repository someone/tessera --output signed "$@" >log 2>&1 ||
    fail "$* does not sign: $(cat log)"
  cmp one/SHA256SUMS signed/SHA256SUMS || fail "a signed release has other bytes"
}
if command -v ssh-keygen >/dev/null; then
  ssh-keygen -q -t ed25519 -N '' -C someone -f "$HOME/key"
  echo "someone $(cat "$HOME/key.pub")" >"$HOME/signers"
  git config --global gpg.ssh.allowedSignersFile "$HOME/signers"
  release --ssh "$HOME/key"
  ssh-keygen -q -Y verify -f "$HOME/signers" -I someone -n tessera-release -s signed/SHA256SUMS.sig \
    <signed/SHA256SUMS >log 2>&1 || fail "the signature does not verify: $(cat log)"
  git -C tree -c gpg.format=ssh verify-tag "v$version" 2>log || fail "the tag does not verify: $(cat log)"
  git -C tree tag -d "v$version" >log
else
  echo "release: there is no ssh-keygen, so its signatures are not tried"
fi
if command -v gpg >/dev/null; then
  # gpg talks to its agent by a socket, whose path must be short.
  GNUPGHOME=$(mktemp -d)
  export GNUPGHOME
  trap 'gpgconf --kill all; rm -rf "$GNUPGHOME"' EXIT
  gpg --batch --quiet --passphrase '' --quick-generate-key someone@example.org ed25519 sign never 2>log ||
    fail "no key: $(cat log)"
  release --gpg someone@example.org
  gpg --quiet --verify signed/SHA256SUMS.asc signed/SHA256SUMS 2>log || fail "the signature does not verify: $(cat log)"
  git -C tree verify-tag "v$version" 2>log || fail "the tag does not verify: $(cat log)"
else
  echo "release: there is no gpg, so its signatures are not tried"
fi
echo "release: everyone makes the same archives, and mistakes are refused"
