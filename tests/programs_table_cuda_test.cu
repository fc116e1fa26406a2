// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The tables of what runs, docs/exchanges.md's and that of docs/architectures.md, made by explain() for devices that
// need not be there. To write them anew run this test with the environment variable TESSERA_WRITE_TABLES set.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/algorithm/attention/decode_attention.hpp>
#include <tessera/algorithm/attention/dense_attention.hpp>
#include <tessera/algorithm/attention/float8_attention.hpp>
#include <tessera/algorithm/gemm/linear.hpp>
#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/explain.hpp>
#include <tessera/map/dense_bias.hpp>
#include <tessera/map/listed_tiles.hpp>
#include <tessera/merge/average.hpp>
#include <tessera/minicache.hpp>
#include <tessera/neuzip.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/quantize/two_to_a_byte.hpp>
#include <tessera/sage_attention2.hpp>
#include <tessera/select/quest.hpp>
#include <tessera/shadow_kv.hpp>
#include <tessera/tile/source/coded_weights.hpp>
#include <tessera/tile/source/dequantized.hpp>
#include <tessera/tile/source/scaled_codes.hpp>

#include "support/catch.hpp"
#include "support/score_functions.hpp"

using namespace tessera;

namespace tessera_test {

/// A program that no group can run: a source that compiles it for one does not compile.
struct never_compiled {
  static constexpr int lanes = 32;
  struct scratch_type {};

  template <class Group>
  TESSERA_FN void operator()(Group const&, std::int64_t, scratch_type&) const {
    static_assert(sizeof(Group) == 0, "a program was compiled for a device that is only described");
  }
};

}  // namespace tessera_test

