// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/program/loss/block_lists.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

std::vector<std::uint8_t> some_ones(std::int64_t count, std::uint64_t seed, std::uint64_t every) {
  std::vector<std::uint8_t> values;
  for (std::int64_t i = 0; i < count; ++i) {
    values.push_back(testing::hash(seed, static_cast<std::uint64_t>(i)) % every == 0 ? 1 : 0);
  }
  return values;
}

/// Checks the lists of `rows` blocks of tokens and `columns` blocks of entries.
void check_lists(std::int32_t rows, std::int32_t columns, std::uint64_t every) {
  CAPTURE(rows, columns, every);
  cpu const exec{.threads = 2};
  std::int32_t const token_panels = divide_up(rows, 2);
  std::int32_t const entry_panels = divide_up(columns, 2);
  auto for_hidden = some_ones(rows * columns, 1, every);
  auto for_classifier = some_ones(rows * columns, 2, every);
  auto const unclean = some_ones(rows, 3, 3);
  auto const hidden_before = for_hidden;
  auto const classifier_before = for_classifier;
  std::vector<std::int32_t> counts(static_cast<std::size_t>(token_panels + entry_panels), -1);
  std::vector<std::int32_t> lists(static_cast<std::size_t>(entry_panels * rows + token_panels * columns), -1);
  loss_product_schedule const schedule{counts.data(), lists.data(), entry_panels, token_panels, 5, rows, columns, 2};
  list_loss_blocks const program{{0, columns * std::int64_t{128}, columns * std::int64_t{128}, nullptr},
                                 schedule,
                                 counts,
                                 lists,
                                 {for_hidden.data(), {rows, columns}},
                                 {for_classifier.data(), {rows, columns}},
                                 unclean};
  exec.run(program, program.groups());
  CHECK(std::all_of(for_hidden.begin(), for_hidden.end(), [](std::uint8_t kept) { return kept == 0; }));
  CHECK(std::all_of(for_classifier.begin(), for_classifier.end(), [](std::uint8_t kept) { return kept == 0; }));
  constexpr std::int32_t workers = 7;
  std::vector<int> visits(static_cast<std::size_t>(schedule.count()));
  std::int64_t wrong = 0;
  for (std::int32_t turn = 0; turn < divide_up(schedule.count(), workers); ++turn) {
    for (std::int32_t worker = 0; worker < workers; ++worker) {
      loss_product_item const item = schedule.at(turn, worker, workers);
      if (item.panel < 0) {
        wrong += item.count == 0 ? 0 : 1;
        continue;
      }
      std::int32_t const list = item.is_hidden ? entry_panels + item.panel : item.panel;
      ++visits[static_cast<std::size_t>(list * 5 + item.channel_tile)];
      std::vector<std::int32_t> expected;
      bool is_unclean = false;
      for (std::int32_t block = 0; block < (item.is_hidden ? columns : rows); ++block) {
        bool kept = false;
        for (std::int32_t own = 2 * item.panel; own < 2 * item.panel + 2; ++own) {
          if (own < (item.is_hidden ? rows : columns)) {
            auto const at = static_cast<std::size_t>(item.is_hidden ? own * columns + block : block * columns + own);
            kept = kept || (item.is_hidden ? hidden_before : classifier_before)[at] != 0;
          }
        }
        if (kept) {
          bool const cleaned = !item.is_hidden && unclean[static_cast<std::size_t>(block)] != 0;
          expected.push_back(loss_list_entry::make(block, cleaned));
          is_unclean = is_unclean || cleaned;
        }
      }
      wrong += std::vector<std::int32_t>(item.list, item.list + item.count) == expected ? 0 : 1;
      wrong += item.is_unclean == is_unclean ? 0 : 1;
    }
  }
  CHECK(wrong == 0);
  CHECK(std::all_of(visits.begin(), visits.end(), [](int count) { return count == 1; }));
}

}  // namespace

TEST_CASE("lists name the blocks that are kept for a panel, and work items go through each list once a tile",
          "[host][threads]") {
  check_lists(1, 1, 1);
  check_lists(1, 2, 2);
  check_lists(5, 3, 2);
  check_lists(64, 33, 4);
  check_lists(300, 9, 5);
  check_lists(6, 40, 1000000);
}

TEST_CASE("what is marked beyond the end of a part is in no list of hidden states", "[host]") {
  cpu const exec{.threads = 1};
  std::vector<std::uint8_t> for_hidden(2 * 6, 1);
  std::vector<std::uint8_t> for_classifier(2 * 6, 1);
  std::vector<std::uint8_t> const unclean(2);
  std::vector<std::int32_t> counts(4, -1);
  std::vector<std::int32_t> lists(3 * 2 + 6, -1);
  // Three panels of a whole part, of which the last part has but 300 entries.
  loss_product_schedule const schedule{counts.data(), lists.data(), 3, 1, 1, 2, 6, 1};
  list_loss_blocks const program{{768, 768, 1068, nullptr},       schedule, counts, lists, {for_hidden.data(), {2, 6}},
                                 {for_classifier.data(), {2, 6}}, unclean};
  exec.run(program, program.groups());
  CHECK(counts[3] == 3 * 2);
  CHECK(std::vector<std::int32_t>(lists.begin() + 6, lists.begin() + 9) ==
        std::vector<std::int32_t>{loss_list_entry::make(0, false), loss_list_entry::make(1, false),
                                  loss_list_entry::make(2, false)});
}

