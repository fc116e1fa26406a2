// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tessera/algorithm/loss/linear_loss_regions.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/reduce/log_sum_exp.hpp>
#include <tessera/tile/gemm_tile.hpp>
#include <tessera/tuning/loss/linear_loss.hpp>

#include "support/catch.hpp"

using namespace tessera;
using tessera::detail::loss_entry_use;
using tessera_test::contains;

namespace {

using tile = gemm_tile<bfloat16, shape<64, 64, 16>>;
using forward_regions = detail::loss_regions<tile, lse_reducer<float>>;
using mark_regions = detail::loss_mark_regions<tile, lse_reducer<float>>;
template <class Gradient>
using regions_of = detail::loss_gradient_regions<tile, lse_reducer<float>, gradient_filter<12, 64, 64>, Gradient>;
using regions = regions_of<float>;

regions within(linear_loss_shape const& s, std::int64_t budget, detail::kept_entries kept = {},
               loss_entry_use use = loss_entry_use::marked) {
  return regions("test", s, {.workspace_budget = budget}, use, kept);
}

std::int64_t bytes_of(workspace_plan const& plan, std::string const& name) {
  for (auto const& entry : plan.entries()) {
    if (entry.name == name) {
      return entry.bytes;
    }
  }
  return -1;
}

}  // namespace

TEST_CASE("few tokens share the vocabulary among many groups, many tokens among a few", "[host]") {
  auto const splits = [](std::int64_t tokens, std::int64_t vocabulary) {
    return forward_regions::splits_of({tokens, vocabulary, 64});
  };
  CHECK(splits(0, 64 * 1000) == 512);
  CHECK(splits(1, 64 * 1000) == 512);
  CHECK(splits(64, 64 * 1000) == 512);
  CHECK(splits(65, 64 * 1000) == 256);
  CHECK(splits(64 * 3, 64 * 1000) == 171);
  CHECK(splits(1 << 20, 64 * 1000) == 6);
  CHECK(splits(64, 64 * 100) == 100);  // a split has a tile of entries at least
  CHECK(splits(64, 64 * 100 + 1) == 101);
  CHECK(splits(64, 1) == 6);
}

TEST_CASE("regions of a forward pass come first in those of both", "[host]") {
  linear_loss_shape const s{1000, 5000, 96};
  forward_regions const alone("test", s);
  regions const both = within(s, 0);
  REQUIRE(alone.plan.entries().size() < both.plan.entries().size());
  for (std::size_t i = 0; i < alone.plan.entries().size(); ++i) {
    CHECK(alone.plan.entries()[i].name == both.plan.entries()[i].name);
    CHECK(alone.plan.entries()[i].offset == both.plan.entries()[i].offset);
    CHECK(alone.plan.entries()[i].bytes == both.plan.entries()[i].bytes);
  }
}

TEST_CASE("softmaxes are kept in whole tiles, or not at all", "[host]") {
  linear_loss_shape const s{100, 5000, 64};
  for (auto [kept, stride] : {std::pair<std::int64_t, std::int64_t>{0, 0}, {1, 64}, {64, 64}, {65, 128}, {768, 768}}) {
    mark_regions const found("test", s, loss_entry_use::all, kept);
    CAPTURE(kept);
    CHECK(found.kept_stride == stride);
    CHECK(bytes_of(found.plan, "softmaxes") == 100 * stride * 2);
    CHECK(bytes_of(found.plan, "whether there are softmaxes") == (kept > 0 ? 4 : 0));
    buffer<std::byte> memory(found.plan.bytes());
    auto const softmaxes = found.kept_in(workspace(found.plan, memory.view()), s);
    CHECK(softmaxes.are_wanted() == (kept > 0));
    CHECK((kept == 0 || softmaxes.values.extent(1) == kept));
    CHECK((kept == 0 || softmaxes.values.stride(0) == stride));
  }
}

