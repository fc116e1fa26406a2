#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# A launcher for compilers and linkers: sources are only preprocessed, which finds what they include and takes a tenth
# of the time.  The build tree has compiled the same sources.  The outputs are empty files.
#
#   read_only.sh <compiler and its arguments>
set -eu
object=''
compiles=0
before=''
for argument in "$@"; do
  [ "$before" != -o ] || object=$argument
  [ "$argument" != -c ] || compiles=1
  before=$argument
done
[ "$compiles" -eq 0 ] || "$@" -E
: >"$object"
