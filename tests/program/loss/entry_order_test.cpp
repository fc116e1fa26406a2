// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/program/loss/entry_order.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// Marks, tokens and what the programs write.
struct order_problem {
  std::int64_t tokens;
  std::int64_t vocabulary;
  std::int64_t blocks = divide_up(tokens, std::int64_t{128});
  std::int64_t words = divide_up(vocabulary, std::int64_t{32});
  std::vector<std::uint32_t> live = std::vector<std::uint32_t>(static_cast<std::size_t>(blocks * words));
  std::vector<std::int32_t> is_marked{1};
  std::vector<std::int64_t> row_of;
  std::vector<std::int64_t> order;
  std::vector<std::int32_t> labels;
  std::vector<std::int64_t> count{0};
  std::vector<std::int32_t> entry_of = std::vector<std::int32_t>(static_cast<std::size_t>(vocabulary), -7);
  std::vector<std::int32_t> slot_of = entry_of;
  std::vector<std::uint8_t> class_of = std::vector<std::uint8_t>(static_cast<std::size_t>(vocabulary), 99);
  std::vector<std::int32_t> counts = std::vector<std::int32_t>(
      static_cast<std::size_t>(loss_entry_order::classes * loss_entry_order::groups(vocabulary)));
  std::vector<std::int64_t> alive{-7};
  std::vector<std::int32_t> dead_blocks{-7};
  std::vector<std::int32_t> in_order{-7};
  std::vector<std::uint8_t> alive_blocks =
      std::vector<std::uint8_t>(static_cast<std::size_t>(blocks * divide_up(vocabulary, std::int64_t{128})), 99);

  order_problem(std::int64_t token_count, std::int64_t entries, std::uint64_t every)
      : tokens(token_count), vocabulary(entries) {
    for (std::int64_t block = 0; block < blocks; ++block) {
      for (std::int64_t entry = 0; entry < vocabulary; ++entry) {
        // Some entries matter to many blocks, most to few or none.
        std::uint64_t const rarity = 1 + testing::hash(1, static_cast<std::uint64_t>(entry)) % every;
        std::uint64_t const word = testing::hash(2, static_cast<std::uint64_t>(block * vocabulary + entry));
        if (word % (rarity * rarity) == 0 && entry % 3 != 0) {
          live[at(block, entry)] |= std::uint32_t{1} << (entry % 32);
        }
      }
    }
    for (std::int64_t token = 0; token < tokens; ++token) {
      std::uint64_t const word = testing::hash(3, static_cast<std::uint64_t>(token));
      row_of.push_back(word % 4 == 0 ? -1 : count[0]++);
      if (row_of.back() >= 0) {
        order.push_back(token);
        labels.push_back(static_cast<std::int32_t>((word >> 8) % static_cast<std::uint64_t>(vocabulary)));
      }
    }
    order.resize(static_cast<std::size_t>(tokens), -1);
    labels.resize(static_cast<std::size_t>(tokens), -1);
  }

  std::size_t at(std::int64_t block, std::int64_t entry) const {
    return static_cast<std::size_t>(block * words + entry / 32);
  }
  loss_mark_reader marks() { return {{live.data(), {blocks, words}}, is_marked}; }
  loss_entry_order entries() { return {entry_of, slot_of, class_of, counts, alive, dead_blocks, in_order}; }
  matrix_view<std::uint8_t> block_view() {
    return {alive_blocks.data(), {blocks, divide_up(vocabulary, std::int64_t{128})}};
  }
  bool matters(std::int64_t block, std::int64_t entry) const {
    return is_marked[0] == 0 || (live[at(block, entry)] >> (entry % 32) & 1U) != 0;
  }

  template <class Executor>
  void run(Executor const& exec) {
    mark_labels const with_labels{marks(), {order, row_of, labels, count}};
    exec.run(with_labels, with_labels.groups());
    class_entries const classes{marks(), entries()};
    exec.run(classes, classes.groups());
    scatter_entries const slots{entries()};
    exec.run(slots, slots.groups());
    find_alive_blocks const found{marks(), entries(), block_view()};
    exec.run(found, found.groups());
    choose_order const choose{entries(), block_view()};
    exec.run(choose, choose.groups());
  }
};

/// Whether one of 128 slots matters, for each block of tokens and each 128 slots of an order whose first `alive`
/// entries count.
std::vector<std::uint8_t> blocks_that_matter(order_problem const& p, std::vector<std::int32_t> const& order,
                                             std::int64_t alive) {
  std::vector<std::uint8_t> found;
  for (std::int64_t block = 0; block < p.blocks; ++block) {
    for (std::int64_t first = 0; first < p.vocabulary; first += 128) {
      found.push_back(0);
      for (std::int64_t slot = first; slot < std::min(first + 128, alive); ++slot) {
        found.back() |= p.matters(block, order[static_cast<std::size_t>(slot)]) ? 1 : 0;
      }
    }
  }
  return found;
}