TEST_CASE("parts of the vocabulary are whole tiles that fit the budget and leave no entry out", "[host]") {
  int in_parts = 0;
  for (std::int64_t const tokens : {1, 63, 64, 65, 1000}) {
    for (std::int64_t const vocabulary : {1, 63, 64, 65, 1000, 30001}) {
      linear_loss_shape const s{tokens, vocabulary, 72};
      std::int64_t const whole = within(s, std::int64_t{1} << 40).plan.bytes();
      for (std::int64_t const budget : {whole, whole - 1, whole * 3 / 4, whole / 2}) {
        try {
          regions const found = within(s, budget);
          CAPTURE(tokens, vocabulary, budget, whole, found.entries, found.parts);
          REQUIRE(found.plan.bytes() <= budget);
          REQUIRE(found.entries % 64 == 0);
          REQUIRE(found.parts * found.entries >= vocabulary);
          REQUIRE((found.parts - 1) * found.entries < vocabulary);
          REQUIRE((found.parts == 1) == (budget == whole));
          in_parts += found.parts > 1 ? 1 : 0;
        } catch (value_error const& error) {
          CHECK_THAT(error.what(), contains("the budget is " + std::to_string(budget)));
          CHECK(budget < whole);
        }
      }
    }
  }
  CHECK(in_parts > 10);
}

TEST_CASE("a budget that nothing fits is named, with what would", "[host]") {
  linear_loss_shape const s{1000, 30001, 72};
  std::string message;
  try {
    static_cast<void>(within(s, 1));
  } catch (value_error const& error) {
    message = error.what();
  }
  std::string const before = "test: the workspace needs at least ";
  REQUIRE_THAT(message, contains(before) && contains(" bytes but the budget is 1"));
  std::int64_t const least = std::stoll(message.substr(before.size()));
  CHECK(within(s, least).plan.bytes() <= least);
  CHECK_THROWS_AS(within(s, least - 1), value_error);
}

TEST_CASE("as many softmaxes are kept as fit, in steps of 768, or all", "[host]") {
  linear_loss_shape const s{200, 10000, 64};
  auto const with = [&](std::int64_t budget, std::int64_t kept) {
    return within(s, budget, kept, loss_entry_use::all).plan.bytes();
  };
  std::int64_t const usual = with(0, 0);
  CHECK(regions::kept_within("test", s, 0) == 0);
  CHECK(regions::kept_within("test", s, usual) == 0);
  CHECK(regions::kept_within("test", s, std::int64_t{1} << 40) == 10000);
  std::int64_t last = 0;
  for (std::int64_t budget = usual; budget < usual + 200 * 10000 * 2 + (1 << 20); budget += 200 * 1000) {
    std::int64_t const kept = regions::kept_within("test", s, budget).count;
    CAPTURE(budget, kept);
    REQUIRE((kept % 768 == 0 || kept == 10000));
    REQUIRE(kept >= last);
    REQUIRE((kept == 0 || with(budget, kept) <= budget));
    last = kept;
  }
  CHECK(last > 768);
  for (std::int64_t const vocabulary : {1, 767, 768}) {  // fewer than a step and one more: all or nothing
    linear_loss_shape const few{200, vocabulary, 64};
    CHECK(regions::kept_within("test", few, 1000) == 0);
    CHECK(regions::kept_within("test", few, std::int64_t{1} << 40) == vocabulary);
  }
}

TEST_CASE("references of softmaxes take memory where they are not in signs", "[host]") {
  linear_loss_shape const s{200, 10000, 64};
  for (std::int64_t const kept : {0, 768, 10000}) {
    regions const in_tiles = within(s, std::int64_t{1} << 40, kept, loss_entry_use::all);
    regions const in_signs = within(s, std::int64_t{1} << 40, {kept, true}, loss_entry_use::all);
    CAPTURE(kept);
    CHECK(bytes_of(in_tiles.plan, "references of softmaxes") == (kept + 191) / 192 * 200 * 4);
    CHECK(bytes_of(in_signs.plan, "references of softmaxes") == 0);
    CHECK(bytes_of(in_signs.plan, "references that tiles share") == (kept > 0 ? 200 * 4 : 0));
    CHECK(in_tiles.plan.bytes() - in_signs.plan.bytes() >= (kept + 191) / 192 * 200 * 4 / 256 * 256);
    buffer<std::byte> memory(in_signs.plan.bytes());
    CHECK(in_signs.kept_in(workspace(in_signs.plan, memory.view()), s).references.is_empty());
  }
  // Softmaxes of more entries fit where references take nothing.
  std::int64_t const all = within(s, std::int64_t{1} << 40, {10000, true}, loss_entry_use::all).plan.bytes();
  CHECK(regions::kept_within("test", s, all, true) == detail::kept_entries(10000, true));
  CHECK(regions::kept_within("test", s, all).count < 10000);
  CHECK(regions::kept_within("test", s, all, true).count == 10000);  // whatever was asked for before
}

