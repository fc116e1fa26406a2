// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The status word, by which programs, which cannot throw, report an error: 64 bits that all groups of a call share,
/// and the numbers for the error message.
///
/// The word starts with all bits set, which means "nothing failed". A failing group atomically writes the minimum of
/// the word and `position << 8 | code`. So in whatever order the groups run, the lowest position remains, and of two
/// codes at one position the smaller one. The detail that was reported with that position, if any, is stored beside the
/// word. `exec.wait()` turns the word into an exception and resets it.
///
///     if (tag != expected) { group.report(status, status_code::bad_checksum, which); return; }
///     if (label >= vocabulary) { group.report(status, status_code::bad_label, token, {label, vocabulary}); return; }
///
/// `exec.status(call)` registers the call that a word belongs to: see exec/status_calls.hpp.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

/// What a group found. Codes from 16 on have their own sentences (is_sentence); codes from 128 on are for users' own
/// programs.
enum class status_code : std::uint8_t {
  corrupt_stream = 1,      ///< encoded bytes that lead outside of the stream or the tables
  bad_checksum = 2,        ///< the checksum of a block differs from the one that is stored
  bad_header = 3,          ///< a header, index or table that contradicts itself
  unsupported_format = 4,  ///< a version or a feature that this library does not know
  capacity_exceeded = 5,   ///< the output does not fit into the space that was given
  bad_value = 6,           ///< a value outside of the range that the program accepts
  out_of_range = 7,        ///< an index outside of its table
  repeated_index = 9,      ///< an index that occurs twice where each may occur once
  bad_label = 16,          ///< a label that is no entry of the vocabulary; the detail is the label and the vocabulary
  other_forward = 17,  ///< a backward pass after another forward pass; the position is a loss_stamp::part, or used_up
  bad_length = 24,     ///< a cached sequence's length is negative, or more tokens than it may have
  /// A cached sequence's number of new tokens is negative, or more than the inputs or the sequence have.
  bad_new_tokens = 25,
  bad_slot = 26,  ///< a cached sequence's slot is none of the cache's
  /// A cached sequence's number of pages is negative, or more than its block table has or its tokens fill.
  bad_page_count = 27,
  full_tail = 28,  ///< a cached sequence has more tokens in no sealed page than the tail has room for
  bad_block = 29,  ///< a page of a cached sequence is in a block that is none of the cache's
  /// A pair of slots of a fork has a slot that another pair writes to; the detail is the slot and the other pair.
  written_slot = 30,
  /// A parameter's stream fits neither its slot nor the overflow arena; the detail is the stream's size and the slot's.
  full_slot = 31,
  bad_sequence = 32,       ///< a step is of a sequence that is none of the cache's
  repeated_sequence = 33,  ///< two steps are of the same sequence; the detail is the sequence and the other step
  unknown_sequence = 34,   ///< a step is of a sequence that was never begun, or that has another cache's lengths
  full_sequence = 35,      ///< a step is of a sequence that has no room for a token
  /// A chosen entry that is none of the vocabulary; the detail is the entry and the vocabulary.
  bad_entry = 36,
  other_rank = 37,  ///< ranks were called with different arguments; the position is a rank_call::part
  first_user_code = 128,
};

/// Details of a wrong value: the value that was found, and the limit that it broke.
struct status_detail {
  static constexpr std::int64_t unknown = -0x7fffffffffffffff - 1;  ///< no detail was given

  std::int64_t value = unknown;  ///< the value that was found
  /// What the value must be below, or the most that there is room for, or the other number of the code's sentence.
  std::int64_t limit = unknown;

  /// Whether a detail was given.
  [[nodiscard]] TESSERA_FN constexpr bool is_known() const { return limit != unknown; }
};

/// The shared status word. Programs hold a pointer to the one that `exec.status()` gives; a null pointer means that
/// nobody asks. A word is fresh if all its bytes are 255.
struct status_word {
  static constexpr std::uint64_t nothing_failed = ~std::uint64_t{0};  ///< the word before a failure
  static constexpr int code_bits = 8;  ///< bits that the code takes; the position has the others

