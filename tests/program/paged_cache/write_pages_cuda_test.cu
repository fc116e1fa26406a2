// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/algorithm/paged_cache/paged_cache.cuh>
#include <tessera/exec/cpu.hpp>
#include <tessera/merge/average.hpp>
#include <tessera/merge/magnitude.hpp>
#include <tessera/merge/slerp.hpp>

#include "support/cache_on_device.hpp"
#include "support/cache_problem.hpp"
#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "support/odd_vectors.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

struct compression_setup {
  std::int64_t sequences = 2;
  std::int64_t heads = 2;
  std::vector<std::int64_t> appends = {353, 347};  ///< tokens of each append
  std::int64_t window = 64;
  std::int64_t capacity = 64;
  int layers = 2;
  retain_most_different rule = retain_most_different::range(0.3F);
  odd_vectors odd = odd_vectors::none;
  bool tokens_first = false;  ///< whether inputs have tokens before heads in memory

  std::int64_t tokens() const {
    std::int64_t sum = 0;
    for (std::int64_t const count : appends) {
      sum += count;
    }
    return sum;
  }
};

/// The values with the order of heads and tokens exchanged.
template <class T>
std::vector<T> turned(layer_pair<T> const& pair, std::vector<T> const& values) {
  std::vector<T> made(values.size());
  for (std::int64_t i = 0; i < pair.sequences * pair.heads * pair.tokens; ++i) {
    std::int64_t const token = i % pair.tokens;
    std::int64_t const head = i / pair.tokens % pair.heads;
    std::int64_t const to = (i / pair.tokens / pair.heads * pair.tokens + token) * pair.heads + head;
    std::memcpy(&made[as_size(to * pair.channels)], &values[as_size(i * pair.channels)],
                as_size(pair.channels) * sizeof(T));
  }
  return made;
}

template <class T>
struct inputs_on_device {
  layer_pair<T> const& pair;
  bool tokens_first;
  buffer<T> memory[2][2];

  inputs_on_device(cuda const& exec, layer_pair<T> const& from, bool turn) : pair(from), tokens_first(turn) {
    for (int layer = 0; layer < 2; ++layer) {
      for (int part = 0; part < 2; ++part) {
        std::vector<T> const& values = from.part[layer][part];
        memory[layer][part] = on_device(exec, turn ? turned(from, values) : values);
      }
    }
  }
  head_view<T const> heads_of(int layer, int part, std::int64_t first, std::int64_t count) const {
    T const* const data = memory[layer][part].data();
    head_view<T const> const plain(data, {pair.sequences, pair.heads, pair.tokens, pair.channels});
    head_view<T const> const turn(data, {pair.sequences, pair.tokens, pair.heads, pair.channels});
    return (tokens_first ? turn.transposed(1, 2) : plain).slice(2, first, count);
  }
  cache_inputs<T> inputs(std::int64_t first, std::int64_t count) const {
    return {{heads_of(0, 0, first, count), heads_of(1, 0, first, count)},
            {heads_of(0, 1, first, count), heads_of(1, 1, first, count)}};
  }
};

template <class T>
bool is_same(std::vector<T> const& found, T const* expected) {
  return std::memcmp(static_cast<void const*>(found.data()), expected, found.size() * sizeof(T)) == 0;
}

/// The name of the part of a page to which byte `at` belongs.
std::string part_of_page(cache_page_format const& format, int at) {
  struct part {
    char const* name;
    int end;
  };
  part const parts[] = {{"key norms of the first layer", format.value_scales(0)},
                        {"value scales of the first layer", format.header()},
                        {"header", format.key_scales()},
                        {"key scales", format.key_minima()},
                        {"key minima", format.key_codes()},
                        {"key codes", format.value_codes()},
                        {"value codes", format.value_ratios()},
                        {"value ratios", format.read_bytes()},
                        {"key norms of the second layer", format.read_bytes() + 2 * cache_page_format::tokens},
                        {"value scales of the second layer", format.bytes()}};
  int begin = 0;
  for (part const& one : parts) {
    if (at < one.end) {
      return std::string(one.name) + ", byte " + std::to_string(at - begin);
    }
    begin = one.end;
  }
  return "no part";
}

