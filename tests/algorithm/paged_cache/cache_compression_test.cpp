// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <tessera/algorithm/paged_cache/cache_compression.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/run.hpp>
#include <tessera/merge/slerp.hpp>

#include "support/cache_problem.hpp"
#include "support/catch.hpp"
#include "support/odd_vectors.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

/// Does what compress_pages does on a device, by the portable programs, one page after the other.
template <class Merger, class T>
struct compress_slowly {
  static constexpr int lanes = 128;
  static constexpr int blocks_per_multiprocessor = 1;

  struct rows_type {
    cache_source<T> source;
    retain_most_different rule;
    view<page_mark const, 3> marks;
    view<float, 5> angles;
    view<std::uint64_t, 3> guesses;
    bool corrects;
  };
  struct scratch_type {
    merged_row rows[2 * cache_page_format::tokens];
    typename encode_pages<T, 128>::scratch_type encoding;
  };

  Merger merger;
  rows_type rows;

  template <class Group>
  void operator()(Group const& group, std::int64_t which, scratch_type& scratch) const {
    for (std::int64_t number = which; number < rows.marks.size(); number += 3) {  // there are three groups
      take(group, number, scratch);
    }
  }

 private:
  template <class Group>
  void take(Group const& group, std::int64_t number, scratch_type& scratch) const {
    cache_source<T> const& source = rows.source;
    std::int64_t const heads = rows.marks.extent(2);
    std::int64_t const i = number / heads % rows.marks.extent(1);
    std::int64_t const sequence = number / heads / rows.marks.extent(1);
    if (source.first_page(sequence) + i >= source.end_page(sequence)) {
      return;
    }
    std::int64_t const head = number % heads;
    page_mark mark = rows.corrects ? rows.marks(sequence, i, head) : page_mark{};
    if (rows.corrects && mark.retained == rows.guesses(sequence, i, head)) {
      return;
    }
    // These programs take rows and marks of all pages; each gets those of this page.
    view<merged_row, 5> own(scratch.rows, {rows.marks.extent(0), rows.marks.extent(1), heads, 2, 64});
    own.strides[0] = own.strides[1] = own.strides[2] = 0;
    typename measure_pages<Merger, T>::scratch_type nothing;
    measure_pages<Merger, T>{merger, source, own, false}(group, number, nothing);
    if (!rows.corrects) {
      mark = guess(scratch, sequence, i, head);
    }
    view<page_mark const, 3> marks(&mark, {rows.marks.extent(0), rows.marks.extent(1), heads});
    marks.strides[0] = marks.strides[1] = marks.strides[2] = 0;
    page_mark const none = mark;
    cache_source<T> without_rows = source;
    std::vector<T> spare(as_size(source.memory.row_values(source.memory.slot_count) + 64 * 4 * 128));
    without_rows.memory.rows = rows.corrects ? source.memory.rows : spare.data();  // guesses are not written there
    encode_pages<T, 128>{without_rows, own, marks}(group, number, scratch.encoding);
    CHECK(none.retained == mark.retained);
  }

  page_mark guess(scratch_type const& scratch, std::int64_t sequence, std::int64_t i, std::int64_t head) const {
    cache_memory<T> const& memory = rows.source.memory;
    float* const thresholds = memory.thresholds + 2 * memory.head_of(rows.source.sequences.slot(sequence), head);
    page_mark found{};
    for (int row = 0; row < 128; ++row) {
      float const unknown = rows.rule.needs_angles() ? no_threshold : rows.rule.threshold();
      float const threshold = is_nan(thresholds[row / 64]) ? unknown : thresholds[row / 64];
      float const angle = scratch.rows[row].angle;
      bool const stays = memory.row_capacity > 0 && (stays_apart(angle, threshold) || is_nearly_opposite(angle));
      found.retained |= std::uint64_t{stays} << row % 64;
      if (rows.angles.data != nullptr) {
        rows.angles(sequence, i, head, row / 64, row % 64) = angle;
      }
    }
    if (rows.guesses.data != nullptr) {
      rows.guesses(sequence, i, head) = found.retained;
    }
    if (!rows.rule.needs_angles()) {  // headers have thresholds
      thresholds[0] = is_nan(thresholds[0]) ? rows.rule.threshold() : thresholds[0];
      thresholds[1] = is_nan(thresholds[1]) ? rows.rule.threshold() : thresholds[1];
    }
    return found;
  }
};

/// An executor whose own program is compress_slowly.
struct slow_executor : cpu {};

}  // namespace

namespace tessera {
inline namespace v0 {

struct compress_slowly_model {
  static constexpr char const* name = "compress_slowly";
  template <class Executor, class Call>
  static constexpr refusal refuses_types() {
    return {};
  }
  template <class Call>
  static refusal refuses(slow_executor const&, Call const&) {
    return {};
  }
  template <class Call>
  static void run(slow_executor const& exec, Call const& call) {
    using program = compress_slowly<typename Call::merger_type, typename Call::value_type>;
    if (!call.marks.is_empty()) {
      detail::compress_in_one_pass<program>(static_cast<cpu const&>(exec), call, 3);
    }
    detail::keep_new_tokens(static_cast<cpu const&>(exec), call);
  }
};

template <Merger M, class T>
struct models_for<slow_executor, cache_append_call<M, T>> {
  using type = model_list<compress_slowly_model>;
};

}  // namespace v0
}  // namespace tessera

namespace {

void check_rule(layer_pair<bfloat16> const& pair, retain_most_different const& rule, std::int64_t capacity,
                int layers = 2) {
  cache_page_format const format{64, 4, 4, 1, layers};
  cache_problem<bfloat16> plain(format, 3, 2, 700, 64, capacity);
  cache_problem<bfloat16> once(format, 3, 2, 700, 64, capacity);
  slow_executor exec;
  exec.threads = 1;
  std::int64_t first = 0;
  for (std::int64_t const count : {200, 30, 470}) {
    plain.append(cpu{.threads = 1}, pair.inputs(first, count), rule);
    once.append(exec, pair.inputs(first, count), rule);
    first += count;
  }
  CAPTURE(static_cast<int>(rule.rule), capacity, layers);
  CHECK(std::memcmp(once.memory.pages, plain.memory.pages,
                    as_size(plain.memory.page_bytes(plain.slots * plain.most_pages))) == 0);
  CHECK(once.tail == plain.tail);
  CHECK(once.rows == plain.rows);
  CHECK(once.row_counts == plain.row_counts);
  CHECK(once.refused == plain.refused);
  CHECK(std::memcmp(once.thresholds.data(), plain.thresholds.data(), plain.thresholds.size() * sizeof(float)) == 0);
  CHECK((plain.row_counts[0] > 0) == (capacity > 0));
}

}  // namespace

TEST_CASE("appends in one pass leave the bytes of those in three, whatever was guessed", "[host][long]") {
  auto pair = make_layer_pair<bfloat16>(2, 3, 700, 64);
  spoil(pair, odd_vectors::all);
  for (auto const& rule : {retain_most_different::none(), retain_most_different::range(0.05F),
                           retain_most_different::fraction(0.1F), retain_most_different::angle(1.5F)}) {
    for (std::int64_t const capacity : {0, 3, 64}) {
      check_rule(pair, rule, capacity);
    }
  }
  check_rule(pair, retain_most_different::none(), 0, 1);
}
