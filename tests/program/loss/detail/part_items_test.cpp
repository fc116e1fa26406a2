// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include <tessera/core/bits.hpp>
#include <tessera/program/loss/detail/part_items.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// How many tiles were counted, as loss_gradient_parts counts them.
struct counted_tiles {
  std::map<std::int32_t, std::int32_t> made_of_row;
  std::map<std::int32_t, std::int32_t> hidden;
  std::int32_t made = 0;
  std::int32_t classifier = 0;

  /// Whether all that an item waits for is there.
  bool has_inputs_of(loss_part_item const& item, loss_part_schedule const& schedule) {
    std::int32_t const part = item.part();
    switch (item.work()) {
      case loss_part_work::logits:
        return hidden[item.panel] >= schedule.hidden_before(part) && classifier >= schedule.classifier_before(part);
      case loss_part_work::hidden:
        return made_of_row[item.panel] >= schedule.made_of_row(part);
      case loss_part_work::classifier:
        return made >= schedule.made(part);
      case loss_part_work::none:
        break;
    }
    return false;
  }
  /// Whether an item would see what a later part has written, or be written over while it is read.
  bool is_too_late(loss_part_item const& item, loss_part_schedule const& schedule) {
    return item.work() != loss_part_work::logits && made > schedule.made(item.part());
  }
  void take(loss_part_item const& item) {
    made_of_row[item.panel] += item.work() == loss_part_work::logits ? 1 : 0;
    made += item.work() == loss_part_work::logits ? 1 : 0;
    hidden[item.panel] += item.work() == loss_part_work::hidden ? 1 : 0;
    classifier += item.work() == loss_part_work::classifier ? 1 : 0;
  }
};

/// How deep a tile is, in steps.
std::int32_t steps_of(loss_part_item const& item, loss_part_schedule const& schedule) {
  switch (item.work()) {
    case loss_part_work::logits:
      return divide_up(schedule.channels, 64);
    case loss_part_work::hidden:
      return divide_up(schedule.entries_of(item.part()), 64);
    default:
      return divide_up(schedule.tokens, 64);
  }
}

/// Takes all items, one after the other.
void check_items(loss_part_schedule const& schedule) {
  CAPTURE(schedule.vocabulary, schedule.entries, schedule.tokens, schedule.channels);
  counted_tiles counted;
  std::map<std::tuple<int, int, int, int>, int> seen;
  std::int64_t wrong = 0;
  for (std::int32_t index = 0; index < schedule.count(); ++index) {
    loss_part_item const item = schedule.at(index);
    bool const is_free = counted.has_inputs_of(item, schedule) && !counted.is_too_late(item, schedule);
    bool const is_new = ++seen[{static_cast<int>(item.work()), item.part(), item.panel, item.tile}] == 1;
    wrong += is_free && is_new && item.steps == steps_of(item, schedule) ? 0 : 1;
    counted.take(item);
  }
  CHECK(wrong == 0);
  CHECK(schedule.at(schedule.count()).work() == loss_part_work::none);
  CHECK(schedule.at(schedule.count() + 1000).work() == loss_part_work::none);
  CHECK(schedule.at(schedule.count()).steps == 0);
  std::int32_t const of_channels = divide_up(schedule.channels, 192);
  std::int32_t logits = 0;
  std::int32_t panels = 0;
  for (std::int32_t part = 0; part < schedule.parts(); ++part) {
    logits += divide_up(schedule.entries_of(part), 192) * schedule.token_panels();
    panels += divide_up(schedule.entries_of(part), 256);
  }
  CHECK(counted.made == logits);
  CHECK(counted.made == schedule.made(schedule.parts() - 1));
  CHECK(counted.classifier == (schedule.has_classifier ? panels * of_channels : 0));
  for (std::int32_t panel = 0; panel < schedule.token_panels(); ++panel) {
    CHECK(counted.hidden[panel] == (schedule.has_hidden ? schedule.parts() * of_channels : 0));
  }
}

}  // namespace

TEST_CASE("All tiles of all parts come once, after what they wait for") {
  check_items({256000, 2048, 2048, 2304, true, true});
  check_items({128256, 2048, 2048, 4096, true, true});
  check_items({3000, 512, 700, 72, true, true});
  check_items({3000, 512, 700, 72, true, false});
  check_items({3000, 512, 700, 72, false, true});
  check_items({100, 256, 1, 8, true, true});
  check_items({513, 256, 257, 193, true, true});
}

TEST_CASE("As many tiles as an H200 has at work lie between a row of the gradient and what waits for it") {
  loss_part_schedule const gemma{256000, 2048, 2048, 2304, true, true};
  std::vector<std::int32_t> last_of_row(8, -1);
  std::int32_t last = -1;
  for (std::int32_t index = 0; index < 88 + 192; ++index) {
    loss_part_item const item = gemma.at(index);
    if (item.work() == loss_part_work::logits) {
      last_of_row[static_cast<std::size_t>(item.panel)] = last = index;
    } else if (item.work() == loss_part_work::hidden) {
      CHECK(index - last_of_row[static_cast<std::size_t>(item.panel)] >= 78);
    } else {
      CHECK(index - last > 66);
    }
  }
}

TEST_CASE("Counters of tiles have words of their own") {
  std::vector<std::int32_t> words(static_cast<std::size_t>(loss_part_counters::size(5)));
  loss_part_counters const counters{words.data(), 5};
  ++*counters.next_item();
  ++*counters.made();
  ++*counters.classifier();
  for (std::int32_t panel = 0; panel < 5; ++panel) {
    ++*counters.made_of_row(panel);
    ++*counters.hidden(panel);
  }
  CHECK(words == std::vector<std::int32_t>(words.size(), 1));
}