/// Where pages differ first, and in how many bytes; empty if they are the same.
std::string difference_of_pages(cache_page_format const& format, std::vector<std::byte> const& found,
                                std::byte const* expected) {
  std::size_t count = 0;
  std::size_t first = found.size();
  for (std::size_t i = found.size(); i-- > 0;) {
    if (found[i] != expected[i]) {
      ++count;
      first = i;
    }
  }
  if (count == 0) {
    return "";
  }
  auto const of_page = static_cast<int>(first % static_cast<std::size_t>(format.bytes()));
  auto const page = first / static_cast<std::size_t>(format.bytes());
  return std::to_string(count) + " bytes differ, first of page " + std::to_string(page) + ": " +
         part_of_page(format, of_page) + ", " + std::to_string(std::to_integer<int>(found[first])) + " instead of " +
         std::to_string(std::to_integer<int>(expected[first]));
}

/// How a device's own program copies.
using own_copies = std::conditional_t<cuda::is_compiled_for<900>, bulk_page_copies, chunk_page_copies>;

/// Appends to the device's cache what was appended to the host's.
template <class Copies, cache_page_format Format, class Merger, class T>
void append_there(cuda const& exec, cache_on_device<T> const& there, cache_problem<T> const& host,
                  compression_setup const& setup, cache_inputs<T> const& inputs, Merger const& merger) {
  std::int64_t const count = inputs.keys[0].extent(2);
  cache_append_regions const regions("test", setup.sequences, count, setup.heads);
  auto memory = on_device(exec, std::vector<std::byte>(as_size(regions.plan.bytes()), std::byte{0xa5}));
  auto const lengths = on_device(exec, host.lengths);
  workspace const space(regions.plan, memory.view());
  cache_sequences sequences = there.sequences();
  sequences.lengths = {lengths.data(), lengths.size()};
  cache_append_call<Merger, T> const call{merger,
                                          setup.rule,
                                          false,
                                          {there.memory, inputs, sequences, count, regions.pages},
                                          regions.rows_in(space),
                                          regions.marks_in(space)};
  using program_type = compress_pages<Format, Merger, T, Copies>;
  REQUIRE(exec.template has<program_type>());
  tessera::detail::compress_in_one_pass<program_type>(exec, call, tessera::detail::resident_blocks<program_type>(exec));
  tessera::detail::keep_new_tokens(exec, call);
  exec.wait();
}

template <class T, cache_page_format Format, class Merger, class Copies = own_copies>
void check_format(compression_setup const& setup, Merger const& merger) {
  cuda const exec;
  cache_page_format format = Format;
  format.layers = setup.layers;
  auto pair = make_layer_pair<T>(setup.sequences, setup.heads, setup.tokens(), Format.channels);
  spoil(pair, setup.odd);
  cache_problem<T> host(format, setup.heads, setup.sequences, setup.tokens(), setup.window, setup.capacity);
  cache_on_device<T> const there(exec, host);
  inputs_on_device<T> const inputs(exec, pair, setup.tokens_first);
  std::int64_t first = 0;
  for (std::int64_t const count : setup.appends) {
    host.append(cpu{}, pair.inputs(first, count), setup.rule, merger);
    append_there<Copies, Format>(exec, there, host, setup, inputs.inputs(first, count), merger);
    first += count;
  }
  CAPTURE(Format.channels, Format.value_groups, Format.key_bits, Format.value_bits, setup.layers, setup.capacity,
          static_cast<int>(setup.rule.rule), static_cast<unsigned>(setup.odd));
  CHECK(difference_of_pages(format, on_host(exec, there.pages), host.memory.pages) == "");
  CHECK(is_same(on_host(exec, there.tail), host.tail.data()));
  CHECK(is_same(on_host(exec, there.rows), host.rows.data()));
  CHECK(is_same(on_host(exec, there.counts), host.row_counts.data()));
  CHECK(is_same(on_host(exec, there.refused), host.refused.data()));
  CHECK(is_same(on_host(exec, there.thresholds), host.thresholds.data()));
}
/// The same for pages of 4 bits.
template <class T, int Channels, int Groups, class Merger = slerp_merger<float>>
void check_bytes(compression_setup const& setup, Merger const& merger = {}) {
  check_format<T, cache_page_format{Channels, 4, 4, Groups, 2}>(setup, merger);
}
/// The same for pages of other bits.
template <class T, cache_page_format Format>
void check_bits(compression_setup const& setup) {
  check_format<T, Format>(setup, slerp_merger<float>{});
}

}  // namespace

