// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The tables of what runs, those of README.md, docs/exchanges.md and docs/architectures.md, made by explain() for
// devices that need not be there. To write them anew run this test with the environment variable TESSERA_WRITE_TABLES
// set.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/algorithm/attention/float8_attention.hpp>
#include <tessera/map/dense_bias.hpp>
#include <tessera/map/listed_tiles.hpp>
#include <tessera/merge/average.hpp>
#include <tessera/select/quest.hpp>

#include "support/catch.hpp"
#include "support/described_calls.cuh"
#include "support/message_of.hpp"
#include "support/score_functions.hpp"

using namespace tessera;
using namespace tessera_test;

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
      {"`linear<bfloat16>`, weights transposed",
       [](described_device const& e) { return multiply_across<bfloat16, bfloat16>(e); }},
      {"`linear<bfloat16>`, inputs and weights transposed",
       [](described_device const& e) { return multiply_across<bfloat16, bfloat16>(e, true); }},
      {"`linear<std::int8_t>`, weights transposed",
       [](described_device const& e) { return multiply_across<std::int8_t, std::int32_t>(e); }},
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
      {"`linear<std::int8_t>`", [](described_device const& e) { return multiply<std::int8_t, std::int32_t>(e); }},
      {"`linear<float8_e4m3>`", [](described_device const& e) { return multiply<float8_e4m3, bfloat16>(e); }},
      {"`scaled_linear`, 8-bit integers",
       [](described_device const& e) { return multiply_scaled<symmetric_quantizer<8, 128>>(e); }},
      {"`scaled_linear`, e4m3",
       [](described_device const& e) { return multiply_scaled<scaled_float_quantizer<float8_e4m3, 128>>(e); }},
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

/// A GPU of an architecture, with as much shared memory for a thread block as the architecture has.
described_device gpu(int architecture, int multiprocessors) {
  return every_cuda::described({.architecture = architecture, .multiprocessors = multiprocessors});
}
/// The GPUs of columns: an A100, an RTX A6000, an L4's larger sister, an H200, a B200 and an RTX 5090.
described_device ampere() {
  return gpu(800, 108);
}
described_device geforce() {
  return gpu(860, 84);
}
described_device ada() {
  return gpu(890, 128);
}
described_device hopper() {
  return gpu(900, 132);
}
described_device server_blackwell() {
  return gpu(1000, 148);
}
described_device blackwell() {
  return gpu(1200, 170);
}

/// A line of a table.
std::string line_of(std::vector<std::string> const& cells) {
  std::string text = "|";
  for (std::string const& cell : cells) {
    text += " " + cell + " |";
  }
  return text + "\n";
}
/// The programs on devices, by sm_80's where they are the same.
std::vector<std::string> cells_of(explanation (*of)(described_device const&), bool has_hopper) {
  std::string const first = programs(of(ampere()));
  auto const as_first = [&](std::string const& text) { return text == first ? "as sm_80" : text; };
  std::string const on_ada = as_first(programs(of(ada())));
  CHECK(on_ada == as_first(programs(of(blackwell()))));
  std::vector<std::string> cells{first, as_first(programs(of(geforce()))), on_ada};
  if (has_hopper) {
    cells.push_back(as_first(programs(of(hopper()))));
  }
  cells.push_back(as_first(programs(of(server_blackwell()))));
  return cells;
}

std::string table() {
  std::string text = "| what runs | on sm_90a | why not a faster one | on sm_80 |\n|---|---|---|---|\n";
  for (row const& each : rows()) {
    explanation const found = each.of(hopper());
    text += line_of({each.what, programs(found), reason(found), programs(each.of(ampere()))});
  }
  return text;
}

/// The programs of GPUs without wgmma. A thread block has 99 KiB of shared memory on sm_86, and on sm_89 and sm_120,
/// whose tensor cores multiply 8-bit floats.
std::string table_without_wgmma() {
  std::string text = "| what runs | on sm_80 | on sm_86 | on sm_89 and sm_120 | on sm_100 |\n|---|---|---|---|---|\n";
  for (row const& each : rows()) {
    std::string what = each.what;  // names that only docs/exchanges.md has are no code there
    what.erase(std::remove(what.begin(), what.end(), '`'), what.end());
    if (std::size_t const at = what.find("(above)"); at != std::string::npos) {
      what.replace(at, 7, "(in exchanges.md)");
    }
    std::vector<std::string> cells = cells_of(each.of, false);
    cells.insert(cells.begin(), what);
    text += line_of(cells);
  }
  return text;
}