namespace {

using careful_attention = attention<smoothed<smoothed<symmetric_quantizer<8, per_thread>>, block_mean>,
                                    smoothed<float8_quantizer<float8_e4m3>>>;
using loss_with_entropies = linear_loss<loss_gemm_tile<bfloat16>, loss_statistics, gradient_filter<12>>;

/// Devices as a source sees them that is compiled for all of these, whatever this one is compiled for.
using every_cuda = basic_cuda<arch_list<800, 860, 890, 900, 1000, 1200>>;
using described_device = decltype(every_cuda::described({}));

/// An address that nothing reads or writes: at a multiple of 4096 bytes.
template <class T>
T* nowhere() {
  return reinterpret_cast<T*>(std::uintptr_t{1} << 30);
}
template <class T>
head_view<T> heads(std::int64_t count, std::int64_t tokens, std::int64_t stride = 0) {
  std::int64_t const row = stride == 0 ? 128 : stride;
  return {nowhere<T>(), {1, count, tokens, 128}, {count * tokens * row, tokens * row, row, 1}};
}
template <class T>
matrix_view<T> matrix(std::int64_t rows, std::int64_t columns) {
  return {nowhere<T>(), {rows, columns}};
}
workspace room(workspace_plan const& plan) {
  return workspace(plan, array_view<std::byte>(nowhere<std::byte>(), plan.bytes()));
}

/// Biases of 16K queries and keys, which heads share.
dense_bias<bfloat16> some_biases() {
  return {{nowhere<bfloat16 const>(), {1, 32, 16384, 16384}, {0, 0, std::int64_t{16384}, 1}}};
}
/// Lists of half of the tiles.
attention_block_list some_tiles() {
  return {{nowhere<std::int32_t const>(), {1, 32, 256}}, {nowhere<std::int32_t const>(), {1, 32, 256, 64}}};
}

template <class Attention, class Functions = attention_functions<>>
explanation attend(described_device const& exec, std::int64_t queries, attention_options const& options = {},
                   Functions const& functions = {}, attention_block_list const& list = {}) {
  return explain(exec, [&](auto const& dry) {
    attention_shape const shape{1, 32, 8, queries, 16384, 128};
    auto const plan = Attention::plan_forward(dry, shape);
    attention_inputs<bfloat16> in{heads<bfloat16 const>(32, queries), heads<bfloat16 const>(8, 16384),
                                  heads<bfloat16 const>(8, 16384)};
    in.block_list = list;
    Attention::forward(dry, in, options, attention_outputs<bfloat16>{heads<bfloat16>(32, queries)}, room(plan),
                       functions);
  });
}

template <class Loss, class T, class Gradient = T>
explanation train(described_device const& exec, linear_loss_options const& options = {}) {
  return explain(exec, [&](auto const& dry) {
    linear_loss_shape const shape{8192, 128256, 4096};
    auto const plan = Loss::template plan_backward<Gradient>(dry, shape, options);
    linear_loss_inputs<T, std::int64_t> const in{matrix<T const>(shape.tokens, shape.channels),
                                                 matrix<T const>(shape.vocabulary, shape.channels),
                                                 {nowhere<std::int64_t const>(), shape.tokens}};
    Loss::forward(dry, in, options, {.loss = {nowhere<float>(), 1}}, room(plan));
    linear_loss_gradients<Gradient> const out{matrix<Gradient>(shape.tokens, shape.channels),
                                              matrix<Gradient>(shape.vocabulary, shape.channels)};
    Loss::backward(dry, in, options, {}, out, room(plan));
  });
}

template <class Operand, class Output>
explanation multiply(described_device const& exec, std::int64_t depth = 4096) {
  return explain(exec, [&](auto const& dry) {
    using value_type = typename linear<Operand>::value_type;
    linear<Operand>::forward(dry, matrix<value_type const>(4096, depth), matrix<value_type const>(4096, depth),
                             matrix<Output>(4096, 4096));
  });
}

/// A layer whose weights are codes of 8 bits, with a workspace of at most `budget` bytes.
explanation multiply_by_codes(described_device const& exec, std::int64_t tokens, std::int64_t budget = 0) {
  return explain(exec, [=](auto const& dry) {
    dequantized<symmetric_quantizer<8, 64>, bfloat16> const weights{
        {}, matrix<std::int8_t const>(4096, 4096), matrix<symmetric_params const>(4096, 64)};
    linear_options const options{.workspace_budget = budget};
    auto const plan = linear<bfloat16>::plan_forward(dry, tokens, weights, options);
    linear<bfloat16>::forward(dry, matrix<bfloat16 const>(tokens, 4096), weights, matrix<bfloat16>(tokens, 4096),
                              room(plan), options);
  });
}

/// A layer whose weights are exact codes of 4 bits with scales of groups.
explanation multiply_by_scaled(described_device const& exec, std::int64_t tokens) {
  return explain(exec, [tokens](auto const& dry) {
    using codes = two_to_a_byte<symmetric_quantizer<4, 128>>;
    scaled_codes<codes, bfloat16> const weights{
        {}, matrix<stored_code<codes> const>(4096, 2048), matrix<symmetric_params const>(4096, 32)};
    linear<bfloat16>::forward(dry, matrix<bfloat16 const>(tokens, 4096), weights, matrix<bfloat16>(tokens, 4096));
  });
}

/// A layer whose weights are in a stream of codes of a fixed length.
explanation multiply_decoded(described_device const& exec, std::int64_t tokens) {
  return explain(exec, [tokens](auto const& dry) {
    coded_weights weights{};
    weights.row_count = weights.column_count = 4096;
    linear<bfloat16>::forward(dry, matrix<bfloat16 const>(tokens, 4096), weights, matrix<bfloat16>(tokens, 4096));
  });
}

explanation decode_dense(described_device const& exec) {
  return explain(exec, decode_attention_call<bfloat16, bfloat16>{
                           {1, 32, 8, 1, 16384, 128},
                           {heads<bfloat16 const>(8, 16384), heads<bfloat16 const>(8, 16384), {}, {}},
                           heads<bfloat16 const>(32, 1),
                           0.1F,
                           true,
                           {heads<bfloat16>(32, 1)}});
}

/// The parts of a step of an offloaded cache that have several programs.
template <class Selector>
explanation step(described_device const& exec) {
  using method = offloaded_cache<low_rank<160>, Selector, keep_outliers<48>>;
  return explain(exec, [&](auto const& dry) {
    auto const plan = method::template plan<bfloat16>(dry, {32, 8, 128, {131072}});
    auto const memory = [](workspace_plan const& of) {
      return array_view<std::byte>(nowhere<std::byte>(), of.bytes());
    };
    auto const cache = method::open(dry, plan, memory(plan.device), memory(plan.host), {});
    using element = typename chunk_landmarks<Selector>::element_type;
    auto const one = plan.step_of(room(plan.step), 1, {});
    run(dry, score_chunks<bfloat16, Selector>{plan.extents, cache.memory, one, cache.selector, 0.1F});
    run(dry, select_chunks<bfloat16, Selector>{plan.extents, cache.memory, one, cache.selector});
    run(dry, fetch_values<bfloat16, element, exact_values>{plan.extents, cache.memory, one, true});
    run(dry, rebuild_keys<bfloat16, element>{plan.extents, cache.memory, one, cache.rotary});
    run(dry, attend_chunks<bfloat16, element>{plan.extents, cache.memory, one, 0.1F, 1, 1});
  });
}

/// Appending a page's tokens to a cache whose layers are kept in pairs, and attending to it.
template <class M, class Codec>
explanation cache_step(described_device const& exec) {
  return explain(exec, [&](auto const& dry) {
    cache_memory<bfloat16> memory{};
    memory.format = {128, Codec::key_bits, Codec::value_bits, 128 / Codec::value_group, 2};
    memory.heads = 8;
    memory.pages = nowhere<std::byte>();
    memory.tail = nowhere<bfloat16>();
    cache_append_call<M, bfloat16, Codec> append{};
    append.source.memory = memory;
    append.marks = {nowhere<page_mark>(), {1, 1, 8}};
    run(dry, append);
    cached_attention_call<bfloat16, bfloat16, Codec> attend{};
    attend.shape = {1, 32, 8, 1, 16384, 128};
    attend.memory = memory;
    attend.sequences.blocks = {nowhere<std::int32_t const>(), {1, 256}};
    attend.queries = heads<bfloat16 const>(32, 1);
    run(dry, attend);
  });
}

/// Encoding and decoding a tensor.
template <class Codec>
explanation code_weights(described_device const& exec) {
  return explain(exec, [&](auto const& dry) {
    using value_type = typename Codec::value_type;
    weight_encoding<value_type, typename Codec::table_coder_type> const encoding{};
    weight_decoding<value_type, typename Codec::table_coder_type> const decoding{};
    run(dry, encode_weights_call<typename Codec::mantissa_type, value_type, typename Codec::table_coder_type>{
                 {&encoding, 1}});
    run(dry, decode_weights_call<typename Codec::mantissa_type, value_type, typename Codec::table_coder_type>{
                 {&decoding, 1}});
  });
}

struct row {
  std::string what;
  explanation (*of)(described_device const&);
};

std::vector<row> rows() {
  return {
      {"`neuzip`", [](described_device const& e) { return code_weights<neuzip>(e); }},
      {"`lossy` (above)",
       [](described_device const& e) {
         return code_weights<compressed_weights<exponent_split<bfloat16>, rans_coder<12>, keep_mantissa<3>>>(e);
       }},
      {"`compressed_weights` with `tans_coder`",
       [](described_device const& e) {
         return code_weights<compressed_weights<exponent_split<bfloat16>, tans_coder, keep_mantissa<7>>>(e);
       }},
      {"`sage_attention2`, 16K queries", [](described_device const& e) { return attend<sage_attention2>(e, 16384); }},
      {"`sage_attention2`, one query", [](described_device const& e) { return attend<sage_attention2>(e, 1); }},
      {"`sage_attention2_int4`", [](described_device const& e) { return attend<sage_attention2_int4>(e, 16384); }},
      {"`float8_attention`", [](described_device const& e) { return attend<float8_attention>(e, 16384); }},
      {"`dense_attention`", [](described_device const& e) { return attend<dense_attention>(e, 16384); }},
      {"`dense_attention` with a bias",
       [](described_device const& e) {
         return attend<dense_attention>(e, 16384, {}, attention_functions<tessera_test::slope_bias>{});
       }},
      {"`dense_attention` with a `dense_bias`",
       [](described_device const& e) {
         return attend<dense_attention>(e, 16384, {}, attention_functions<dense_bias<bfloat16>>{some_biases()});
       }},
      {"`dense_attention` with a list of tiles",
       [](described_device const& e) { return attend<dense_attention>(e, 16384, {}, {}, some_tiles()); }},
      {"`careful_attention` (above)", [](described_device const& e) { return attend<careful_attention>(e, 16384); }},
      {"`sage_attention2` with a bias",
       [](described_device const& e) {
         return attend<sage_attention2>(e, 16384, {}, attention_functions<tessera_test::slope_bias>{});
       }},
      {"`sage_attention2` with a `dense_bias`",
       [](described_device const& e) {
         return attend<sage_attention2>(e, 16384, {}, attention_functions<dense_bias<bfloat16>>{some_biases()});
       }},
      {"`sage_attention2` with `listed_tiles`",
       [](described_device const& e) {
         return attend<sage_attention2>(e, 16384, {}, attention_functions<listed_tiles<>>{{some_tiles()}});
       }},
      {"`cut_cross_entropy`", [](described_device const& e) { return train<cut_cross_entropy, bfloat16>(e); }},
      {"`exact_cross_entropy` in 10 MiB, gradients in fp32",
       [](described_device const& e) {
         return train<exact_cross_entropy, bfloat16, float>(e, {.workspace_budget = std::int64_t{10} << 20});
       }},
      {"`exact_cross_entropy` in 4 GiB",
       [](described_device const& e) {
         return train<exact_cross_entropy, bfloat16>(e, {.workspace_budget = std::int64_t{4} << 30});
       }},
      {"`loss_with_entropies` (above)",
       [](described_device const& e) { return train<loss_with_entropies, bfloat16>(e); }},
      {"`cut_cross_entropy_of<float>`",
       [](described_device const& e) { return train<cut_cross_entropy_of<float>, float>(e); }},
      {"`linear<bfloat16>`", [](described_device const& e) { return multiply<bfloat16, bfloat16>(e); }},
      {"`linear<float>`", [](described_device const& e) { return multiply<float, float>(e); }},
      {"`linear<bfloat16>`, rows of 4097",
       [](described_device const& e) { return multiply<bfloat16, bfloat16>(e, 4097); }},
      {"`linear<bfloat16>`, weights of 8-bit codes",
       [](described_device const& e) { return multiply_by_codes(e, 4096); }},
      {"`linear<bfloat16>`, weights of 8-bit codes, with a workspace",
       [](described_device const& e) { return multiply_by_codes(e, 4096, linear_options{}.workspace_budget); }},
      {"`linear<bfloat16>`, 16 rows, weights of 8-bit codes",
       [](described_device const& e) { return multiply_by_codes(e, 16); }},
      {"`linear<bfloat16>`, 16 rows, weights of `scaled_codes`",
       [](described_device const& e) { return multiply_by_scaled(e, 16); }},
      {"`linear<bfloat16>`, weights of a `coded_matrix`",
       [](described_device const& e) { return multiply_decoded(e, 4096); }},
      {"`linear<bfloat16>`, 16 rows, weights of a `coded_matrix`",
       [](described_device const& e) { return multiply_decoded(e, 16); }},
      {"`decode_attention_call` (keys in bf16)", [](described_device const& e) { return decode_dense(e); }},
      {"`shadow_kv`", [](described_device const& e) { return step<coded_landmark_selector<8>>(e); }},
      {"`minicache`",
       [](described_device const& e) { return cache_step<slerp_merger<float>, direction_codec<4, 64>>(e); }},
      {"`averaged` (above)",
       [](described_device const& e) {
         return cache_step<average_direction_merger<float>, direction_codec<3, 64>>(e);
       }},
      {"`quest` (above)", [](described_device const& e) { return step<quest_selector<8>>(e); }},
  };
}

/// The programs of an explanation, each once.
std::string programs(explanation const& of) {
  std::string text;
  for (program_choice const& choice : of.choices) {
    std::string const name = choice.is_portable ? "**portable**" : std::string(choice.program);
    if (text.find(name) == std::string::npos) {
      text += (text.empty() ? "" : "; ") + name;
    }
  }
  return text;
}
/// Why the first portable part of an explanation has no faster program: what the last one asked says.
std::string reason(explanation const& of) {
  for (program_choice const& choice : of.choices) {
    if (choice.is_slower()) {
      return choice.refused.back().why.text();
    }
  }
  return "";
}

std::string table() {
  described_device const hopper = every_cuda::described({.architecture = 900, .multiprocessors = 132});
  described_device const ampere =
      every_cuda::described({.architecture = 800, .multiprocessors = 108, .shared_bytes = 163 * 1024});
  std::string text = "| what runs | on sm_90a | why not a faster one | on sm_80 |\n|---|---|---|---|\n";
  for (row const& each : rows()) {
    explanation const found = each.of(hopper);
    text +=
        "| " + each.what + " | " + programs(found) + " | " + reason(found) + " | " + programs(each.of(ampere)) + " |\n";
  }
  return text;
}

/// The programs of sm_80, and what they are where a thread block has 99 KiB of shared memory: on sm_86, and on sm_89
/// and sm_120, whose tensor cores multiply 8-bit floats.
std::string table_without_wgmma() {
  auto const of = [](int architecture, int multiprocessors, int kibibytes) {
    return every_cuda::described(
        {.architecture = architecture, .multiprocessors = multiprocessors, .shared_bytes = kibibytes * 1024});
  };
  described_device const ampere = of(800, 108, 163), geforce = of(860, 84, 99);
  described_device const ada = of(890, 128, 99), blackwell = of(1200, 170, 99);
  std::string text = "| what runs | on sm_80 | on sm_86 | on sm_89 and sm_120 |\n|---|---|---|---|\n";
  for (row const& each : rows()) {
    std::string const on_ada = programs(each.of(ada));
    CHECK(on_ada == programs(each.of(blackwell)));
    std::string what = each.what;  // names that only docs/exchanges.md has are no code there
    what.erase(std::remove(what.begin(), what.end(), '`'), what.end());
    if (std::size_t const at = what.find("(above)"); at != std::string::npos) {
      what.replace(at, 7, "(in exchanges.md)");
    }
    text +=
        "| " + what + " | " + programs(each.of(ampere)) + " | " + programs(each.of(geforce)) + " | " + on_ada + " |\n";
  }
  return text;
}

/// Checks that a page has a table between two marks, or writes it there.
void check_page(std::string const& page, std::string const& found) {
  std::string const path = std::string(TESSERA_TEST_DATA) + "/../../" + page;
  std::string const begin = "<!-- programs begin -->\n";
  std::string const end = "<!-- programs end -->";
  std::ifstream file(path);
  std::string const text{std::istreambuf_iterator<char>(file), {}};
  std::size_t const first = text.find(begin);
  std::size_t const last = text.find(end);
  REQUIRE(first != std::string::npos);
  REQUIRE(last != std::string::npos);
  if (std::getenv("TESSERA_WRITE_TABLES") != nullptr) {
    std::ofstream(path) << text.substr(0, first + begin.size()) << found << text.substr(last);
    return;
  }
  CHECK(text.substr(first + begin.size(), last - first - begin.size()) == found);
}

}  // namespace

