// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include <tessera/algorithm/gemm/linear.hpp>
#include <tessera/algorithm/weights/coded_matrix.hpp>
#include <tessera/entropy/exponent_window.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/broken_weight_streams.hpp>
#include <tessera/testing/laws/tile_source.hpp>
#include <tessera/tile/serial/group.hpp>

#include "algorithm/weights/coded_samples.hpp"
#include "algorithm/weights/weight_samples.hpp"
#include "support/catch.hpp"
#include "support/codecs.hpp"
#include "support/message_of.hpp"

using namespace tessera;
using tessera_test::differing;
using tessera_test::fixed_codec;
using tessera_test::message_of;
using tessera_test::opened_stream;
using tessera_test::tile_of_chunks;
using tessera_test::tile_of_elements;
using tessera_test::weight_kind;
using matrix = coded_matrix<fixed_codec>;

namespace {

std::vector<std::byte> encoded(std::vector<bfloat16> const& weights, weight_stream_options options) {
  auto const stream = fixed_codec::encode(cpu{}, weights, options);
  return {stream.begin(), stream.end()};
}

void check_matrix(std::vector<bfloat16> const& weights, std::int64_t rows, std::int64_t columns, int block) {
  cpu const exec;
  weight_stream_options const options{.block = block, .checksums = columns % 3 == 0};
  opened_stream<cpu> const opened(exec, fixed_codec::spec(rows * columns, options), encoded(weights, options), rows,
                                  columns);
  auto const by_chunks = opened.copied<tile_of_chunks>();
  auto const by_elements = opened.copied<tile_of_elements>();
  CHECK(differing(by_chunks.values, weights) == 0);
  CHECK(differing(by_elements.values, weights) == 0);
  CHECK(by_chunks.message.empty());
  CHECK(by_elements.message.empty());
}

}  // namespace

TEST_CASE("coded matrices have the bits of their weights, whatever kind of blocks they are in", "[host]") {
  for (weight_kind const kind : tessera_test::weight_kinds) {
    for (std::int64_t const columns : {std::int64_t{208}, std::int64_t{1024}, std::int64_t{515}}) {
      std::int64_t const rows = 20'001 / columns + 3;
      CAPTURE(static_cast<int>(kind), columns);
      std::vector<bfloat16> weights;
      for (std::int64_t i = 0; i < rows * columns; ++i) {
        weights.push_back(tessera_test::weight_of<bfloat16>(kind, 3, i));
      }
      check_matrix(weights, rows, columns, columns == 208 ? 8192 : 1024);
    }
  }
}

TEST_CASE("coded matrices with windows at either end of the exponents have the bits of their weights", "[host]") {
  for (std::uint32_t const lowest : {0U, 1U, 120U, 239U, 240U, 241U}) {
    std::vector<bfloat16> weights;
    for (std::uint64_t i = 0; i < 64 * 256; ++i) {
      std::uint64_t const random = testing::hash(5, i);
      std::uint32_t const exponent =
          lowest + static_cast<std::uint32_t>(random >> 32) % (256U - lowest < 16U ? 256U - lowest : 16U);
      weights.push_back(bfloat16{static_cast<std::uint16_t>((random & 0x807fU) | exponent << 7)});
    }
    CAPTURE(lowest);
    check_matrix(weights, 64, 256, 2048);
  }
}

TEST_CASE("coded matrices are tile sources", "[host]") {
  cpu const exec;
  for (std::int64_t const columns : {std::int64_t{96}, std::int64_t{90}}) {
    auto const weights = tessera_test::weights_with_escapes(40 * columns, 7);
    opened_stream<cpu> const opened(exec, fixed_codec::spec(40 * columns), encoded(weights, {}), 40, columns);
    auto const report = testing::check_laws<coded_weights>(opened.source(), serial_group<32>{});
    INFO(report.text());
    CHECK(report.is_empty());
  }
}

