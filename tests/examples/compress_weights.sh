#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Runs compress_weights as a user would: on real files, on damaged ones, on full disks, and interrupted.
#
#   compress_weights.sh PROGRAM DATA_FOLDER
set -u
program=$1
data=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# expect CODE WORDS COMMAND...: the exit code, and words of standard error ("-" for silence).
expect() {
  local code=$1 words=$2 got=0
  shift 2
  "$@" >"$work/out" 2>"$work/err" || got=$?
  [ "$got" -eq "$code" ] || fail "exit code $got instead of $code: $* ($(cat "$work/err"))"
  if [ "$words" = - ]; then
    [ ! -s "$work/err" ] || fail "not quiet: $* ($(cat "$work/err"))"
  else
    grep -qF -- "$words" "$work/err" || fail "no \"$words\" in the message of: $* ($(cat "$work/err"))"
  fi
}

# No temporary file may stay behind.
expect_no_leftovers() {
  local found
  found=$(find "$work" -name '*.partial')
  [ -z "$found" ] || fail "left behind after $1: $found"
}

# le64 N: eight bytes, little-endian.
le64() {
  local value=$1 bytes='' i
  for i in 1 2 3 4 5 6 7 8; do
    bytes+=$(printf '\\x%02x' $((value & 255)))
    value=$((value >> 8))
  done
  printf '%b' "$bytes"
}