TEST_CASE("tiles are made wherever a block of a panel pair is alive", "[host][threads]") {
  cpu const exec{.threads = 2};
  constexpr std::int64_t token_blocks = 7;
  constexpr std::int64_t most = 400;
  auto const alive = some_ones(token_blocks * 40, 5, 9);
  loss_part_range const first_part{0, 11 * 128, 38 * 128 + 5, nullptr};
  for (std::int32_t const columns : {128, 192, 256}) {
    std::vector<tile_coordinate> tiles(4 * most);
    std::vector<std::int32_t> counts(4, -1);
    list_loss_tiles program{first_part, {alive.data(), {token_blocks, 40}}, token_blocks, columns,
                            2,          {tiles.data(), {4, most}},          counts};
    exec.run(program, program.groups());
    std::int64_t wrong = 0;
    for (std::int64_t part = 0; part < 4; ++part) {
      loss_part_range const range{part * 11 * 128, 11 * 128, 38 * 128 + 5, nullptr};
      for (std::int32_t row = 0; row < 4; ++row) {
        for (std::int32_t column = 0; column * columns < range.width(); ++column) {
          bool wanted = false;
          for (std::int64_t token = 2 * row; token < std::min<std::int64_t>(2 * row + 2, token_blocks); ++token) {
            for (std::int64_t panel = column * columns / 256; panel * 256 < (column + 1) * columns; ++panel) {
              for (std::int64_t block = 11 * part + 2 * panel; block < 11 * part + 2 * panel + 2; ++block) {
                wanted = wanted || (block < 40 && alive[static_cast<std::size_t>(token * 40 + block)] != 0);
              }
            }
          }
          auto const list = tiles.begin() + part * most;
          auto const found = std::count_if(list, list + counts[static_cast<std::size_t>(part)],
                                           [&](auto tile) { return tile.row == row && tile.column == column; });
          wrong += found == (wanted ? 1 : 0) ? 0 : 1;
        }
      }
    }
    CHECK(wrong == 0);
    program.alive = {};
    exec.run(program, program.groups());
    CHECK(counts[0] == 4 * divide_up(11 * 128, columns));
    CHECK(counts[3] == 4 * divide_up(5 * 128 + 5, columns));
  }
}

TEST_CASE("a part's range knows what is left of it", "[host]") {
  std::int64_t const alive = 300;
  CHECK(loss_part_range{0, 256, 1000, &alive}.width() == 256);
  CHECK_FALSE(loss_part_range{0, 256, 1000, &alive}.is_last());
  CHECK(loss_part_range{256, 256, 1000, &alive}.width() == 44);
  CHECK(loss_part_range{256, 256, 1000, &alive}.is_last());
  CHECK(loss_part_range{512, 256, 1000, &alive}.width() == 0);
  CHECK(loss_part_range{512, 256, 1000, &alive}.is_beyond());
  CHECK(loss_part_range{768, 256, 1000, nullptr}.width() == 232);
  std::int64_t const none = 0;
  CHECK_FALSE(loss_part_range{0, 256, 1000, &none}.is_beyond());
  CHECK(loss_part_range{0, 256, 1000, &none}.is_last());
}

TEST_CASE("tiles with longer sums come first, each tile once, and all workers end together", "[host]") {
  struct problem {
    std::int32_t classifier_panels;
    std::int32_t hidden_panels;
    std::int32_t channel_tiles;
    std::int32_t ratio;
    bool is_hidden_first;
  };
  constexpr std::int32_t workers = 66;
  for (problem const& p : {problem{1000, 32, 12, 31, true}, problem{501, 32, 22, 15, true},
                           problem{3, 16, 12, 5, false}, problem{3, 16, 22, 5, false}, problem{0, 32, 12, 7, true},
                           problem{66, 0, 1, 3, false}, problem{1, 66, 1, 2, true}, problem{1, 2, 1, 1, false}}) {
    CAPTURE(p.classifier_panels, p.hidden_panels, p.channel_tiles);
    std::vector<std::int32_t> const counts(static_cast<std::size_t>(p.classifier_panels + p.hidden_panels), 2);
    std::vector<std::int32_t> const lists(1);
    loss_product_schedule const schedule{
        counts.data(), lists.data(),     p.classifier_panels, p.hidden_panels, p.channel_tiles, 1, 1, 8,
        p.ratio,       p.is_hidden_first};
    std::vector<int> visits(static_cast<std::size_t>(schedule.count()));
    std::vector<std::int64_t> lengths(workers);
    for (std::int32_t turn = 0; turn < schedule.turns(workers); ++turn) {
      for (std::int32_t worker = 0; worker < workers; ++worker) {
        loss_product_item const item = schedule.at(turn, worker, workers);
        if (item.panel >= 0) {
          std::int32_t const row = item.is_hidden ? p.classifier_panels + item.panel : item.panel;
          ++visits[static_cast<std::size_t>(row * p.channel_tiles + item.channel_tile)];
          lengths[static_cast<std::size_t>(worker)] += item.is_hidden == p.is_hidden_first ? p.ratio : 1;
        }
      }
    }
    CHECK(std::all_of(visits.begin(), visits.end(), [](int count) { return count == 1; }));
    std::int64_t const sum = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
    std::int64_t const longest = *std::max_element(lengths.begin(), lengths.end());
    std::int64_t const shorter = (p.is_hidden_first ? p.classifier_panels : p.hidden_panels) * p.channel_tiles;
    CHECK(longest <= (shorter >= workers * p.ratio ? divide_up(sum, std::int64_t{workers}) + 1
                                                   : divide_up(sum, std::int64_t{workers}) + p.ratio));
  }
}