TEST_CASE("pages made in one pass are those of the host, for every width of heads and groups", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_bytes<bfloat16, 64, 1>({});
  check_bytes<bfloat16, 128, 1>({});
  check_bytes<bfloat16, 128, 2>({});
  check_bytes<bfloat16, 256, 1>({});
  check_bytes<bfloat16, 256, 2>({});
  check_bytes<bfloat16, 256, 4>({});
  check_bytes<float16, 64, 1>({});
  check_bytes<float16, 128, 2>({});
}

TEST_CASE("pages made in one pass are those of the host, whatever is retained", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (auto const& rule : {retain_most_different::none(), retain_most_different::range(0.05F),
                           retain_most_different::fraction(0.1F), retain_most_different::angle(1.5F)}) {
    for (std::int64_t const capacity : {0, 3, 64}) {
      check_bytes<bfloat16, 128, 2>({.capacity = capacity, .rule = rule});
    }
  }
  check_bytes<bfloat16, 128, 2>({.capacity = 0, .layers = 1, .rule = retain_most_different::none()});
  check_bytes<float16, 64, 1>({.capacity = 8, .layers = 1, .rule = retain_most_different::none()});
}

TEST_CASE("pages made in one pass are those of the host, of any vectors", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (odd_vectors const odd : {odd_vectors::not_finite, odd_vectors::zeros, odd_vectors::related,
                                odd_vectors::long_ones, odd_vectors::signed_zeros, odd_vectors::all}) {
    for (std::int64_t const capacity : {0, 64}) {
      check_bytes<bfloat16, 128, 2>({.capacity = capacity, .odd = odd});
      check_bytes<float16, 64, 1>({.capacity = capacity, .odd = odd});
    }
  }
}

TEST_CASE("pages made in one pass are those of the host, for every merger", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  compression_setup const odd{.odd = odd_vectors::all};
  check_bytes<bfloat16, 128, 2, average_merger<float>>(odd);
  check_bytes<bfloat16, 128, 2, longer_vector_merger<float>>(odd);
  check_bytes<bfloat16, 128, 2, average_direction_merger<float>>(odd);
  check_bytes<bfloat16, 128, 2, norm_weighted_slerp_merger<float>>(odd);
  check_bytes<bfloat16, 128, 2, slerp_merger<float, least_squares>>(odd);
}

TEST_CASE("pages made in one pass are those of the host, of few and of many tokens at a time", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_bytes<bfloat16, 128, 2>({.appends = {1, 63, 64, 65, 3, 200, 128, 1}, .window = 128});
  check_bytes<bfloat16, 128, 2>({.appends = {64, 64, 17, 300}, .window = 0, .tokens_first = true});
  check_bytes<float16, 64, 1>({.appends = {130, 1, 255}, .tokens_first = true});
  // Several turns of a block.
  check_bytes<bfloat16, 128, 2>({.sequences = 9, .heads = 8, .appends = {900}, .tokens_first = true});
}

