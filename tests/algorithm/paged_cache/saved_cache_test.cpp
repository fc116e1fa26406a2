// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <tessera/algorithm/paged_cache/saved_cache.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"
#include "support/small_model.hpp"

using namespace tessera;
using namespace tessera_test;
using namespace tessera_test::small;

namespace {

std::int64_t size_of(std::vector<std::byte> const& bytes) {
  return static_cast<std::int64_t>(bytes.size());
}

/// Checks that sequence 0 of a model is the same as sequence `which` of another one.
void check_same(small_model const& found, small_model const& expected, std::int64_t which, std::int64_t tokens) {
  for (int layer = 0; layer < 4; ++layer) {
    for (int part = 0; part < 2; ++part) {
      auto const a = found.restored(layer, part, tokens);
      auto const b = expected.restored(layer, part, tokens);
      std::int64_t const size = heads * tokens * channels;
      CHECK(std::memcmp(a.data(), b.data() + which * size, as_size(size) * sizeof(float)) == 0);
    }
  }
}

small_model& filled(small_model& model, std::vector<layer_pair<bfloat16>> const& data) {
  model.append(data, 0, 330);
  return model;
}

/// Loads saved bytes into the first slot of a model, in other blocks than before.
void load(small_model& model, std::vector<std::byte> const& saved) {
  auto const info = inspect_saved_cache(saved.data(), size_of(saved));
  std::vector<std::int32_t> blocks;
  for (std::int64_t page = 0; page < info.pages; ++page) {
    blocks.push_back(static_cast<std::int32_t>(19 - 2 * page));
  }
  load_cache(model.exec, model.cache, saved.data(), size_of(saved), 0, blocks);
  std::copy(blocks.begin(), blocks.end(), model.blocks.begin());
  model.lengths[0] = static_cast<std::int32_t>(info.tokens);
  model.pages[0] = static_cast<std::int32_t>(info.pages);
}

}  // namespace

TEST_CASE("a saved sequence comes back bit for bit, in another slot and other blocks", "[host][slow]") {
  auto const data = make_model(2, 400);
  small_model model(2);
  filled(model, data);
  for (auto coder : {saved_cache_coder::stored, saved_cache_coder::rans}) {
    auto const saved = save_cache(model.exec, model.cache, model.sequences(), 1, coder);
    small_model other(1);
    load(other, saved);
    check_same(other, model, 1, 330);
    CHECK(other.cache.wait_for_statistics(other.exec, other.sequences()).retained_tokens > 0);
    // It continues as the other one does.
    auto more = data;
    for (auto& part : more) {
      for (auto& layer : part.part) {
        for (auto& list : layer) {
          list.erase(list.begin(), list.begin() + heads * 400 * channels);
        }
      }
      part.sequences = 1;
    }
    other.append(more, 330, 70);
    small_model twin(2);
    filled(twin, data);
    twin.append(data, 330, 70);
    check_same(other, twin, 1, 400);
    // Saved again, it has the same bytes as the other one.
    CHECK(save_cache(other.exec, other.cache, other.sequences(), 0, coder) ==
          save_cache(twin.exec, twin.cache, twin.sequences(), 1, coder));
  }
}

TEST_CASE("entropy coding makes saved caches smaller", "[host]") {
  auto const data = make_model(1, 400);
  small_model model(1);
  model.append(data, 0, 400);
  auto const stored = save_cache(model.exec, model.cache, model.sequences(), 0, saved_cache_coder::stored);
  auto const coded = save_cache(model.exec, model.cache, model.sequences(), 0, saved_cache_coder::rans);
  CHECK(size_of(coded) < size_of(stored) * 19 / 20);
  auto const used = model.cache.wait_for_statistics(model.exec, model.sequences());
  std::int64_t const pages = used.codes + used.scales + used.norms + used.headers;
  CHECK(size_of(stored) == 64 + 3 * 32 + 3 * heads * 12 + pages + used.retained + used.tail);
}