# safetensors_file FILE HEADER DATA: a file with any header, sound or not.
safetensors_file() {
  { le64 ${#2}; printf '%s' "$2"; printf '%s' "$3"; } >"$1"
}

# flip FILE OFFSET: changes one byte.
flip() {
  local byte
  byte=$(od -An -tu1 -j "$2" -N 1 "$1")
  printf '%b' "$(printf '\\x%02x' $((byte ^ 85)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

size_of() { wc -c <"$1"; }

# A program with sanitizers takes ten times as long, and far more memory.
is_sanitized=0
! grep -q -e __asan_init -e __tsan_init "$program" || is_sanitized=1

echo "== every file comes back byte for byte, and smaller in between"
for name in minilm_bf16 minilm_fp16 minilm_fp32 smollm2_attention smollm2_classifier; do
  expect 0 - "$program" compress --threads 2 "$data/$name.safetensors" "$work/$name.tsra"
  grep -q "ratio 1\.[0-9]*, [0-9]* tensors, lossless" "$work/out" || fail "no summary: $(cat "$work/out")"
  expect 0 - "$program" verify "$work/$name.tsra"
  expect 0 - "$program" decompress "$work/$name.tsra" "$work/$name.back"
  cmp "$data/$name.safetensors" "$work/$name.back" || fail "$name differs after decompression"
  [ "$(size_of "$work/$name.tsra")" -lt "$(size_of "$work/$name.back")" ] || fail "$name did not shrink"
done
expect 0 - "$program" compress --threads 1 --device cpu "$data/minilm_bf16.safetensors" "$work/one_thread.tsra"
cmp "$work/one_thread.tsra" "$work/minilm_bf16.tsra" || fail "the bytes depend on threads or device"
expect_no_leftovers "success"

echo "== other shapes, types and names"
safetensors_file "$work/empty.st" '{}' ''
header='{"__metadata__":{"a \"b\"":"\u00e9\n"},"zero":{"dtype":"F32","shape":[0,3],"data_offsets":[0,0]},'
header+='"scalar":{"dtype":"BF16","shape":[],"data_offsets":[0,2]},'
header+='"odd":{"dtype":"I8","shape":[3],"data_offsets":[2,5]},'
header+='"f8":{"dtype":"F8_E4M3","shape":[1,3],"data_offsets":[5,8]},'
header+='"unaligned":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}}   '
safetensors_file "$work/odd.st" "$header" '0123456789abcdef'
weights=$(head -c 40000 "$data/minilm_bf16.safetensors" | tail -c 30000 | od -An -tx1 -v | tr -d ' \n' | head -c 40003)
header='{"small":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},'
header+='"f8":{"dtype":"F8_E5M2","shape":[40000],"data_offsets":[3,40003]}}'
safetensors_file "$work/shifted.st" "$header" "$weights"
header='{"small":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},'
header+='"f32":{"dtype":"F32","shape":[100,100],"data_offsets":[3,40003]}}'
safetensors_file "$work/shifted32.st" "$header" "$weights"
for name in empty odd shifted shifted32; do
  expect 0 - "$program" compress "$work/$name.st" "$work/$name.tsra"
  expect 0 - "$program" decompress "$work/$name.tsra" "$work/$name.back"
  cmp "$work/$name.st" "$work/$name.back" || fail "$name differs after decompression"
done
[ "$(size_of "$work/shifted.tsra")" -lt 40000 ] || fail "the F8_E5M2 tensor did not shrink"

echo "== a terminal gets a progress bar"
if ! command -v script >/dev/null || ! script -qec true "$work/typescript" >/dev/null 2>&1 </dev/null; then
  echo "   not tried: there is no pseudo-terminal here"
else
  script -qec "'$program' compress '$data/minilm_bf16.safetensors' '$work/shown.tsra'" "$work/typescript" \
    >/dev/null </dev/null
  grep -q 'compressing *\[.*\] *[0-9]* %' "$work/typescript" && grep -q verifying "$work/typescript" ||
    fail "no bar: $(cat "$work/typescript")"
fi

echo "== inspect names tensors, types, shapes and metadata"
expect 0 - "$program" inspect "$work/minilm_bf16.tsra"
grep -q 'encoder.layer.0.attention.self.query.weight *BF16 *384 x 384 *lossless' "$work/out" ||
  fail "inspect: $(cat "$work/out")"
grep -q 'metadata "licence"' "$work/out" || fail "inspect shows no metadata"
expect 0 - "$program" inspect "$data/minilm_bf16.safetensors"
grep -q 'not compressed, 11 tensors' "$work/out" || fail "inspect of a plain file: $(cat "$work/out")"

echo "== inspect shows nothing that a terminal obeys, and pads nothing to the longest name"
header='{"__metadata__":{"\u001bk":"\u009b2Jv"},'
header+='"\u001b[2J\u009b31m\u202ename":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'
safetensors_file "$work/obeyed.st" "$header" 'x'
expect 0 - "$program" compress "$work/obeyed.st" "$work/obeyed.tsra"
for name in obeyed.st obeyed.tsra; do
  expect 0 - "$program" inspect "$work/$name"
  grep -qF '\u001b[2J\u009b31m\u202ename  U8' "$work/out" || fail "inspect of $name: $(cat "$work/out")"
  grep -qF 'metadata "\u001bk": "\u009b2Jv"' "$work/out" || fail "inspect of $name: $(cat "$work/out")"
  [ "$(LC_ALL=C tr -d '\n\040-\176' <"$work/out" | wc -c)" -eq 0 ] || fail "inspect of $name shows controls"
done
long=$(printf '%0500000d' 0)
ones=$(printf '1,%.0s' $(seq 1 $((is_sanitized ? 10000 : 100000))))
header="{\"$long\":{\"dtype\":\"U8\",\"shape\":[${ones}1],\"data_offsets\":[0,1]}"
header+="$(seq -f ',"t%.0f":{"dtype":"U8","shape":[0],"data_offsets":[1,1]}' 1 3000 | tr -d '\n')}"
safetensors_file "$work/long_name.st" "$header" 'x'
expect 0 - "$program" inspect "$work/long_name.st"
[ "$(size_of "$work/out")" -lt 1000000 ] || fail "inspect prints $(size_of "$work/out") bytes for 3001 tensors"

echo "== a reader of safetensors sees other shapes, not wrong values"
strings=$(head -c 4000 "$work/minilm_bf16.tsra" | tr -d '\0')
echo "$strings" | grep -q '"encoder.layer.0.attention.self.query.weight":{"dtype":"U8","shape":\[[0-9]*\],' ||
  fail "the compressed tensor is not a U8 tensor of one extent"

echo "== with losses"
for bits in 0 1 3; do
  expect 0 - "$program" compress --lossy $bits --block 256 "$data/minilm_bf16.safetensors" "$work/lossy$bits.tsra"
  expect 0 - "$program" verify "$work/lossy$bits.tsra"
  expect 0 - "$program" decompress "$work/lossy$bits.tsra" "$work/lossy$bits.back"
  [ "$(size_of "$work/lossy$bits.back")" -eq "$(size_of "$data/minilm_bf16.safetensors")" ] ||
    fail "lossy $bits: wrong size"
  expect 0 - "$program" inspect "$work/lossy$bits.tsra"
  grep -q "lossy $bits/256" "$work/out" || fail "inspect does not say lossy $bits/256"
done
[ "$(size_of "$work/lossy0.tsra")" -lt "$(size_of "$work/lossy3.tsra")" ] || fail "fewer bits are not smaller"

echo "== wrong usage is 1"
expect 1 "Exit codes" "$program"
expect 1 "unknown command" "$program" shrink a b
expect 1 "unknown option" "$program" compress --fast a b
expect 1 "takes 2 file names but got 1" "$program" compress a
expect 1 "takes 1 file names but got 2" "$program" verify a b
expect 1 "--threads is \"0\"" "$program" compress --threads 0 a b
expect 1 "--threads is \"2x\"" "$program" compress --threads 2x a b
expect 1 "--threads needs a value" "$program" compress a b --threads
expect 1 "--lossy is 2" "$program" compress --lossy 2 a b
expect 1 "power of two" "$program" compress --lossy 3 --block 100 a b
expect 1 "--block makes sense with --lossy only" "$program" compress --block 64 a b
expect 1 "--lossy is for compress only" "$program" verify --lossy 3 a
expect 1 "--device is \"tpu\"" "$program" compress --device tpu a b
expect 0 - "$program" --help
grep -q 'at most 320 MiB' "$work/out" || fail "--help does not state the bound on memory"

echo "== missing and unreadable files are 2"
expect 2 "No such file" "$program" compress "$work/missing" "$work/x"
expect 2 "not a regular file" "$program" verify "$work"
expect 2 "No such file" "$program" inspect "$work/missing"
mkfifo "$work/fifo"
for command in inspect verify; do
  expect 2 "$work/fifo: cannot read: not a regular file" timeout 20 "$program" $command "$work/fifo"
  expect 2 "/dev/zero: cannot read: not a regular file" timeout 20 "$program" $command /dev/zero
done
expect 2 "not a regular file" timeout 20 "$program" compress "$work/fifo" "$work/x"
expect 2 "not a regular file" timeout 20 "$program" decompress "$work/fifo" "$work/x"

echo "== truncated, corrupt and foreign files are 3"
good=$work/minilm_bf16.tsra
expect 3 "not one that compress_weights made" "$program" decompress "$data/minilm_bf16.safetensors" "$work/x"
expect 3 "not one that compress_weights made" "$program" verify "$data/minilm_bf16.safetensors"
expect 3 "is compressed already" "$program" compress "$good" "$work/x"
expect 3 "not a safetensors file" "$program" compress "$0" "$work/x"
: >"$work/nothing"
expect 3 "it has 0 bytes" "$program" verify "$work/nothing"
for bytes in 7 8 100 3000 400000 $(($(size_of "$good") - 1)); do
  head -c "$bytes" "$good" >"$work/short"
  expect 3 "$work/short: " "$program" verify "$work/short"
  expect 3 "$work/short: " "$program" decompress "$work/short" "$work/x"
done
{ cat "$good"; printf 'x'; } >"$work/long"
expect 3 "bytes follow the last tensor" "$program" verify "$work/long"
total=$(size_of "$good")
for step in $(seq 0 40); do
  offset=$((200 + step * ((total - 201) / 40)))
  cp "$good" "$work/damaged"
  flip "$work/damaged" "$offset"
  expect 3 "$work/damaged: " "$program" verify "$work/damaged"
  expect 3 "$work/damaged: " "$program" decompress --force "$work/damaged" "$work/x"
done
sed 's/"tessera.container":"1"/"tessera.container":"2"/' "$good" >"$work/newer"
expect 3 'has version "2" but this program reads version 1' "$program" verify "$work/newer"
[ ! -e "$work/x" ] || fail "a damaged file gave an output"
expect_no_leftovers "corrupt input"

# foreign MESSAGE HEADER DATA
foreign() {
  safetensors_file "$work/foreign" "$2" "$3"
  expect 3 "$1" "$program" compress "$work/foreign" "$work/x"
}
foreign 'two tensors are called "a"' \
  '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}' 'ab'
foreign 'unknown dtype "Q8"' '{"a":{"dtype":"Q8","shape":[1],"data_offsets":[0,1]}}' 'a'
foreign 'takes 2 bytes but its shape and dtype U8 make 1' '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,2]}}' 'ab'
foreign 'truncated' '{"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}}' 'ab'
foreign 'the one before ends at byte 0' '{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}' 'ab'

echo "== outputs that cannot be written are 4"
input=$data/minilm_bf16.safetensors
cp "$input" "$work/precious"
expect 4 "exists already" "$program" compress "$input" "$work/precious"
cmp "$input" "$work/precious" || fail "an existing file was touched"
expect 0 - "$program" compress --force "$input" "$work/precious"
cmp "$good" "$work/precious" || fail "--force did not replace the file"
expect 0 - "$program" decompress --force "$work/precious" "$work/precious"
cmp "$input" "$work/precious" || fail "a file could not be replaced by what is in it"
ln -s precious "$work/link"
expect 0 - "$program" compress --force "$input" "$work/link"
[ -L "$work/link" ] && cmp "$good" "$work/precious" || fail "a symbolic link was not followed"
ln -s nowhere "$work/dangling"
expect 4 "dangling: cannot write: a symbolic link that leads to no file" "$program" compress "$input" "$work/dangling"
expect 4 "leads to no file" "$program" compress --force "$input" "$work/dangling"
[ -L "$work/dangling" ] && [ ! -e "$work/nowhere" ] || fail "something was written by way of a dangling link"
chmod 600 "$work/precious"
expect 0 - "$program" decompress --force "$work/precious" "$work/precious"
[ -n "$(find "$work/precious" -perm 600)" ] || fail "--force made a private file public: $(ls -l "$work/precious")"
expect 4 "not a regular file" timeout 20 "$program" compress --force "$input" "$work/fifo"
[ -p "$work/fifo" ] || fail "a FIFO was replaced"
expect 4 "not a regular file" "$program" compress --force "$input" /dev/null
expect 4 "not a regular file" "$program" compress --force "$input" "$work"
expect 4 "No such file" "$program" compress "$input" "$work/no/folder"
if [ "$(id -u)" -ne 0 ]; then
  mkdir "$work/locked" && chmod 555 "$work/locked"
  expect 4 "Permission denied" "$program" compress "$input" "$work/locked/x"
fi
limited() {
  (ulimit -f "$1" && shift && exec "$@")
}
expect 4 "File too large" limited 100 "$program" compress "$input" "$work/x"
expect 4 "File too large" limited 1000 "$program" decompress "$good" "$work/x"
if [ -w /dev/full ]; then
  got=0
  "$program" inspect "$good" >/dev/full 2>"$work/err" || got=$?
  [ "$got" -eq 4 ] && grep -q "No space left" "$work/err" || fail "a full standard output gave $got"
fi
# A real full disk, where this may be made.
mkdir "$work/disk"
if mount -t tmpfs -o size=256k tmpfs "$work/disk" 2>/dev/null; then
  expect 4 "No space left" "$program" compress "$input" "$work/disk/x"
  [ -z "$(ls -A "$work/disk")" ] || fail "something stays on the full disk"
  umount "$work/disk"
fi
[ ! -e "$work/x" ] || fail "a failed run left an output"
expect_no_leftovers "failed writes"

echo "== an interrupted run leaves nothing behind"
rows=$((is_sanitized ? 500 : 4000)) # a tensor of 128 MB, or of 16 MB: a good while to work on
{
  header="{\"w\":{\"dtype\":\"F32\",\"shape\":[$rows,8000],\"data_offsets\":[0,$((rows * 32000))]}}"
  le64 ${#header}
  printf '%s' "$header"
} >"$work/large"
for _ in $(seq 1 62); do cat "$data/minilm_fp32.safetensors"; done | head -c $((rows * 32000)) >>"$work/large"
for signal in INT TERM HUP KILL; do
  # A shell's background jobs ignore SIGINT, unless job control is on.
  set -m
  "$program" compress --threads 1 "$work/large" "$work/interrupted" >/dev/null 2>&1 &
  job=$!
  set +m
  for _ in $(seq 1 200); do
    [ -z "$(find "$work" -name '*.partial' -size +64k)" ] || break
    sleep 0.01
  done
  kill -s "$signal" "$job" 2>/dev/null || fail "it was done before SIG$signal"
  wait "$job" 2>/dev/null && fail "SIG$signal did not end it"
  [ ! -e "$work/interrupted" ] || fail "SIG$signal left a file under the final name"
  [ "$signal" = KILL ] || expect_no_leftovers "SIG$signal"
done
find "$work" -name '*.partial' -delete

echo "== a file that gets shorter while it is read is 2"
cp "$work/large" "$work/shorter"
"$program" compress --threads 1 --device cpu "$work/shorter" "$work/shortened" >"$work/out" 2>"$work/err" &
job=$!
for _ in $(seq 1 200); do
  [ -z "$(find "$work" -name '*.partial' -size +64k)" ] || break
  sleep 0.01
done
kill -s STOP "$job"
truncate -s 1000000 "$work/shorter"
kill -s CONT "$job"
got=0
wait "$job" || got=$?
[ "$got" -eq 2 ] && grep -qF "$work/shorter: was cut off while it was read" "$work/err" ||
  fail "a file that gets shorter gave $got: $(cat "$work/err")"
[ ! -e "$work/shortened" ] || fail "a file that got shorter gave an output"
expect_no_leftovers "a file that got shorter"

echo "== memory stays bounded"
# The tensor's 128 MB, its stream and the coder's tables would not fit into this.
bounded() {
  if [ "$is_sanitized" -eq 1 ]; then "$@"; else (ulimit -d $((340 * 1024)) && exec "$@"); fi
}
expect 0 - bounded "$program" compress --threads 2 --device cpu "$work/large" "$work/large.tsra"
expect 0 - bounded "$program" decompress --threads 2 --device cpu "$work/large.tsra" "$work/large.back"
cmp "$work/large" "$work/large.back" || fail "the large file differs after decompression"

[ "$failures" -eq 0 ] || { echo "$failures failures"; exit 1; }
echo "all is well"