TEST_CASE("lower halves of sums are kept where results are narrower and come in parts", "[host]") {
  linear_loss_shape const s{1000, 30001, 65};
  auto const remains = [&](auto made) { return bytes_of(made.plan, "lower halves of hidden gradients"); };
  std::int64_t const whole = within(s, std::int64_t{1} << 40).plan.bytes();
  linear_loss_options const all{.workspace_budget = std::int64_t{1} << 40};
  linear_loss_options const half{.workspace_budget = whole / 2};
  CHECK(remains(regions_of<float>("test", s, half, loss_entry_use::marked, 0)) == 0);
  CHECK(remains(regions_of<bfloat16>("test", s, all, loss_entry_use::marked, 0)) == 0);
  CHECK(remains(regions_of<bfloat16>("test", s, half, loss_entry_use::marked, 0)) == 1000 * 72 * 2);
}

TEST_CASE("marks and bounds take memory where something may be left out", "[host]") {
  linear_loss_shape const s{300, 1000, 64};
  std::vector<std::string> const names{"marks of entries", "bounds of log-sum-exps", "known parts of log-sum-exps"};
  regions const marked = within(s, 0);
  regions const all = within(s, 0, 0, loss_entry_use::all);
  CHECK(bytes_of(marked.plan, names[0]) == 3 * 32 * 4);
  for (std::string const& name : names) {
    CHECK(bytes_of(marked.plan, name) > 0);
    CHECK(bytes_of(all.plan, name) == 0);
  }
  CHECK(bytes_of(all.plan, "whether there are marks") == 4);  // the note stays, for those who ask
}

TEST_CASE("an order of entries takes memory where it is asked for", "[host]") {
  linear_loss_shape const s{300, 1000, 64};
  regions const plain = within(s, 0);
  regions const ordered = within(s, 0, 0, loss_entry_use::ordered);
  CHECK(bytes_of(plain.plan, "order of entries") == 0);
  CHECK(bytes_of(ordered.plan, "order of entries") == 4000);
  CHECK(bytes_of(ordered.plan, "rows of a part of the classifier") == ordered.entries * 64 * 2);
}

TEST_CASE("sizes of a loss that do not fit 63 bits are not taken for smaller ones", "[host]") {
  std::int64_t const huge = std::int64_t{1} << 40;
  CHECK_THROWS_AS(forward_regions("test", {std::int64_t{1} << 62, 5, 64}), shape_error);
  CHECK_THROWS_AS(mark_regions("test", {huge, huge, 64}), shape_error);
  CHECK_THROWS_AS(mark_regions("test", {huge, 1000, 64}, loss_entry_use::all, huge), shape_error);
}

