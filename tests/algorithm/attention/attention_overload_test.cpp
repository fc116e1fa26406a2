// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// compiled alone: it specialises templates of the library.
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/run.hpp>
#include <tessera/sage_attention2.hpp>

#include "support/attention_reference.hpp"
#include "support/attention_runs.hpp"
#include "support/catch.hpp"

namespace other_machine {

/// An executor with programs of its own for the 8-bit method; here they only count calls.
struct executor : tessera::cpu {
  int* quantized;
  int* attended;
};

struct counted_codes {
  static constexpr char const* name = "counted_codes";
  template <class Executor, class Call>
  static constexpr tessera::refusal refuses_types() {
    return {};
  }
  template <class Call>
  static tessera::refusal refuses(executor const&, Call const&) {
    return {};
  }
  template <class Call>
  static void run(executor const& exec, Call const& call) {
    ++*exec.quantized;
    run_portably(exec, call);
  }
};

struct counted_attention {
  static constexpr char const* name = "counted_attention";
  template <class Executor, class Call>
  static constexpr tessera::refusal refuses_types() {
    return tessera::unless(std::is_same_v<typename Call::value_type, tessera::bfloat16>, "results are not bfloat16");
  }
  template <class Call>
  static tessera::refusal refuses(executor const&, Call const& call) {
    return tessera::unless(call.shape.keys < 100, "the number of keys", call.shape.keys, "below 100");
  }
  template <class Call>
  static void run(executor const& exec, Call const& call) {
    ++*exec.attended;
    run_portably(exec, call);
  }
};

}  // namespace other_machine

template <class T>
struct tessera::models_for<other_machine::executor, tessera::quantize_call<tessera::sage_attention2::method, T>> {
  using type = model_list<other_machine::counted_codes>;
};
template <class T>
struct tessera::models_for<other_machine::executor, tessera::attention_call<tessera::sage_attention2::method, T>> {
  using type = model_list<other_machine::counted_attention>;
};

using namespace tessera;
using namespace tessera_test;

namespace {

template <class Call>
std::string refusal_text(Call const& call) {
  try {
    call();
  } catch (slower_program const& problem) {
    return problem.what();
  }
  return "nothing was refused";
}

}  // namespace

TEST_CASE("an executor's own programs are taken for the methods that they are for", "[host]") {
  int quantized = 0;
  int attended = 0;
  other_machine::executor const exec{{}, &quantized, &attended};
  auto const p = make_attention_problem<bfloat16>({1, 1, 1, 5, 9, 32});
  auto const found = run_attention_problem<sage_attention2, bfloat16>(exec, p);
  CHECK(quantized == 1);
  CHECK(attended == 1);
  CHECK(found.result == run_attention_problem<sage_attention2, bfloat16>(cpu{}, p).result);
  run_attention_problem<sage_attention2_int4, bfloat16>(exec, p);
  CHECK(quantized == 1);
  CHECK(attended == 1);
}

TEST_CASE("an executor that refuses slower programs says why its own do not take a call", "[host]") {
  int quantized = 0;
  int attended = 0;
  other_machine::executor exec{{}, &quantized, &attended};
  auto const p = make_attention_problem<bfloat16>({1, 1, 1, 5, 100, 32});
  run_attention_problem<sage_attention2, bfloat16>(exec, p);
  CHECK(attended == 0);
  exec.options.refuses_slower_programs = true;
  CHECK(refusal_text([&] { run_attention_problem<sage_attention2, bfloat16>(exec, p); }) ==
        "attention.forward: portable program, because counted_attention: the number of keys is 100 but must be below "
        "100");
  CHECK(refusal_text([&] { run_attention_problem<sage_attention2, float>(exec, p); }) ==
        "attention.forward: portable program, because counted_attention: results are not bfloat16");
  run_attention_problem<sage_attention2, bfloat16>(exec, make_attention_problem<bfloat16>({1, 1, 1, 5, 99, 32}));
  CHECK(attended == 1);
  // Where an executor has no programs of its own none is slower.
  run_attention_problem<sage_attention2_int4, bfloat16>(exec, p);
}
