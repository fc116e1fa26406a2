#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# A launcher for a compiler that is told to write no object: an empty file stands for it, so that the build knows that
# the source was compiled.
#
#   without_object.sh <compiler and its arguments>
set -eu
object=''
before=''
for argument in "$@"; do
  [ "$before" != -o ] || object=$argument
  before=$argument
done
"$@"
: >"$object"