  std::uint64_t bits = nothing_failed;       ///< the code in the lowest 8 bits, the position above
  std::uint64_t detail_of = nothing_failed;  ///< the bits that were reported with the detail
  /// The detail of the earliest failure that had one; it counts if detail_of equals bits.
  status_detail detail = {-1, -1};
  std::uint64_t lock = nothing_failed;  ///< 0 while a group writes the detail

  /// The bits of a failure; failures at earlier positions compare lower.
  [[nodiscard]] static TESSERA_FN constexpr std::uint64_t pack(status_code code, std::int64_t position) {
    return (static_cast<std::uint64_t>(position) << code_bits) | static_cast<std::uint64_t>(code);
  }
  /// Whether nothing has failed.
  [[nodiscard]] TESSERA_FN constexpr bool is_ok() const { return bits == nothing_failed; }
  /// The code of the failure; it means nothing if is_ok().
  [[nodiscard]] TESSERA_FN constexpr status_code code() const { return static_cast<status_code>(bits & 0xffu); }
  /// Where the failure was, in the unit that the code is about; it means nothing if is_ok().
  [[nodiscard]] TESSERA_FN constexpr std::int64_t position() const {
    return static_cast<std::int64_t>(bits >> code_bits);
  }
  /// The detail that was reported with the failure.
  [[nodiscard]] TESSERA_FN constexpr status_detail what() const { return detail_of == bits ? detail : status_detail{}; }
};

static_assert(sizeof(status_word) == 40);

namespace detail {

/// What a code means at a position.
struct sentence_at {
  status_code code;
  std::int64_t position;
  char const* sentence;
};

/// The sentences of codes whose positions are parts of what is compared: what differs between a backward pass and the
/// forward pass in its workspace, by loss_stamp::part and used_up, and what ranks that run a loss together do not have
/// in common, by rank_call::part. A code's first sentence is also that of positions without one. Of the first code the
/// values are shown where they mean something to a reader. Of the second one {value} is the first rank that differs
/// from rank 0, and {limit} what it has, but for the last two.
[[nodiscard]] constexpr char const* describe_part(status_code code, std::int64_t position) {
  constexpr auto forward = status_code::other_forward;
  constexpr auto rank = status_code::other_rank;
  constexpr sentence_at sentences[] = {
      {forward, 0, "there is no forward() in the workspace"},
      {forward, 1, "the forward() in the workspace was of {value} tokens but this backward() is of {limit}"},
      {forward, 2, "the forward() in the workspace was of {value} entries but this backward() is of {limit}"},
      {forward, 3, "the forward() in the workspace was of {value} channels but this backward() is of {limit}"},
      {forward, 4,
       "the forward() in the workspace had the reduction of number {value} but this backward() has {limit}"},
      {forward, 5, "the forward() in the workspace had other options than this backward()"},
      {forward, 6, "the forward() in the workspace had other inputs than this backward()"},
      {forward, 7, "the forward() in the workspace was of another plan than this backward()"},
      {forward, 8, "an earlier backward() has used up the softmaxes that forward() kept; call forward() again"},
      {rank, 3, "rank {value} has other options than rank 0"},
      {rank, 0, "rank {value} has a vocabulary of {limit} entries but rank 0 has another"},
      {rank, 1, "rank {value} has hidden states of {limit} channels but rank 0 has others"},
      {rank, 2, "rank {value} has the reduction of number {limit} but rank 0 has another"},
      {rank, 4, "the ranks have {value} entries in all but the vocabulary has {limit}"},
      {rank, 5, "the ranks have {value} entries in all, as the vocabulary, but some of them are the same"},
  };
  char const* found = nullptr;
  for (sentence_at const& one : sentences) {
    if (one.code == code && (found == nullptr || one.position == position)) {
      found = one.sentence;
    }
  }
  return found;
}

}  // namespace detail

/// Whether describe() gives a whole sentence, in which {value}, {position} and {limit} stand for numbers. Otherwise it
/// gives the middle of a sentence.
[[nodiscard]] constexpr bool is_sentence(status_code code) {
  return code >= status_code::bad_label && code < status_code::first_user_code;
}