TEST_CASE("the tables of programs say what explain() says, without a device", "[cuda]") {
  check_page("docs/exchanges.md", table());
  check_page("docs/architectures.md", table_without_wgmma());
}

TEST_CASE("codes two to a byte have memory for bytes where no tensor cores multiply pairs", "[cuda]") {
  attention_shape const shape{1, 32, 8, 16384, 16384, 128};
  auto const bytes_for = [&](int architecture) {
    described_device const device = every_cuda::described({architecture, 132, 227 * 1024});
    return sage_attention2_int4::widened(device, shape, room(sage_attention2_int4::plan_forward(device, shape))).size();
  };
  for (int const architecture : {800, 860, 890}) {
    CHECK(bytes_for(architecture) == 0);
  }
  for (int const architecture : {900, 1000, 1200}) {
    CHECK(bytes_for(architecture) == widened_codes<sage_attention2_int4::method>{shape}.bytes());
  }
}

TEST_CASE("values have memory in fp16 where forward_by_warps multiplies them so", "[cuda]") {
  using pairs = sage_attention2_int4::method;
  using bytes = widened_method<pairs>;
  using in_bytes = attention<bytes::score_quantizer, bytes::value_quantizer, bytes::softmax>;
  attention_shape const shape{1, 32, 8, 16384, 16384, 128};
  for (int const architecture : {800, 860, 890, 900, 1000, 1200}) {
    CAPTURE(architecture);
    described_device const device = every_cuda::described({architecture, 132, 227 * 1024});
    bool const multiplies_halves = architecture == 800 || architecture == 860 || architecture == 1000;
    std::int64_t const expected = multiplies_halves ? shape.batch * shape.key_heads * shape.keys * shape.channels : 0;
    auto const plan = sage_attention2::plan_forward(device, shape);
    CHECK(sage_attention2::halves_of_values(device, shape, room(plan)).size() == expected);
    auto const of_pairs = sage_attention2_int4::plan_forward(device, shape);
    CHECK(sage_attention2_int4::halves_of_values(device, shape, room(of_pairs)).size() == expected);
    if (architecture >= 900) {  // forward() of pairs has codes in bytes in the same workspace
      CHECK(in_bytes::plan_forward(device, shape).bytes() <= of_pairs.bytes());
      CHECK(in_bytes::halves_of_values(device, shape, room(of_pairs)).size() == expected);
    }
  }
}