TEST_CASE("streams are opened in the same way whatever the order in which lanes run", "[host]") {
  weight_stream_options const options{.block = 1024, .checksums = true};
  auto const weights = tessera_test::weights_with_escapes(30 * 112, 5);
  for (std::uint64_t seed = 1; seed < 4; ++seed) {
    testing::adversary const exec{.seed = seed};
    opened_stream<testing::adversary> const opened(exec, fixed_codec::spec(30 * 112, options),
                                                   encoded(weights, options), 30, 112);
    CHECK(differing(opened.copied<tile_of_chunks>().values, weights) == 0);
  }
}

TEST_CASE("products with coded weights have the bits of those with decoded weights", "[host]") {
  cpu const exec;
  auto const weights = tessera_test::weights_with_escapes(40 * 208, 1);
  auto const inputs = tessera_test::weights_with_escapes(9 * 208, 2);
  opened_stream<cpu> const opened(exec, fixed_codec::spec(40 * 208), encoded(weights, {}), 40, 208);
  std::vector<float> found(9 * 40);
  std::vector<float> expected(9 * 40);
  matrix_view<bfloat16 const> const of_inputs(inputs.data(), {9, 208});
  linear<bfloat16>::forward(exec, of_inputs, opened.source(), matrix_view<float>(found.data(), {9, 40}));
  linear<bfloat16>::forward(exec, of_inputs, matrix_view<bfloat16 const>(weights.data(), {40, 208}),
                            matrix_view<float>(expected.data(), {9, 40}));
  exec.wait();
  CHECK(found == expected);
}

TEST_CASE("a broken stream is opened as it is decoded: the same message, and the same weights", "[host]") {
  cpu const exec{.threads = 1};
  constexpr std::int64_t rows = 40;
  constexpr std::int64_t columns = 160;
  int refused = 0;
  for (bool const checksums : {false, true}) {
    weight_stream_options const options{.block = 1024, .checksums = checksums};
    auto const spec = fixed_codec::spec(rows * columns, options);
    auto const sound = encoded(tessera_test::weights_with_escapes(rows * columns, 3), options);
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
      auto broken = sound;
      testing::break_weight_stream(broken, seed);
      if (static_cast<std::int64_t>(broken.size()) < spec.smallest_bytes()) {
        continue;
      }
      buffer<std::byte> stream(std::ssize(broken));
      std::copy(broken.begin(), broken.end(), stream.begin());
      std::vector<bfloat16> expected(static_cast<std::size_t>(rows * columns));
      buffer<std::byte> memory(exec, fixed_codec::plan_decode(exec, spec).bytes());
      std::string message;
      fixed_codec::decode(exec, spec, stream.view(), array_view<bfloat16>(expected.data(), rows * columns),
                          workspace(fixed_codec::plan_decode(exec, spec), memory));
      try {
        exec.wait();
      } catch (corrupt_data const& problem) {
        message = problem.what();
        message = message.substr(message.find(':'));
      }
      auto const found = opened_stream<cpu>(exec, spec, broken, rows, columns).copied<tile_of_chunks>();
      CAPTURE(seed, checksums);
      CHECK(found.message == message);
      CHECK(differing(found.values, expected) == 0);
      refused += message.empty() ? 0 : 1;
    }
  }
  CHECK(refused > 100);
}