TEST_CASE("an empty sequence can be saved", "[host]") {
  small_model model(1);
  auto const saved = save_cache(model.exec, model.cache, model.sequences(), 0);
  small_model other(1);
  load(other, saved);
  CHECK(other.lengths[0] == 0);
}

TEST_CASE("foreign, truncated and damaged bytes are refused, and nothing is written", "[host]") {
  auto const data = make_model(1, 200);
  small_model model(1);
  model.append(data, 0, 200);
  for (auto coder : {saved_cache_coder::stored, saved_cache_coder::rans}) {
    auto const saved = save_cache(model.exec, model.cache, model.sequences(), 0, coder);
    small_model other(1);
    filled(other, make_model(1, 330));
    auto const before = other.restored(3, 0, 330);
    std::vector<std::int32_t> const blocks{0, 1};
    auto const refused = [&](std::vector<std::byte> const& bytes) {
      try {
        load_cache(other.exec, other.cache, bytes.data(), size_of(bytes), 0, blocks);
        return false;
      } catch (corrupt_data const&) {
        return true;
      }
    };
    for (std::size_t size : {std::size_t{0}, std::size_t{63}, std::size_t{64}, saved.size() / 2, saved.size() - 1}) {
      CHECK(refused({saved.begin(), saved.begin() + static_cast<std::ptrdiff_t>(size)}));
    }
    auto longer = saved;
    longer.push_back(std::byte{0});
    CHECK(refused(longer));
    int accepted = 0;
    for (std::uint64_t i = 0; i < 300; ++i) {
      auto damaged = saved;
      std::size_t const at = i < 64 ? static_cast<std::size_t>(i) : testing::hash(4, i) % saved.size();
      damaged[at] ^= static_cast<std::byte>(1U << (testing::hash(5, i) % 8));
      try {
        accepted += !refused(damaged);
      } catch (shape_error const&) {  // a part that the cache does not have
      }
    }
    CHECK(accepted == 0);
    // A header with a right checksum may promise too much.
    for (std::uint64_t tokens : {std::uint64_t{129}, std::uint64_t{400}, std::uint64_t{1} << 63}) {
      auto promising = saved;
      saved_cache_header header;
      std::memcpy(&header, promising.data(), sizeof header);
      header.tokens = tokens;
      header.header_checksum = detail::checksum_of(header);
      std::memcpy(promising.data(), &header, sizeof header);
      CHECK(refused(promising));
    }
    CHECK(other.restored(3, 0, 330) == before);
  }
}

TEST_CASE("a header that promises more than its bytes can hold is refused before room is made for it", "[host]") {
  auto const data = make_model(1, 200);
  small_model model(1);
  model.append(data, 0, 200);
  auto const coder = GENERATE(saved_cache_coder::stored, saved_cache_coder::rans);
  auto const saved = save_cache(model.exec, model.cache, model.sequences(), 0, coder);
  auto const inspected = [&](auto const& change, std::size_t size) {
    std::vector<std::byte> bytes(saved.begin(), saved.begin() + static_cast<std::ptrdiff_t>(size));
    saved_cache_header header;
    std::memcpy(&header, bytes.data(), sizeof header);
    change(header);
    header.total_bytes = size;
    header.header_checksum = detail::checksum_of(header);
    std::memcpy(bytes.data(), &header, sizeof header);
    return inspect_saved_cache(bytes.data(), size_of(bytes));
  };
  using header_type = saved_cache_header;
  CHECK(inspected([](header_type&) {}, saved.size()).tokens == 200);
  // Of two pages and 72 tokens in no page, only the parts are left.
  CHECK_THROWS_WITH(inspected([](header_type&) {}, 64 + 3 * 32),
                    contains("inspect_saved_cache: part 0 has 2 heads of"));
  CHECK_THROWS_WITH(inspected([](header_type&) {}, 64), contains("there are 3 parts but bytes behind the header: 0"));
  auto const refuses = [&](auto const& change) { CHECK_THROWS_AS(inspected(change, saved.size()), corrupt_data); };
  refuses([](header_type& h) { h.tokens = std::uint64_t{1} << 63; });
  refuses([](header_type& h) { h.tokens = 127; });
  refuses([](header_type& h) { h.tokens = std::uint64_t{INT32_MAX} + 1, h.window = UINT32_MAX; });
  refuses([](header_type& h) { h.tokens = INT32_MAX; });
  refuses([](header_type& h) { h.tokens = INT32_MAX, h.window = INT32_MAX / 64 * 64; });
  refuses([](header_type& h) { h.pages = UINT32_MAX; });
  refuses([](header_type& h) { h.pages = UINT32_MAX, h.tokens = std::uint64_t{UINT32_MAX} * 64; });
  refuses([](header_type& h) { h.pages = INT32_MAX / 64, h.tokens = INT32_MAX; });
  refuses([](header_type& h) { h.pages = 40'000, h.tokens = 40'000 * 64 + 64; });
  refuses([](header_type& h) { h.heads = 0; });
  refuses([](header_type& h) { h.heads = UINT32_MAX; });
  refuses([](header_type& h) { h.channels = 0; });
  refuses([](header_type& h) { h.channels = UINT32_MAX; });
  refuses([](header_type& h) { h.parts = UINT32_MAX; });
}