namespace {

/// How many values forward() has memory for in fp16, on a device with so many KiB for a thread block.
template <class Attention>
std::int64_t count_of_halves(int architecture, int kibibytes, std::int64_t queries, std::int64_t channels) {
  described_device const device = every_cuda::described({architecture, 84, kibibytes * 1024});
  attention_shape const shape{1, 32, 8, queries, 16384, channels};
  return Attention::halves_of_values(device, shape, room(Attention::plan_forward(device, shape))).size();
}

}  // namespace

TEST_CASE("values of few queries have memory in fp16 where thread blocks cannot widen codes", "[cuda]") {
  using pairs = sage_attention2_int4;
  constexpr std::int64_t all = 8 * 16384 * 128;
  CHECK(count_of_halves<pairs>(860, 99, 64, 128) == all);
  CHECK(count_of_halves<pairs>(860, 99, 64, 80) == all / 128 * 80);
  CHECK(count_of_halves<pairs>(860, 99, 63, 128) == 0);  // attention_tiles
  CHECK(count_of_halves<pairs>(860, 99, 64, 64) == 0);   // thread blocks have room to widen codes
  CHECK(count_of_halves<pairs>(860, 99, 1024, 64) == all / 2);
  CHECK(count_of_halves<pairs>(860, 90, 1024, 128) == 0);  // 90.6 KiB are needed
  CHECK(count_of_halves<pairs>(800, 163, 64, 128) == 0);
  CHECK(count_of_halves<pairs>(890, 99, 64, 128) == 0);              // values are multiplied as e4m3
  CHECK(count_of_halves<sage_attention2>(860, 97, 1024, 128) == 0);  // 97.5 KiB are needed
  CHECK(count_of_halves<sage_attention2>(860, 99, 64, 128) == all);  // in swizzled rows
  CHECK(count_of_halves<sage_attention2>(860, 106, 64, 128) == all);
}