TEST_CASE("a search gives what it gave, whatever was searched for, found or refused in between", "[host][threads]") {
  struct search {
    linear_loss_shape shape;
    std::int64_t budget;
    std::int64_t kept;
    loss_entry_use use;
  };
  linear_loss_shape const s{1000, 30001, 72};
  std::int64_t const half = within(s, std::int64_t{1} << 40).plan.bytes() / 2;
  // Each differs from the first in one thing.
  search const searches[] = {{s, half, 0, loss_entry_use::marked},
                             {{1001, 30001, 72}, half, 0, loss_entry_use::marked},
                             {{1000, 30002, 72}, half, 0, loss_entry_use::marked},
                             {{1000, 30001, 80}, half, 0, loss_entry_use::marked},
                             {s, half + (half >> 2), 0, loss_entry_use::marked},
                             {s, half, 768, loss_entry_use::marked},
                             {s, half, 0, loss_entry_use::ordered},
                             {s, half, 0, loss_entry_use::all}};
  auto const run = [](search const& of) { return within(of.shape, of.budget, of.kept, of.use).plan.bytes(); };
  auto const kept = [](search const& of) { return regions::kept_within("test", of.shape, 8 * of.budget).count; };
  for (search const& one : searches) {
    std::int64_t found = 0;
    std::int64_t found_kept = 0;
    std::thread([&] {  // which remembers nothing
      found = run(one);
      found_kept = kept(one);
    })
        .join();
    CHECK(found <= one.budget);
    for (search const& other : searches) {
      static_cast<void>(run(other));
      static_cast<void>(kept(other));
      CHECK(run(one) == found);
      CHECK(kept(one) == found_kept);
      CHECK_THROWS_AS(within(one.shape, 1), value_error);
      CHECK(run(one) == found);
    }
  }
  CHECK(run(searches[0]) != run(searches[4]));
  CHECK(run(searches[0]) != run(searches[6]));
}

TEST_CASE("regions that a thread remembers are those of the call, also after other calls", "[host]") {
  linear_loss_shape const s{1000, 30001, 72};
  std::int64_t const half = within(s, std::int64_t{1} << 40).plan.bytes() / 2;
  detail::loss_part_search const searches[] = {
      {s, 0, half, loss_entry_use::marked},   {{1001, 30001, 72}, 0, half, loss_entry_use::marked},
      {s, 768, half, loss_entry_use::marked}, {s, 0, half + (half >> 2), loss_entry_use::marked},
      {s, 0, half, loss_entry_use::ordered},  {{1000, 30002, 72}, 0, half, loss_entry_use::marked},
      {s, 0, half, loss_entry_use::all},      {s, 0, 1, loss_entry_use::marked}};
  detail::remembered_regions<regions> last;
  int planned = 0;
  auto const fresh = [&](detail::loss_part_search const& of) {
    ++planned;
    return regions("test", of.shape, {.workspace_budget = of.budget}, of.use, of.kept, workspace_plan::record::sizes);
  };
  for (detail::loss_part_search const& one : searches) {
    for (detail::loss_part_search const& other : searches) {
      for (detail::loss_part_search const* of : {&one, &other, &one}) {
        if (of->budget == 1) {
          CHECK_THROWS_AS(last.get(*of, [&] { return fresh(*of); }), value_error);
          continue;
        }
        regions const found = last.get(*of, [&] { return fresh(*of); });
        regions const expected = fresh(*of);
        CHECK(found.plan.bytes() == expected.plan.bytes());
        CHECK(found.entries == expected.entries);
        CHECK(found.kept == expected.kept);
        CHECK(found.gathered.offset == expected.gathered.offset);
        CHECK(found.gathered.count == expected.gathered.count);
      }
    }
  }
  planned = 0;
  for (int i = 0; i < 3; ++i) {
    static_cast<void>(last.get(searches[0], [&] { return fresh(searches[0]); }));
  }
  CHECK(planned == 1);
}

TEST_CASE("what is cleared together are whole regions that lie next to each other", "[host]") {
  linear_loss_shape const s{1000, 5000, 96};
  regions const found = within(s, 0);
  auto const marks = found.marks_with_note();
  CHECK(marks.offset == found.live.offset);
  CHECK(marks.offset + marks.count * 4 == found.is_marked.offset + 4);
  CHECK(found.is_marked.offset - (found.live.offset + found.live.count * 4) < workspace_plan::alignment);
  auto const blocks = found.kept_blocks();
  CHECK(blocks.offset == found.kept_for_hidden.offset);
  CHECK(blocks.offset + blocks.count == found.kept_for_classifier.offset + found.kept_for_classifier.count);
  CHECK(found.kept_for_classifier.offset - (found.kept_for_hidden.offset + found.kept_for_hidden.count) <
        workspace_plan::alignment);
}