TEST_CASE("weights of a coded matrix that no code says are listed, each once and in order", "[host]") {
  cpu const exec;
  constexpr std::int64_t rows = 17;
  constexpr std::int64_t columns = 1000;
  for (weight_kind const kind : tessera_test::weight_kinds) {
    CAPTURE(static_cast<int>(kind));
    std::vector<bfloat16> weights;
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      weights.push_back(tessera_test::weight_of<bfloat16>(kind, 5, i));
    }
    weight_stream_options const options{.block = 2048};
    opened_stream<cpu> const opened(exec, fixed_codec::spec(rows * columns, options), encoded(weights, options), rows,
                                    columns);
    coded_weights const& source = opened.source();
    std::vector<bool> is_listed(weights.size());
    std::int64_t wrong = 0;
    std::int64_t last = -1;
    for (std::int64_t block = 0; block < divide_up(rows * columns, std::int64_t{2048}); ++block) {
      for (int i = 0; i < source.uncoded_in(block); ++i) {
        auto const found = source.uncoded(block, i);
        auto const at = static_cast<std::size_t>(found.position);
        bool const is_here = found.position > last && found.position / 2048 == block && at < weights.size();
        wrong += is_here && found.value.bits == weights[at].bits ? 0 : 1;
        is_listed[at < weights.size() ? at : 0] = true;
        last = found.position;
      }
    }
    CHECK(wrong == 0);
    std::int64_t missing = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      bool const has_code = source.window->code(weights[i].bits >> 7 & 0xffU) != exponent_window::escape_code;
      bool const is_coded = source.blocks[i / 2048].is_coded();
      missing += is_listed[i] == !(is_coded && has_code) ? 0 : 1;
    }
    CHECK(missing == 0);
  }
}

TEST_CASE("blocks with codes of escapes that no list has are not opened as coded", "[host]") {
  cpu const exec;
  std::vector<bfloat16> weights(2048, bfloat16{0x3c00U});
  for (std::size_t i = 0; i < weights.size(); i += 3) {
    weights[i] = bfloat16{0x3d00U};
  }
  weight_stream_options const options{.block = 1024};
  auto const spec = fixed_codec::spec(2048, options);
  auto const sound = encoded(weights, options);
  opened_stream<cpu> const before(exec, spec, sound, 2, 1024);
  REQUIRE(before.source().blocks[1].is_coded());
  auto broken = sound;
  auto const codes = static_cast<std::size_t>(spec.payload_offset() + before.source().blocks[1].position * 16);
  broken[codes + 7] = std::byte{0xff};  // two codes of escapes
  opened_stream<cpu> const after(exec, spec, broken, 2, 1024);
  CHECK(after.source().blocks[0].is_coded());
  CHECK(after.source().blocks[1].kind() == block_kind::unusual);
  auto const& window = *after.source().window;
  auto const found = after.copied<tile_of_chunks>();
  CHECK(found.message.empty());
  CHECK((found.values[1024 + 14].bits >> 7 & 0xffU) == window.exponent(exponent_window::escape_code));
  CHECK((found.values[1024 + 16].bits >> 7 & 0xffU) == (weights[1024 + 16].bits >> 7 & 0xffU));
}

TEST_CASE("coded matrices are refused where shapes, streams or codes do not fit", "[host]") {
  cpu const exec;
  auto const weights = tessera_test::weights_with_escapes(32 * 256, 1);
  auto const spec = fixed_codec::spec(32 * 256);
  auto const bytes = encoded(weights, {});
  buffer<std::byte> stream(std::ssize(bytes) + 16);
  std::copy(bytes.begin(), bytes.end(), stream.begin());
  auto const plan = matrix::plan_open(exec, spec);
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  auto const open = [&](matrix::matrix const& from) {
    return message_of([&] { static_cast<void>(matrix::open(exec, from, space)); });
  };
  CHECK(open({spec, stream.view(), 32, 255}) ==
        "coded_matrix.open: 32 rows of 255 columns take 8160 weights but the stream has 8192");
  CHECK(open({spec, stream.view(), -1, -8192}) ==
        "coded_matrix.open: the matrix has -1 rows and -8192 columns but must have at least 0");
  CHECK(open({spec, stream.view().slice(0, 0, 64), 32, 256}).find("the stream has 64 bytes but needs at least") !=
        std::string::npos);
  CHECK(open({fixed_codec::spec(100), stream.view(), 10, 10}) ==
        "coded_matrix.open: the stream stores 100 values without codes, which `linear` multiplies as they are");
  CHECK(message_of([&] { static_cast<void>(matrix::plan_open(exec, neuzip::spec(32 * 256))); }) ==
        "coded_matrix.open: the stream has coder 1 but the codec has 2");
}