TEST_CASE("calls over codes say what they lack where thread blocks cannot widen values", "[cuda]") {
  described_device const geforce = every_cuda::described({860, 84, 99 * 1024});
  attention_shape const shape{1, 32, 8, 1024, 16384, 128};
  auto const plan = sage_attention2_int4::plan_forward(geforce, shape);
  attention_call<sage_attention2_int4::method, bfloat16> call{
      shape, {}, sage_attention2_int4::operands(shape, room(plan)), {heads<bfloat16>(32, 1024)}};
  call.heads.queries.mean_scores = {};
  auto const none = explain(geforce, call);
  REQUIRE(none.choices.size() == 1);
  CHECK(programs(none) == "attention_tiles (cp.async, mma.sync)");
  CHECK(std::any_of(none.choices[0].refused.begin(), none.choices[0].refused.end(), [](auto const& each) {
    return each.why.text().find("values have no memory in fp16") != std::string::npos;
  }));
  call.halves_of_values = sage_attention2_int4::halves_of_values(geforce, shape, room(plan));
  CHECK(programs(explain(geforce, call)) == "forward_by_warps (cp.async, mma.sync)");
}

TEST_CASE("a call of a described device names what it cannot be given", "[cuda]") {
  described_device const hopper = every_cuda::described({});
  auto const told = multiply<bfloat16, bfloat16>(hopper, 4097);
  REQUIRE(told.choices.size() == 1);
  CHECK(told.choices[0].is_slower());
  CHECK(
      told.text() ==
      "linear.forward: portable program, because gemm_cooperative (TMA, wgmma): TMA cannot load the inputs: rows begin "
      "at multiples of 16 bytes; gemm_ring (cp.async, mma.sync): rows of inputs do not begin and end at multiples "
      "of 16 bytes\n");
  CHECK(multiply<bfloat16, bfloat16>(hopper).is_fast());
  static_assert(described_cuda::is_described && described_device::is_described && !cuda::is_described);
  // Nothing is compiled for it, and nothing runs on it, explained or not.
  hopper.run(tessera_test::never_compiled{}, 1);
  linear<float>::forward(hopper, matrix<float const>(8, 8), matrix<float const>(8, 8), matrix<float>(8, 8));
  hopper.wait();
  described_device strict = hopper;
  strict.options = {.refuses_slower_programs = true};
  CHECK_THROWS_AS(
      (linear<float>::forward(strict, matrix<float const>(8, 8), matrix<float const>(8, 8), matrix<float>(8, 8))),
      slower_program);
  strict.options = {.refuses_slower_programs = false};
  CHECK_THROWS_AS(
      (linear<float>::forward(strict, matrix<float const>(8, 8), matrix<float const>(8, 8), matrix<float>(8, 8))),
      device_error);
}