TEST_CASE("pages of fewer bits made in one pass are those of the host", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_bits<bfloat16, cache_page_format{64, 3, 3, 1, 2}>({});
  check_bits<bfloat16, cache_page_format{128, 3, 3, 2, 2}>({});
  check_bits<float16, cache_page_format{256, 3, 3, 4, 2}>({});
  check_bits<float16, cache_page_format{64, 4, 2, 1, 2}>({});
  check_bits<bfloat16, cache_page_format{128, 4, 2, 2, 2}>({});
  check_bits<bfloat16, cache_page_format{256, 4, 2, 4, 2}>({});
  check_bits<bfloat16, cache_page_format{64, 2, 2, 1, 2}>({});
  check_bits<float16, cache_page_format{128, 2, 2, 2, 2}>({});
  check_bits<bfloat16, cache_page_format{256, 2, 2, 4, 2}>({});
}

TEST_CASE("pages of fewer bits made in one pass are those of the host, of any vectors and whatever is retained",
          "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (odd_vectors const odd : {odd_vectors::none, odd_vectors::not_finite, odd_vectors::zeros, odd_vectors::related,
                                odd_vectors::long_ones, odd_vectors::signed_zeros, odd_vectors::all}) {
    for (std::int64_t const capacity : {0, 64}) {
      check_bits<bfloat16, cache_page_format{128, 3, 3, 2, 2}>({.capacity = capacity, .odd = odd});
      check_bits<bfloat16, cache_page_format{128, 4, 2, 2, 2}>({.capacity = capacity, .odd = odd});
      check_bits<float16, cache_page_format{64, 3, 3, 1, 2}>({.capacity = capacity, .odd = odd});
    }
  }
  for (auto const& rule :
       {retain_most_different::none(), retain_most_different::fraction(0.1F), retain_most_different::angle(1.5F)}) {
    check_bits<bfloat16, cache_page_format{128, 3, 3, 2, 2}>({.capacity = 3, .rule = rule});
    check_bits<bfloat16, cache_page_format{128, 4, 2, 2, 2}>({.capacity = 3, .rule = rule});
  }
  check_bits<bfloat16, cache_page_format{128, 3, 3, 2, 2}>(
      {.capacity = 0, .layers = 1, .rule = retain_most_different::none()});
  check_bits<bfloat16, cache_page_format{128, 4, 2, 2, 2}>(
      {.capacity = 0, .layers = 1, .rule = retain_most_different::none()});
}

TEST_CASE("pages of fewer bits made in one pass are those of the host, of few and of many tokens at a time", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  compression_setup const few{.appends = {1, 63, 64, 65, 3, 200, 128, 1}, .window = 128};
  compression_setup const many{.sequences = 9, .heads = 8, .appends = {900}, .tokens_first = true};
  check_bits<bfloat16, cache_page_format{128, 3, 3, 2, 2}>(few);
  check_bits<bfloat16, cache_page_format{128, 3, 3, 2, 2}>(many);
  check_bits<bfloat16, cache_page_format{128, 4, 2, 2, 2}>(few);
  check_bits<bfloat16, cache_page_format{128, 4, 2, 2, 2}>(many);
  check_bits<float16, cache_page_format{64, 2, 2, 1, 2}>(many);
}

TEST_CASE("pages that all threads copy are those of the host", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto const check = []<cache_page_format Format>(std::integral_constant<cache_page_format, Format>,
                                                  compression_setup const& setup) {
    check_format<bfloat16, Format, slerp_merger<float>, chunk_page_copies>(setup, {});
  };
  std::integral_constant<cache_page_format, cache_page_format{128, 4, 4, 2, 2}> const usual;
  std::integral_constant<cache_page_format, cache_page_format{64, 3, 3, 1, 2}> const narrow;
  check(usual, {});
  check(narrow, {});
  check(usual, {.odd = odd_vectors::all});
  check(usual, {.capacity = 0, .layers = 1, .rule = retain_most_different::none()});
  check(usual, {.appends = {1, 63, 64, 65, 3, 200, 128, 1}, .window = 128});
  for (bool const tokens_first : {false, true}) {
    check(usual, {.sequences = 9, .heads = 8, .appends = {900}, .tokens_first = tokens_first});
    check(narrow, {.sequences = 9, .heads = 8, .appends = {900}, .tokens_first = tokens_first});
  }
}
