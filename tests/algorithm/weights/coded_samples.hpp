// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Opens streams of codes of a fixed length on any executor and copies their matrices, for tests of coded_matrix.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/algorithm/weights/coded_matrix.hpp>
#include <tessera/core/error.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/neuzip.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/tile/staged_tile.hpp>

namespace tessera_test {

using fixed_codec = tessera::neuzip_fixed<tessera::bfloat16>;

/// Copies the matrix of a source through tiles that are filled by chunks, or element by element.
template <class Source, class Tile>
struct copy_by_tiles {
  static constexpr int lanes = 32;
  struct scratch_type {
    Tile tile;
  };
  Source source;
  tessera::bfloat16* matrix;

  TESSERA_FN std::int64_t in_row() const { return tessera::divide_up(source.columns(), std::int64_t{Tile::columns}); }
  std::int64_t tiles() const { return in_row() * tessera::divide_up(source.rows(), std::int64_t{Tile::rows}); }

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type& scratch) const {
    std::int64_t const first_row = which / in_row() * Tile::rows;
    std::int64_t const first_column = which % in_row() * Tile::columns;
    source.load(group, scratch.tile, first_row, first_column);
    for (int lane : group) {
      for (int i = lane; i < Tile::rows * Tile::columns; i += lanes) {
        std::int64_t const row = first_row + i / Tile::columns;
        std::int64_t const column = first_column + i % Tile::columns;
        tessera::bfloat16 const element = scratch.tile(i / Tile::columns, i % Tile::columns);
        if (row < source.rows() && column < source.columns()) {
          matrix[row * source.columns() + column] = element;
        } else if (element.bits != 0) {
          matrix[0] = tessera::bfloat16{0xdeadU};  // outside of the matrix there are zeros
        }
      }
    }
    group.sync();
  }
};

/// A matrix as it is found on an executor, and the message of what was wrong with its stream, without the name of the
/// function.
struct found_matrix {
  std::vector<tessera::bfloat16> values;
  std::string message;
};

/// An opened stream in the memory of an executor.
template <class Exec>
class opened_stream {
 public:
  using matrix = tessera::coded_matrix<fixed_codec>;

  opened_stream(Exec const& exec, tessera::expected_weight_stream const& spec, std::vector<std::byte> const& stream,
                std::int64_t rows, std::int64_t columns)
      : exec_(exec), stream_(exec, static_cast<std::int64_t>(stream.size())) {
    exec.copy(stream, stream_);
    auto const plan = matrix::plan_open(exec, spec);
    memory_ = tessera::buffer<std::byte>(exec, plan.bytes());
    source_ = matrix::open(exec, {spec, stream_.view(), rows, columns}, tessera::workspace(plan, memory_));
  }
  [[nodiscard]] tessera::coded_weights const& source() const { return source_; }

  /// Copies the matrix and waits.
  template <class Tile>
  [[nodiscard]] found_matrix copied() const {
    std::int64_t const count = source_.rows() * source_.columns();
    found_matrix found{std::vector<tessera::bfloat16>(static_cast<std::size_t>(count)), ""};
    tessera::buffer<tessera::bfloat16> values(exec_, count);
    copy_by_tiles<tessera::coded_weights, Tile> const program{source_, values.data()};
    exec_.run(program, program.tiles());
    exec_.copy(values, found.values);
    try {
      exec_.wait();
    } catch (tessera::corrupt_data const& problem) {
      std::string const message = problem.what();
      found.message = message.substr(message.find(':'));
    }
    return found;
  }

 private:
  Exec exec_;
  tessera::buffer<std::byte> stream_;
  tessera::buffer<std::byte> memory_;
  tessera::coded_weights source_{};
};

using tile_of_chunks = tessera::staged_tile<tessera::bfloat16, 16, 64>;
using tile_of_elements = tessera::detail::plain_tile<tessera::bfloat16, 8, 24>;

inline std::int64_t differing(std::vector<tessera::bfloat16> const& a, std::vector<tessera::bfloat16> const& b) {
  std::int64_t count = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    count += a[i].bits != b[i].bits ? 1 : 0;
  }
  return count;
}

/// Normal weights with exact zeros and weights far smaller and larger, which are escapes.
inline std::vector<tessera::bfloat16> weights_with_escapes(std::int64_t count, std::uint64_t seed) {
  std::vector<tessera::bfloat16> made;
  for (std::int64_t i = 0; i < count; ++i) {
    auto const index = static_cast<std::uint64_t>(i);
    std::uint64_t const random = tessera::testing::hash(seed, index) % 300;
    float const value = tessera::testing::gauss{.sigma = 0.02}.value(seed, index);
    made.push_back(tessera::store<tessera::bfloat16>(random == 0   ? value * 0x1p-24F
                                                     : random == 1 ? value * 64.0F
                                                     : random < 5  ? 0.0F
                                                                   : value));
  }
  return made;
}

}  // namespace tessera_test
