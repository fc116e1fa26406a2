// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/program/loss/detail/convert_entries.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/tile/source/converted.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

using source_type = converted<float, bfloat16>;

/// A classifier whose elements are numbers that bf16 holds: entry + 1 in even channels, minus that in odd ones.
struct numbered_rows {
  std::int64_t vocabulary;
  std::int64_t channels;
  std::vector<float> values;

  numbered_rows(std::int64_t entries, std::int64_t columns) : vocabulary(entries), channels(columns) {
    for (std::int64_t entry = 0; entry < entries; ++entry) {
      for (std::int64_t channel = 0; channel < columns; ++channel) {
        values.push_back(static_cast<float>(channel % 2 == 0 ? entry + 1 : -entry - 1));
      }
    }
  }
  source_type source() const { return source_type(matrix_view<float const>(values.data(), {vocabulary, channels})); }
};

/// Runs the program, and gives the number in each row of the band: 0.5 where nothing was written, 1e6 where channels
/// differ or what lies between rows has changed.
template <class Exec, class Rows>
std::vector<float> rows_of_band(Exec const& exec, numbered_rows const& of, Rows const& rows, std::int64_t count) {
  std::int64_t const stride = (of.channels + 7) / 8 * 8;
  std::vector<bfloat16> band(static_cast<std::size_t>(count * stride), store<bfloat16>(0.5F));
  detail::convert_entries<source_type, Rows> const program{
      of.source(), rows, matrix_view<bfloat16>(band.data(), {count, of.channels}, {stride, 1})};
  exec.run(program, program.groups());
  exec.wait();
  std::vector<float> found;
  for (std::int64_t row = 0; row < count; ++row) {
    float const first = load(band[static_cast<std::size_t>(row * stride)]);
    bool is_same = true;
    for (std::int64_t channel = 0; channel < stride; ++channel) {
      float const value = load(band[static_cast<std::size_t>(row * stride + channel)]);
      float const wanted = channel >= of.channels ? 0.5F : channel % 2 == 0 || first == 0.5F ? first : -first;
      is_same = is_same && value == wanted;
    }
    found.push_back(is_same ? first : 1e6F);
  }
  return found;
}

}  // namespace

TEST_CASE("bands have rows of entries in their own order, whatever the channels", "[host][threads]") {
  for (std::int64_t const channels : {1, 7, 8, 1023, 1024, 1025, 2100}) {
    CAPTURE(channels);
    numbered_rows const of(20, channels);
    std::vector<float> const expected{4, 5, 6, 7, 8, 9};
    CHECK(rows_of_band(cpu{.threads = 2}, of, detail::rows_in_order{3}, 6) == expected);
    CHECK(rows_of_band(testing::adversary{.seed = 8}, of, detail::rows_in_order{3}, 6) == expected);
  }
}

TEST_CASE("bands have rows of the slots of a part, zeros to the end of a panel, and nothing behind it", "[host]") {
  numbered_rows const of(250, 9);
  std::vector<std::int32_t> entry_of;
  for (std::int32_t slot = 0; slot < 250; ++slot) {
    entry_of.push_back(slot * 7 % 250);
  }
  std::int64_t const alive = 130;
  loss_part_range const range{128, 384, 250, &alive, nullptr};
  auto const found = rows_of_band(cpu{.threads = 1}, of, detail::rows_of_slots{range, entry_of}, 384);
  CHECK(found[0] == static_cast<float>(128 * 7 % 250 + 1));
  CHECK(found[1] == static_cast<float>(129 * 7 % 250 + 1));
  CHECK(std::count(found.begin() + 2, found.begin() + 256, 0.0F) == 254);
  CHECK(std::count(found.begin() + 256, found.end(), 0.5F) == 128);
}

TEST_CASE("bands have the tiles at positions of a schedule, where its work items look for them", "[host]") {
  constexpr std::int32_t columns = 4;
  numbered_rows const of(110, 8);  // 28 tiles, the last of which has two entries
  row_schedule const whole = row_schedule::make(3, 28, 1, 5);
  std::vector<int> seen(28);
  for (std::int32_t first = 0; first < 28; first += 6) {
    detail::band_schedule const schedule{whole.of_positions(first, std::min(first + 6, 28))};
    auto const band = rows_of_band(cpu{.threads = 1}, of, detail::rows_of_positions{schedule, columns, 110},
                                   std::int64_t{columns} * schedule.positions);
    for (std::int32_t index = 0; index < schedule.count(); ++index) {
      gemm_work_item const item = schedule.at(index);
      for (std::int32_t i = 0; item.k_tiles > 0 && i < columns; ++i) {
        std::int32_t const entry = item.column * columns + i;
        CHECK(band[static_cast<std::size_t>(schedule.tile_of_b(index) * columns + i)] ==
              (entry < 110 ? static_cast<float>(entry + 1) : 0.0F));
      }
      seen[static_cast<std::size_t>(item.column)] += item.k_tiles > 0 ? 1 : 0;
    }
  }
  CHECK(std::count(seen.begin(), seen.end(), 3) == 28);
}

TEST_CASE("bands cover the positions of a launch once, and let workers end their turns together", "[host]") {
  row_schedule const whole = row_schedule::make(32, 668, 64, 132, 8);
  detail::loss_bands const bands = detail::loss_bands::make(whole, 37);
  CHECK(bands.length == 33);  // 8 turns of 4 splits, whose tails 4 workers take
  CHECK(whole.of_positions(0, 33).steps() == 8);
  for (std::int32_t const most : {1, 2, 7, 32, 66, 668}) {
    detail::loss_bands const some = detail::loss_bands::make(whole.of_positions(5, 600), most);
    CHECK((some.length >= 1 && some.length <= most && 4 * some.length >= 3 * most));
    std::int32_t next = 5;
    some.each([&](row_schedule const& band) {
      CHECK(band.first_position == next);
      CHECK((band.positions >= 1 && band.positions <= some.length));
      next += band.positions;
    });
    CHECK(next == 600);
  }
}