void check_order(order_problem& p) {
  CAPTURE(p.tokens, p.vocabulary);
  std::vector<std::int32_t> expected(static_cast<std::size_t>(p.vocabulary));
  std::vector<int> classes(expected.size());
  std::iota(expected.begin(), expected.end(), 0);
  std::int64_t alive = 0;
  for (std::int64_t entry = 0; entry < p.vocabulary; ++entry) {
    std::int64_t blocks = 0;
    for (std::int64_t block = 0; block < p.blocks; ++block) {
      blocks += p.matters(block, entry) ? 1 : 0;
    }
    classes[static_cast<std::size_t>(entry)] = static_cast<int>((blocks * 15 + p.blocks - 1) / p.blocks);
    alive += blocks > 0 ? 1 : 0;
  }
  std::stable_sort(expected.begin(), expected.end(), [&](std::int32_t a, std::int32_t b) {
    return classes[static_cast<std::size_t>(a)] > classes[static_cast<std::size_t>(b)];
  });
  auto found = blocks_that_matter(p, expected, alive);
  std::int64_t const dead = std::count(found.begin(), found.end(), std::uint8_t{0});
  CHECK(p.dead_blocks[0] == dead);
  bool const in_order = dead * 64 < static_cast<std::int64_t>(found.size());
  CHECK(p.in_order[0] == (in_order ? 1 : 0));
  if (in_order) {
    std::iota(expected.begin(), expected.end(), 0);
    found.assign(found.size(), 1);
    alive = p.vocabulary;
  }
  CHECK(p.entry_of == expected);
  CHECK(p.alive[0] == alive);
  CHECK(p.alive_blocks == found);
  std::int64_t wrong = 0;
  for (std::size_t slot = 0; slot < expected.size(); ++slot) {
    wrong += p.slot_of[static_cast<std::size_t>(expected[slot])] == static_cast<std::int32_t>(slot) ? 0 : 1;
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("entries come in the order of how many blocks of tokens they matter to, labels among them",
          "[host][threads]") {
  for (int const threads : {1, 3}) {
    cpu const exec{.threads = threads};
    for (std::int64_t const vocabulary : {1, 31, 128, 1023, 1024, 1025, 5000}) {
      order_problem problem(700, vocabulary, 30);
      problem.run(exec);
      for (std::size_t token = 0; token < 700; ++token) {
        if (problem.row_of[token] >= 0) {
          std::int32_t const label = problem.labels[static_cast<std::size_t>(problem.row_of[token])];
          CHECK(problem.matters(static_cast<std::int64_t>(token) / 128, label));
        }
      }
      check_order(problem);
    }
    order_problem few(1, 300, 3);
    few.run(exec);
    check_order(few);
  }
}

TEST_CASE("where next to nothing can be left out entries keep their own order", "[host][threads]") {
  cpu const exec{.threads = 2};
  order_problem problem(700, 5000, 2);
  for (std::int64_t entry = 0; entry < 5000; ++entry) {  // to one block at least, each of 128 to all
    problem.live[problem.at(entry % problem.blocks, entry)] |= std::uint32_t{1} << (entry % 32);
  }
  problem.run(exec);
  CHECK(problem.dead_blocks[0] < 4);  // the last entries are fewer than 128
  CHECK(problem.in_order[0] == 1);
  check_order(problem);
}

TEST_CASE("without marks all entries come, in their own order", "[host]") {
  cpu const exec{.threads = 1};
  order_problem problem(300, 2000, 30);
  problem.is_marked[0] = 0;
  auto const before = problem.live;
  problem.run(exec);
  CHECK(problem.live == before);
  CHECK(problem.alive[0] == 2000);
  check_order(problem);
}

TEST_CASE("the order of entries keeps the rules for programs", "[host]") {
  for (std::int64_t const vocabulary : {100, 2100}) {
    order_problem problem(300, vocabulary, 30);
    problem.run(testing::adversary{.seed = 4});
    check_order(problem);
  }
}

TEST_CASE("rows of a part are brought together, and zeros where no entry is left", "[host][threads]") {
  cpu const exec{.threads = 2};
  constexpr std::int64_t vocabulary = 900;
  constexpr std::int64_t channels = 21;
  std::vector<std::uint16_t> classifier(vocabulary * 24);
  std::iota(classifier.begin(), classifier.end(), std::uint16_t{1});
  std::vector<std::int32_t> entry_of(vocabulary);
  for (std::size_t slot = 0; slot < entry_of.size(); ++slot) {
    entry_of[slot] = static_cast<std::int32_t>(slot * 7 % vocabulary);
  }
  std::int64_t const alive = 700;
  std::vector<std::uint16_t> gathered(512 * 24, 77);
  std::int32_t in_order = 1;
  loss_part_range const range{512, 512, vocabulary, &alive, &in_order};
  gather_entries<std::uint16_t> const program{range,
                                              entry_of,
                                              {classifier.data(), {vocabulary, channels}, {24, 1}},
                                              {gathered.data(), {512, channels}, {24, 1}}};
  exec.run(program, program.groups());
  CHECK(std::all_of(gathered.begin(), gathered.end(), [](std::uint16_t value) { return value == 77; }));
  in_order = 0;
  exec.run(program, program.groups());
  std::int64_t wrong = 0;
  for (std::int64_t row = 0; row < 512; ++row) {
    for (std::int64_t channel = 0; channel < 24; ++channel) {
      auto const at = static_cast<std::size_t>(row * 24 + channel);
      std::uint16_t expected = 77;
      if (channel < channels && row < alive - 512) {
        expected = classifier[static_cast<std::size_t>((512 + row) * 7 % vocabulary * 24 + channel)];
      } else if (channel < channels && row < 256) {
        expected = 0;
      }
      wrong += gathered[at] == expected ? 0 : 1;
    }
  }
  CHECK(wrong == 0);
}
