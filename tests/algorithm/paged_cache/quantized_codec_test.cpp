// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/algorithm/paged_cache/quantized_codec.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/merge/no_merger.hpp>
#include <tessera/merge/slerp.hpp>
#include <tessera/quantize/asymmetric.hpp>
#include <tessera/quantize/scaled_float.hpp>
#include <tessera/quantize/symmetric.hpp>

#include "support/catch.hpp"
#include "support/coded_part.hpp"

using namespace tessera;
using namespace tessera_test;

namespace quantized_codec_test {

using two_bits = asymmetric_quantizer<2, 32>;
using eight_bits = asymmetric_quantizer<8, 64>;
using e4m3 = float8_quantizer<float8_e4m3>;

/// Decodes everything to 0.
struct to_zero : asymmetric_quantizer<4, 16> {
  TESSERA_FN constexpr float decode(code_type, params_type) const { return 0.0F; }
};

/// A quantizer with a state: values beyond a limit saturate.
struct limited : asymmetric_quantizer<8, 16> {
  float limit = 1e30F;
  TESSERA_FN constexpr params_type fit(interval<float> range) const {
    return asymmetric_quantizer<8, 16>::fit({max(range.minimum, -limit), min(range.maximum, limit)});
  }
};

template <class KeyQuantizer, class ValueQuantizer = KeyQuantizer>
using plain_cache = cross_layer_cache<no_merger, retain_most_different, quantized_codec<KeyQuantizer, ValueQuantizer>>;
template <class KeyQuantizer, class ValueQuantizer = KeyQuantizer>
using paired_cache = cross_layer_cache<slerp_merger<float>, retain_most_different,
                                       quantized_codec<KeyQuantizer, ValueQuantizer, page_vectors::directions>>;

double farthest(std::vector<float> const& a, std::vector<float> const& b) {
  double most = a.size() == b.size() ? 0.0 : std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    double const difference = std::fabs(double{a[i]} - double{b[i]});
    most = difference <= most ? most : difference;  // a NaN stays
  }
  return most;
}

/// Checks that a page holds what each quantizer makes of each group by itself, and that attention is that over it.
template <class KeyQuantizer, class ValueQuantizer>
void check_coded(KeyQuantizer const& of_keys, ValueQuantizer const& of_values, std::int64_t channels) {
  using cache_type = plain_cache<KeyQuantizer, ValueQuantizer>;
  quantized_codec<KeyQuantizer, ValueQuantizer> const codec{of_keys, of_values};
  auto const data = make_layer_pair<bfloat16>(1, 2, 150, channels);
  coded_part<cache_type> part(2, channels, cache_type::single(), 0, no_merger{}, codec);
  part.append(data, 0, 150);
  REQUIRE(part.pages[0] == 2);
  auto const keys = coded_by_groups(of_keys, data, 0, key_part, 128);
  auto const values = coded_by_groups(of_values, data, 0, value_part, 128);
  CAPTURE(channels);
  CHECK(farthest(part.restored(0, key_part), keys) < 1e-5);
  CHECK(farthest(part.restored(0, value_part), values) < 1e-5);
  auto const queries = attention_samples<bfloat16>(testing::gauss{}, 3, 1, 4 * 3 * channels);
  auto const expected = part.attended_by_formula(queries, 3, as_doubles(keys), as_doubles(values));
  CHECK(error_of(as_doubles(part.attended(0, queries, 3)), expected).relative_l1 < 1e-5);
}

}  // namespace quantized_codec_test

using namespace quantized_codec_test;

static_assert(PageCodec<quantized_codec<two_bits>> && PageCodec<quantized_codec<e4m3, two_bits>>);
static_assert(PageCodec<quantized_codec<two_bits, two_bits, page_vectors::directions>>);

TEST_CASE("a quantizer that decodes everything to 0 gives zeros, for keys and values apart", "[host]") {
  auto const data = make_layer_pair<bfloat16>(1, 2, 128, 64);
  auto const queries = attention_samples<bfloat16>(testing::gauss{}, 3, 1, 4 * 64);
  std::vector<float> const zeros(2 * 128 * 64);
  coded_part<plain_cache<to_zero, eight_bits>> of_keys(2, 64);
  of_keys.append(data, 0, 128);
  CHECK((of_keys.restored(0, key_part) == zeros));
  CHECK_FALSE((of_keys.restored(0, value_part) == zeros));
  auto const means =
      of_keys.attended_by_formula(queries, 1, as_doubles(zeros), as_doubles(of_keys.restored(0, value_part)));
  CHECK(error_of(as_doubles(of_keys.attended(0, queries, 1)), means).relative_l1 < 1e-5);
  coded_part<plain_cache<eight_bits, to_zero>> of_values(2, 64);
  of_values.append(data, 0, 128);
  CHECK_FALSE((of_values.restored(0, key_part) == zeros));
  CHECK((of_values.restored(0, value_part) == zeros));
  CHECK((of_values.attended(0, queries, 1) == std::vector<float>(4 * 64)));
}