/// The meaning of a code at a position. See is_sentence().
[[nodiscard]] constexpr char const* describe(status_code code, std::int64_t position = 0) {
  switch (code) {
    case status_code::corrupt_stream:
      return "encoded bytes are corrupt";
    case status_code::bad_checksum:
      return "the checksum does not match";
    case status_code::bad_header:
      return "the header contradicts itself";
    case status_code::unsupported_format:
      return "the format is not supported by this version";
    case status_code::capacity_exceeded:
      return "the output does not fit into the space given";
    case status_code::bad_value:
      return "a value is outside of what is accepted";
    case status_code::out_of_range:
      return "an index is out of range";
    case status_code::other_forward:
    case status_code::other_rank:
      return detail::describe_part(code, position);
    case status_code::repeated_index:
      return "an index is given twice";
    case status_code::bad_label:
      return "label {value} of token {position} is no entry of {limit}";
    case status_code::bad_length:
      return "sequence {position} has {value} tokens but may have from 0 to {limit}";
    case status_code::bad_new_tokens:
      return "sequence {position} has {value} new tokens but may have from 0 to {limit}";
    case status_code::bad_slot:
      return "slot {value} of sequence {position} is none of {limit}";
    case status_code::bad_page_count:
      return "sequence {position} has {value} sealed pages but may have from 0 to {limit}";
    case status_code::full_tail:
      return "sequence {position} has {value} tokens in no sealed page but the tail has room for {limit}";
    case status_code::bad_block:
      return "block {value} of sequence {position} is none of {limit}";
    case status_code::written_slot:
      return "pair {position} has slot {value}, which pair {limit} writes to";
    case status_code::full_slot:
      return "the stream of parameter {position} has {value} bytes, its slot room for {limit}, and the arena is full";
    case status_code::bad_sequence:
      return "step {position} is of sequence {value}, which is none of {limit}";
    case status_code::repeated_sequence:
      return "step {position} is of sequence {value}, and so is step {limit}";
    case status_code::unknown_sequence:
      return "step {position} is of sequence {value} of {limit}, which was never begun in this cache";
    case status_code::full_sequence:
      return "the sequence of step {position} has {value} tokens and room for no more than {limit}";
    case status_code::bad_entry:
      return "entry {value} at position {position} of the chosen ones is none of {limit}";
    default:
      return "a program reported a code of its own";
  }
}

#if !defined(__CUDACC_RTC__)
namespace detail {

/// Keeps the detail of the earliest failure. Failures are few, so the lock costs next to nothing.
inline void keep_detail_on_host(status_word* word, std::uint64_t mine, status_detail detail) {
  while (mine < __atomic_load_n(&word->detail_of, __ATOMIC_RELAXED)) {
    std::uint64_t open = status_word::nothing_failed;
    if (__atomic_compare_exchange_n(&word->lock, &open, 0, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
      if (mine < __atomic_load_n(&word->detail_of, __ATOMIC_RELAXED)) {
        word->detail = detail;
        __atomic_store_n(&word->detail_of, mine, __ATOMIC_RELAXED);
      }
      __atomic_store_n(&word->lock, status_word::nothing_failed, __ATOMIC_RELEASE);
    }
  }
}

/// Reports a failure from a thread of the host, by an atomic minimum.
inline void report_on_host(status_word* word, status_code code, std::int64_t position, status_detail detail = {}) {
  if (word == nullptr) {
    return;
  }
  if (detail.is_known()) {
    keep_detail_on_host(word, status_word::pack(code, position), detail);
  }
  std::uint64_t const mine = status_word::pack(code, position);
  std::uint64_t seen = __atomic_load_n(&word->bits, __ATOMIC_RELAXED);
  while (mine < seen &&
         !__atomic_compare_exchange_n(&word->bits, &seen, mine, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
  }
}

/// Reads the word and resets it to "nothing failed" in one step. Details belong to programs that have ended.
inline status_word take_on_host(status_word* word) {
  status_word taken;
  taken.bits = __atomic_exchange_n(&word->bits, status_word::nothing_failed, __ATOMIC_ACQUIRE);
  if (!taken.is_ok()) {
    taken.detail = word->detail;
    taken.detail_of = __atomic_exchange_n(&word->detail_of, status_word::nothing_failed, __ATOMIC_ACQUIRE);
  }
  return taken;
}

}  // namespace detail
#endif
}  // namespace v0
}  // namespace tessera