/// The table of the README: the papers' algorithms, and where their programs were measured. explain() does not name
/// what CPUs have, whose programs choose instructions inside.
std::string table_of_readme() {
  struct {
    char const* what;
    char const* on_cpu;
    explanation (*of)(described_device const&);
  } const algorithms[]{
      {"NeuZip", "AVX-512, AVX2", [](described_device const& e) { return code_weights<neuzip>(e); }},
      {"Cut Cross-Entropy, both passes", "AVX-512, AVX2",
       [](described_device const& e) { return train<cut_cross_entropy, bfloat16>(e); }},
      {"SageAttention2", "AVX-512, AVX2", [](described_device const& e) { return attend<sage_attention2>(e, 16384); }},
      {"SageAttention2, one query", "AVX2", [](described_device const& e) { return attend<sage_attention2>(e, 1); }},
      {"`dense_attention`", "AVX-512, AVX2",
       [](described_device const& e) { return attend<dense_attention>(e, 16384); }},
      {"MiniCache", "portable",
       [](described_device const& e) { return cache_step<slerp_merger<float>, direction_codec<4, 64>>(e); }},
      {"ShadowKV, a step", "portable", [](described_device const& e) { return step<coded_landmark_selector<8>>(e); }},
      {"`linear`", "AVX-512, AVX2", [](described_device const& e) { return multiply<bfloat16, bfloat16>(e); }},
  };
  std::string text = line_of({"algorithm", "CPU (x86-64; elsewhere plain loops)", "sm_80", "sm_86", "sm_89, sm_120",
                              "sm_90a", "sm_100"}) +
                     "|---|---|---|---|---|---|---|\n";
  for (auto const& each : algorithms) {
    std::vector<std::string> cells = cells_of(each.of, true);
    cells.insert(cells.begin(), {each.what, each.on_cpu});
    text += line_of(cells);
  }
  return text + line_of({"measured", "on a Xeon", "sm_80's code, on an H200", "only compiled",
                         "sm_89's code, on an H200; sm_120 only compiled", "on an H200", "only compiled"});
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
  check_page("README.md", table_of_readme());
  check_page("docs/exchanges.md", table());
  check_page("docs/architectures.md", table_without_wgmma());
}

namespace {

/// What the kernels that a device takes for weights of a type lack there.
template <class T, class Mantissa, class Exec>
std::vector<std::string> lacks_for_weights(Exec const& exec) {
  std::vector<std::string> found;
  tessera::detail::with_policy<neuzip_encode_tuning>(exec, [&](auto policy) {
    using kernel = encode_weights_on_warps<T, decltype(policy)::value, Mantissa>;
    found.push_back(exec.template lacks<kernel>().text());
  });
  tessera::detail::with_policy<neuzip_decode_tuning>(exec, [&](auto policy) {
    using kernel = decode_weights_on_warps<T, decltype(policy)::value, keep_mantissa<Mantissa::kept_bits>>;
    found.push_back(exec.template lacks<kernel>().text());
  });
  return found;
}
template <class T>
using whole_mantissa = keep_mantissa<scalar_traits<T>::mantissa_bits>;

}  // namespace

TEST_CASE("kernels for weights fit into the shared memory of every GPU", "[cuda]") {
  std::vector<std::string> const nothing{"", ""};
  for (described_device const& exec : {ampere(), geforce(), ada(), hopper(), server_blackwell(), blackwell()}) {
    CAPTURE(exec.state->architecture());
    CHECK(lacks_for_weights<bfloat16, whole_mantissa<bfloat16>>(exec) == nothing);
    CHECK(lacks_for_weights<bfloat16, keep_mantissa<3>>(exec) == nothing);
    CHECK(lacks_for_weights<float, whole_mantissa<float>>(exec) == nothing);
    CHECK(lacks_for_weights<float8_e4m3, whole_mantissa<float8_e4m3>>(exec) == nothing);
    CHECK(code_weights<neuzip>(exec).is_fast());
  }
}

TEST_CASE("weights are coded portably, and have memory for it, where a device has no kernel or no room for it",
          "[cuda]") {
  auto const spec = neuzip::spec(100'000);
  auto const check_portable = [&](auto const& exec, std::string const& why) {
    explanation const found = code_weights<neuzip>(exec);
    REQUIRE(found.choices.size() == 2);
    for (program_choice const& choice : found.choices) {
      REQUIRE(choice.is_slower());
      CHECK_THAT(choice.refused.back().why.text(), contains(why));
    }
    std::int64_t const slots = spec.block_count() * spec.raw_payload_bytes(spec.block_weights());
    CHECK(neuzip::plan_encode(exec, spec).bytes() >= slots);
  };
  check_portable(every_cuda::described({.architecture = 900, .shared_bytes = 99 * 1024}), "shared memory");
  check_portable(basic_cuda<arch_list<800, 900>>::described({.architecture = 1200}), "the device's architecture");
  CHECK(neuzip::plan_encode(blackwell(), spec).bytes() == neuzip::plan_encode(ampere(), spec).bytes());
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
  CHECK(multiply_across<float8_e4m3, bfloat16>(hopper, true).text() ==
        "linear.forward: portable program, because gemm_cooperative (TMA, wgmma): inputs lie across the depth, where "
        "wgmma takes only elements of 2 bytes; gemm_ring (cp.async, mma.sync): inputs lie across the depth, and "
        "ldmatrix turns only elements of 2 bytes\n");
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