TEST_CASE("pages hold what the quantizers make of each group, of any bits and groups", "[host]") {
  check_coded(two_bits{}, two_bits{}, 64);
  check_coded(asymmetric_quantizer<3, 16>{}, eight_bits{}, 64);
  check_coded(asymmetric_quantizer<4, 8>{}, symmetric_quantizer<4, 32>{}, 96);
  check_coded(symmetric_quantizer<8, 64>{}, asymmetric_quantizer<3, whole_tensor>{}, 128);
  check_coded(e4m3{}, two_bits{}, 64);
  check_coded(asymmetric_quantizer<2, 1>{}, e4m3{}, 32);
}

TEST_CASE("quantizers keep the state that the codec was given", "[host]") {
  limited quantizer;
  quantizer.limit = 0.5F;
  check_coded(quantizer, limited{}, 64);
  check_coded(limited{}, quantizer, 64);
  using cache_type = plain_cache<limited>;
  auto const data = make_layer_pair<bfloat16>(1, 1, 64, 64);
  coded_part<cache_type> part(1, 64, cache_type::single(), 0, no_merger{},
                              quantized_codec<limited>{quantizer, quantizer});
  part.append(data, 0, 64);
  for (float value : part.restored(0, key_part)) {
    CHECK(std::fabs(value) <= 0.51F);
  }
}

TEST_CASE("tokens that come one by one have the pages of tokens that come at once", "[host]") {
  auto const data = make_layer_pair<bfloat16>(1, 2, 140, 64);
  coded_part<plain_cache<two_bits>> at_once(2, 64);
  at_once.append(data, 0, 140);
  coded_part<plain_cache<two_bits>> stepped(2, 64);
  for (std::int64_t token = 0; token < 140; ++token) {
    stepped.step(data, token);
  }
  CHECK(stepped.pages == at_once.pages);
  CHECK((stepped.restored(0, key_part) == at_once.restored(0, key_part)));
  CHECK((stepped.restored(0, value_part) == at_once.restored(0, value_part)));
}

TEST_CASE("a vector that is not finite comes back as NaNs, and costs its groups nothing", "[host]") {
  auto const data = make_layer_pair<bfloat16>(1, 1, 64, 64);
  auto odd = data;
  odd.part[0][key_part][5 * 64 + 3] = store<bfloat16>(std::numeric_limits<float>::infinity());
  odd.part[0][value_part][9 * 64 + 7] = store<bfloat16>(std::numeric_limits<float>::quiet_NaN());
  for (bool with_rows : {false, true}) {
    auto layers = plain_cache<eight_bits>::single();
    layers.row_capacity = with_rows ? 4 : 0;
    coded_part<plain_cache<eight_bits>> part(1, 64, layers);
    part.append(odd, 0, 64);
    for (int which : {key_part, value_part}) {
      auto const found = part.restored(0, which);
      std::int64_t const bad = which == key_part ? 5 : 9;
      for (std::int64_t i = 0; i < 64 * 64; ++i) {
        float const given = load(odd.part[0][which][as_size(i)]);
        bool const is_retained = with_rows && (i / 64 == 5 || i / 64 == 9);
        if (is_retained) {  // bit for bit
          CHECK((found[as_size(i)] == given || (std::isnan(found[as_size(i)]) && std::isnan(given))));
        } else if (i / 64 == bad) {
          CHECK(std::isnan(found[as_size(i)]));
        } else {
          CHECK(std::fabs(found[as_size(i)] - given) < 0.05F);  // half a step of 8 bits
        }
      }
    }
  }
}

TEST_CASE("directions have their lengths again, for both layers of a pair", "[host]") {
  using cache_type = paired_cache<eight_bits, symmetric_quantizer<8, 32>>;
  auto layers = cache_type::pair();
  layers.retention = retain_most_different::angle(1.5F);
  layers.row_capacity = 64;
  auto const data = make_layer_pair<bfloat16>(1, 2, 128, 64, 0.1);
  coded_part<cache_type> part(2, 64, layers);
  part.append(data, 0, 128);
  for (int layer = 0; layer < 2; ++layer) {
    for (int which : {key_part, value_part}) {
      auto const found = part.restored(layer, which);
      for (std::int64_t row = 0; row < 2 * 128; ++row) {
        double squares[3] = {};  // of what was given, of what was found, of the difference
        for (std::int64_t i = row * 64; i < (row + 1) * 64; ++i) {
          double const given = load(data.part[layer][which][as_size(i)]);
          double const restored = found[as_size(i)];
          squares[0] += given * given;
          squares[1] += restored * restored;
          squares[2] += (given - restored) * (given - restored);
        }
        CAPTURE(layer, which, row);
        CHECK(std::sqrt(squares[1] / squares[0]) == Approx(1.0).epsilon(0.002));
        CHECK(std::sqrt(squares[2] / squares[0]) < 0.15);  // 0.6 of the mean angle, with room
      }
    }
  }
}

