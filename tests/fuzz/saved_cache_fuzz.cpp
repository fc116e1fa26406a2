// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// fuzz target: saved sequences of a cache, valid ones that were changed, and bytes of the coder they are packed with.
//
// Any bytes are loaded or refused, whatever their checksums say; what was loaded can be read and saved again; and
// nothing is loaded after one small change.
#include <charconv>
#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include <tessera/algorithm/paged_cache/saved_cache.hpp>
#include <tessera/minicache.hpp>

#include "fuzz/edits.hpp"
#include "support/cache_problem.hpp"

namespace {

using namespace tessera;
using namespace tessera_fuzz;

// Two pages and three tokens of no page: little, for many runs.
constexpr std::int64_t tokens = 131;
constexpr std::int64_t heads = 1;
constexpr std::int64_t channels = 32;
constexpr std::int64_t window = 0;

/// A cache of three layers, a single one and a pair, with one sequence.
struct engine_state {
  cpu exec{.threads = 1};
  minicache cache{exec, {1, 256, 4, heads, channels, window}, {.parts = parts()}};
  std::vector<std::int32_t> blocks{2, 0, 3, 1};
  std::vector<std::int32_t> lengths{0};
  std::vector<std::int32_t> pages{0};

  static std::vector<cache_layers> parts() {
    cache_layers pair = minicache::pair();
    pair.retention = retain_most_different::angle(1.5F);
    return {minicache::single(), pair};
  }
  [[nodiscard]] cache_sequences sequences() const { return {{blocks.data(), {1, 4}}, {}, lengths, pages, 1}; }

  void fill() {
    lengths[0] = static_cast<std::int32_t>(tokens);
    auto const plan = cache.plan_append(exec, {1, tokens});
    buffer<std::byte> memory(exec, plan.bytes());
    for (int part = 0; part < cache.parts(); ++part) {
      auto const seed = static_cast<std::uint64_t>(10 * part + 1);
      auto const made = tessera_test::make_layer_pair<bfloat16>(1, heads, tokens, channels, 0.5, seed);
      cache.append(exec, part, made.inputs(), sequences(), {tokens, {}}, workspace(plan, memory));
    }
    cache.advance(exec, sequences(), pages, tokens);
  }

  void load(std::vector<std::uint8_t> const& saved) {
    std::vector<std::byte> bytes(saved.size());  // exactly as large, so that a read past its end is found
    if (!saved.empty()) {
      std::memcpy(bytes.data(), saved.data(), saved.size());
    }
    auto const info = inspect_saved_cache(bytes.data(), std::ssize(bytes));
    check<shape_error>(info.pages <= 4, "fuzz: there are ", info.pages, " pages, more than ", 4);
    load_cache(exec, cache, bytes.data(), std::ssize(bytes), 0, {blocks.begin(), blocks.begin() + info.pages});
    lengths[0] = static_cast<std::int32_t>(info.tokens);
    pages[0] = static_cast<std::int32_t>(info.pages);
  }

  [[nodiscard]] std::vector<std::uint8_t> save(saved_cache_coder coder) const {
    auto const saved = save_cache(exec, cache, sequences(), 0, coder);
    auto const* first = reinterpret_cast<std::uint8_t const*>(saved.data());
    return {first, first + saved.size()};
  }

  void read_all() const {
    auto const count = static_cast<std::size_t>(heads * lengths[0] * channels);
    std::vector<float> keys(count);
    std::vector<float> values(count);
    for (int layer = 0; layer < cache.layers(); ++layer) {
      cache.restore(exec, layer, sequences(), head_view<float>(keys.data(), {1, heads, lengths[0], channels}),
                    head_view<float>(values.data(), {1, heads, lengths[0], channels}));
    }
  }
};

/// Lets a change get past the header's checksum.
void refit_header(std::vector<std::uint8_t>& saved) {
  saved_cache_header header;
  if (saved.size() >= sizeof(header)) {
    std::memcpy(&header, saved.data(), sizeof(header));
    header.total_bytes = saved.size();
    header.header_checksum = detail::checksum_of(header);
    std::memcpy(saved.data(), &header, sizeof(header));
  }
}

/// The content's checksum as it should be, from the words of the refusal: only load_cache() can tell.
std::optional<std::uint32_t> wanted_checksum(std::string_view words) {
  constexpr std::string_view before = "the content's checksum is ";
  auto const at = words.find(before);
  std::uint32_t checksum = 0;
  if (at == std::string_view::npos) {
    return {};
  }
  words.remove_prefix(at + before.size());
  std::from_chars(words.data(), words.data() + words.size(), checksum);
  return checksum;
}

bool is_loaded(engine_state& into, std::vector<std::uint8_t>& saved, bool refit) {
  try {
    into.load(saved);
    return true;
  } catch (corrupt_data const& problem) {
    auto const checksum = wanted_checksum(problem.what());
    if (!refit || !checksum) {
      return false;
    }
    std::memcpy(saved.data() + offsetof(saved_cache_header, content_checksum), &*checksum, sizeof(*checksum));
    refit_header(saved);
  } catch (shape_error const&) {
    return false;
  }
  return is_loaded(into, saved, false);
}

void read_coded(std::vector<std::uint8_t> const& coded, std::size_t size) {
  std::vector<std::byte> bytes(coded.size());
  std::vector<std::byte> out(size);
  if (!coded.empty()) {
    std::memcpy(bytes.data(), coded.data(), coded.size());
  }
  try {
    must(read_coded_bytes(bytes.data(), bytes.size(), out.data(), out.size()) <= bytes.size());
  } catch (corrupt_data const&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  static engine_state const source = [] {
    engine_state made;
    made.fill();
    return made;
  }();
  static std::vector<std::uint8_t> const originals[] = {source.save(saved_cache_coder::stored),
                                                        source.save(saved_cache_coder::rans)};
  static engine_state target;
  input from(data, size);
  int const how = from.below(5);  // 0, 1: as changed; 2, 3: with checksums that fit; 4: coded bytes alone
  if (how == 4) {
    auto const wanted = from.take<std::uint16_t>();
    read_coded(from.rest(), wanted);
    return 0;
  }
  std::vector<std::uint8_t> const& original = originals[how % 2];
  std::vector<std::uint8_t> saved = original;
  edit_summary const summary = apply_edits(from, saved);
  bool const refit = how >= 2;
  if (refit) {
    refit_header(saved);
  }
  bool const is_same = saved == original;
  bool const loaded = is_loaded(target, saved, refit);
  must(loaded || !is_same);
  must(!loaded || is_same || refit || summary.edits > 1 || !summary.all_small);
  if (loaded) {
    target.read_all();
    auto const again = target.save(static_cast<saved_cache_coder>(how % 2));
    must(!is_same || again == original);
  }
  return 0;
}