TEST_CASE("10 MiB suffice for both gradients, of whatever type, of large classifiers", "[host]") {
  using wide = gemm_tile<bfloat16, shape<128, 128, 16>>;
  using narrow = detail::loss_gradient_regions<wide, lse_reducer<float>, gradient_filter<0, 128, 128>, bfloat16>;
  using exact = detail::loss_gradient_regions<wide, lse_reducer<float>, gradient_filter<0, 128, 128>, float>;
  linear_loss_options const little{.workspace_budget = std::int64_t{10} << 20};
  for (linear_loss_shape const& s : {linear_loss_shape{8192, 256000, 2304}, linear_loss_shape{8192, 128256, 4096}}) {
    CHECK(exact("test", s, little, loss_entry_use::all, 0).plan.bytes() <= little.workspace_budget);
    narrow const found("test", s, little, loss_entry_use::all, 0);
    CHECK(found.plan.bytes() <= little.workspace_budget);
    REQUIRE(found.is_apart);
    CHECK(bytes_of(found.plan, "lower halves of hidden gradients") == 0);
    // Lent memory has room for parts of the usual size, and a quarter of the classifier's rows is enough for them.
    std::int64_t const entries = narrow::lent_entries(s);
    CHECK(entries * s.tokens * 2 >= std::int64_t{96} << 20);
    CHECK((entries + 1) * s.tokens * 2 + s.tokens * s.channels * 2 <= s.vocabulary * s.channels * 2 / 4);
    std::uint16_t other[1] = {};
    CHECK(found.narrowed("test", s, entries, {reinterpret_cast<bfloat16*>(other), other, nullptr}).has_value());
    // Hidden states alone have room for some tokens with their lower halves.
    loss_chunk const chunk = found.hidden_chunk(s);
    CHECK((chunk.tokens >= 256 && chunk.tokens % 256 == 0 && chunk.entries >= 128));
    linear_loss_shape const some{chunk.tokens, s.vocabulary, s.channels};
    auto const parts = found.narrowed("test", some, chunk.entries);
    REQUIRE(parts.has_value());
    CHECK(parts->remains.count == chunk.tokens * s.channels);
    CHECK(parts->remains.offset >= parts->gradient.offset + parts->gradient.count * 2);
    CHECK(parts->remains.offset + parts->remains.count * 2 <= found.kept_for_hidden.offset);
    CHECK(!found.narrowed("test", some, chunk.entries + 128));
    // A map knows tokens by their numbers among all.
    CHECK_THROWS_AS(narrow("test", s, little, loss_entry_use::mapped, 0), value_error);
    CHECK(!narrow("test", s, {.workspace_budget = std::int64_t{160} << 20}, loss_entry_use::all, 0).is_apart);
  }
}

TEST_CASE("regions of little memory have room for the parts that are chosen for it", "[host]") {
  using wide = gemm_tile<bfloat16, shape<128, 128, 16>>;
  using exact = detail::loss_gradient_regions<wide, lse_reducer<float>, gradient_filter<0, 128, 128>, float>;
  for (linear_loss_shape const& s : {linear_loss_shape{8192, 256000, 2304}, linear_loss_shape{8192, 128256, 4096}}) {
    exact const all("test", s, {.workspace_budget = std::int64_t{10} << 20}, loss_entry_use::all, 0);
    loss_chunk const chunk = choose_loss_chunk(s.tokens, s.vocabulary, s.channels, all.entries);
    REQUIRE(chunk.tokens < s.tokens);
    linear_loss_shape const some{chunk.tokens, s.vocabulary, s.channels};
    auto const narrow = all.narrowed("test", some, chunk.entries);
    REQUIRE(narrow.has_value());
    CHECK(narrow->entries == chunk.entries);
    CHECK(narrow->parts == divide_up(s.vocabulary, chunk.entries));
    CHECK(narrow->gradient.offset == all.gradient.offset);
    CHECK(narrow->factors.count == chunk.tokens);
    std::int64_t const most = all.entries * s.tokens / chunk.tokens;
    CHECK(all.narrowed("test", some, most).has_value());
    CHECK(!all.narrowed("test", some, most + 128));  // for whose gradients there is no room
  }
}