TEST_CASE("attention over directions is that over what they restore to", "[host]") {
  using cache_type = paired_cache<two_bits, asymmetric_quantizer<3, 16>>;
  auto const data = make_layer_pair<bfloat16>(1, 2, 200, 64);
  auto layers = cache_type::pair();
  layers.retention = retain_most_different::angle(1.0F);
  coded_part<cache_type> part(2, 64, layers, 64);
  part.append(data, 0, 200);
  REQUIRE(part.cache.wait_for_statistics(part.exec, part.sequences()).retained_tokens > 0);
  auto const queries = attention_samples<bfloat16>(testing::gauss{}, 3, 1, 4 * 64);
  for (int layer = 0; layer < 2; ++layer) {
    auto const expected = part.attended_by_formula(queries, 1, as_doubles(part.restored(layer, key_part)),
                                                   as_doubles(part.restored(layer, value_part)));
    CHECK(error_of(as_doubles(part.attended(layer, queries, 1)), expected).relative_l1 < 1e-5);
  }
}

TEST_CASE("every byte of a page is counted", "[host]") {
  for (int channels : {32, 96, 256}) {
    cache_page_format const format{channels, 2, 2, channels / 32, 1};
    page_byte_counts const found = quantized_codec<two_bits>::counts(format);
    CHECK(found.codes == 64 * channels * 2 * 2 / 8);
    CHECK(found.scales == 2 * (64 * channels / 32) * 8);  // a scale and a minimum in fp32 for each 32 values
    CHECK(found.lengths == 0);
    CHECK(found.header == 64);
    CHECK(found.total() == quantized_codec<two_bits>::page_bytes(format));
    CHECK(found.total() % 32 == 0);
  }
  using paired = quantized_codec<e4m3, asymmetric_quantizer<3, 16>, page_vectors::directions>;
  page_byte_counts const found = paired::counts({64, 8, 3, 4, 2});
  CHECK(found.codes == 64 * 64 * (8 + 3) / 8);
  CHECK(found.scales == 64 * 4 + 64 * 4 * 8);
  CHECK(found.lengths == 2 * 2 * 64 * 2);
  CHECK(found.total() == paired::page_bytes({64, 8, 3, 4, 2}));
  auto const data = make_layer_pair<bfloat16>(1, 2, 128, 64);
  coded_part<plain_cache<two_bits>> part(2, 64);
  part.append(data, 0, 128);
  auto const used = part.cache.wait_for_statistics(part.exec, part.sequences());
  CHECK(used.codes == 2 * 2 * 64 * 64 * 4 / 8);
  CHECK(used.codes + used.scales + used.norms + used.headers ==
        2 * 2 * quantized_codec<two_bits>::page_bytes(part.cache.memory(0).format));
}

TEST_CASE("formats that are not the codec's are refused in words that name both numbers", "[host]") {
  using cache_type = plain_cache<two_bits, eight_bits>;
  cpu const exec{.threads = 1};
  auto const make = [&](cache_layers const& layers, std::int64_t channels = 64) {
    return cache_type(exec, {1, 64, 1, 1, channels, 64}, {.parts = {layers}});
  };
  auto three = cache_type::single();
  three.key_bits = 3;
  CHECK_THROWS_WITH(make(three), contains("codes of keys have 3 bits but those of the codec's quantizer have 2"));
  auto four = cache_type::single();
  four.value_bits = 4;
  CHECK_THROWS_WITH(make(four), contains("codes of values have 4 bits but those of the codec's quantizer have 8"));
  auto other = cache_type::single();
  other.value_group = 32;
  CHECK_THROWS_WITH(make(other), contains("values have 2 groups but the codec's quantizer makes 1"));
  CHECK_THROWS_WITH(make(cache_type::single(), 96),
                    contains("heads have 96 channels, which are no whole number of the quantizer's groups of 64"));
  using averaged = cross_layer_cache<slerp_merger<float>, retain_most_different, quantized_codec<two_bits>>;
  auto two = averaged::single();
  two.layers = 2;
  CHECK_THROWS_WITH(averaged(exec, {1, 64, 1, 1, 64, 64}, {.parts = {two}}),
                    contains("pages have 2 layers but those of this codec have at most 1"));
}