TEST_CASE("a cache of another kind is refused in words that name both", "[host]") {
  auto const data = make_model(1, 200);
  small_model model(1);
  model.append(data, 0, 200);
  auto const saved = save_cache(model.exec, model.cache, model.sequences(), 0);
  std::vector<std::int32_t> const blocks{0, 1};
  auto const load_into = [&](auto const& cache, std::int64_t slot, std::vector<std::int32_t> const& table) {
    load_cache(model.exec, cache, saved.data(), size_of(saved), slot, table);
  };
  minicache const two_parts(model.exec, model.extents, {.parts = {model.parts[0], model.parts[1]}});
  CHECK_THROWS_WITH(load_into(two_parts, 0, blocks), contains("the saved parts are 3 but the cache's 2"));
  auto bits = model.parts;
  bits[2].key_bits = 3;
  CHECK_THROWS_WITH(load_into(minicache(model.exec, model.extents, {.parts = bits}), 0, blocks),
                    contains("part 2 has codes of 4"));
  CHECK_THROWS_WITH(load_into(model.cache, 0, {0}), contains("the saved pages are 2 but the cache's 1"));
  CHECK_THROWS_WITH(load_into(model.cache, 0, {0, 20}), contains("block 20 is none of 20"));
  CHECK_THROWS_AS(load_into(model.cache, 3, blocks), shape_error);
  auto rows = model.parts;
  rows[2].row_capacity = 0;
  CHECK_THROWS_WITH(load_into(minicache(model.exec, model.extents, {.parts = rows}), 0, blocks),
                    contains("but there is room for 0"));
  using of_halves = cross_layer_cache<slerp_merger<float>, retain_most_different, direction_codec<4, 64>, float16>;
  CHECK_THROWS_WITH(load_into(of_halves(model.exec, model.extents, {.parts = model.parts}), 0, blocks),
                    contains("the saved types of values are 0 but the cache's 1"));
}

TEST_CASE("null pointers are no saved cache, and sequences without lengths are not saved", "[host]") {
  CHECK_THROWS_AS(inspect_saved_cache(nullptr, 200), value_error);
  CHECK_THROWS_WITH(inspect_saved_cache(nullptr, 200),
                    "inspect_saved_cache: the saved bytes have no memory but 200 elements");
  CHECK_THROWS_AS(inspect_saved_cache(nullptr, 0), corrupt_data);
  small_model model(1);
  CHECK_THROWS_WITH(load_cache(model.exec, model.cache, nullptr, 200, 0, {}),
                    "load_cache: the saved bytes have no memory but 200 elements");
  cache_sequences without = model.sequences();
  without.lengths = {};
  CHECK_THROWS_WITH(save_cache(model.exec, model.cache, without, 0), "save_cache: the lengths of 1 sequences are null");
}
