// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `run(exec, call)`: runs a call by the fastest program that the executor has for it.
///
///     run(exec, score_chunks<T, S>{n, memory, step, selector, scale});   // a program: the executor's own, or this one
///     run(exec, attention_call<Method, T>{shape, options, heads, out});  // not one program: it has run_portably()
///
/// A call is a Program that knows its number of groups(), or a type with an overload of run_portably(exec, call). Where
/// groups() are 0, or the call says that it is_empty(), nothing runs. An executor's faster programs for it are listed,
/// in the order in which they are asked, next to these programs:
///
///     template <class Architectures, class T, ChunkSelector S>                                       // in a .cuh
///     struct models_for<basic_cuda<Architectures>, score_chunks<T, S>> {
///       using type = model_list<score_means_model, score_tiles_model>;
///     };
///
/// A model has a `name`, and three static functions: `refuses_types<Executor, Call>()`, a constant expression;
/// `refuses(exec, call)`; and `run(exec, call)`, which is compiled only for types that are not refused. The same
/// functions answer explain() (exec/explain.hpp). Where all models refuse, the portable program runs, and a line on
/// stderr says so once for each type of call. If the executor refuses_slower_programs, the call throws slower_program
/// instead. The line and the exception say why.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <type_traits>

#include <tessera/concepts/executor.hpp>
#include <tessera/concepts/program.hpp>
#include <tessera/core/because.hpp>
#include <tessera/core/error.hpp>
#include <tessera/exec/execution_options.hpp>
#include <tessera/exec/program_name.hpp>
#include <tessera/exec/refusal.hpp>

namespace tessera {
inline namespace v0 {

/// Programs for a call, in the order in which they are asked.
template <class... Models>
struct model_list {};

/// The programs that an executor has for a call beside the portable one: none, unless specialised.
template <Executor Exec, class Call>
struct models_for {
  /// The list of models.
  using type = model_list<>;
};

// clang-format off
/// A program for a call on an executor, as models_for lists it.
template <class M, class Exec, class Call>
concept ModelOf =
    (requires { std::string_view(M::name); }
        || because<"a model of a call has a name: static constexpr char const* name">) &&
    (requires { requires std::is_same_v<decltype(M::template refuses_types<Exec, Call>()), refusal>; }
        || because<"a model says which types it takes: template <Executor Exec, class Call> "
                   "static constexpr refusal refuses_types()">) &&
    (requires(Exec const& exec, Call const& call) {
       requires std::is_same_v<decltype(M::refuses(exec, call)), refusal>;
       M::run(exec, call);
     } || because<"a model says whether it takes a call, and runs it: static refusal refuses(exec, call), "
                  "static void run(exec, call)">);
// clang-format on

/// Runs a portable program with the number of groups that it says.
template <Executor Exec, Program P>
requires requires(P const& program) {
  program.groups();
}
void run_portably(Exec const& exec, P const& program) {
  exec.run(program, program.groups());
}

namespace detail {

/// What the portable program of a call is named in messages.
inline constexpr std::string_view portable_program_name = "portable program";

/// What a call's function is named in messages.
template <class Call>
[[nodiscard]] constexpr std::string_view name_of_call() {
  if constexpr (requires { std::string_view(Call::function); }) {
    return Call::function;
  } else {
    return program_name<Call>();
  }
}

/// The programs that were asked before one was found, in an array on the stack, since calls do not allocate.
struct refused_list {
  refused_program* items;
  std::size_t count;

  [[nodiscard]] program_choice choice(std::string_view call, std::string_view program, bool is_portable) const {
    return {call, program, is_portable, {items, items + count}};
  }
};

/// Gives the call to Model, if Model takes it. Returns whether it does.
template <class Model, Executor Exec, class Call>
bool try_model(Exec const& exec, Call const& call, refused_list& refused) {
  constexpr refusal by_types = Model::template refuses_types<Exec, Call>();
  if constexpr (by_types) {
    refused.items[refused.count++] = {Model::name, by_types};
    return false;
  } else {
    static_assert(ModelOf<Model, Exec, Call>);
    if (refusal const why = Model::refuses(exec, call)) {
      refused.items[refused.count++] = {Model::name, why};
      return false;
    }
    execution_options const options = options_of(exec);
    if (options.watched_by != nullptr) {
      options.watched_by->chose(refused.choice(name_of_call<Call>(), Model::name, false));
    }
    if (!options.is_dry) {
      Model::run(exec, call);
    }
    return true;
  }
}

/// Says of a portable program why it runs: to the observer, by an exception, or once for each type of call on stderr.
/// Calls after the first one make no text, and so allocate nothing.
inline void report_portable(execution_options const& options, std::string_view call, refused_list const& refused,
                            std::atomic_flag& was_said) {
  auto const choice = [&] { return refused.choice(call, portable_program_name, true); };
  if (options.watched_by != nullptr) {
    options.watched_by->chose(choice());
  }
  if (refused.count == 0 || options.is_dry) {
    return;
  }
  if (options.refuses_slower_programs) {
    throw slower_program(choice().text());
  }
  if (options.says_slower_programs && !was_said.test_and_set(std::memory_order_relaxed)) {
    std::string const line =
        "tessera: " + choice().text() + " (said once; execution_options::says_slower_programs = false says nothing)\n";
    std::fputs(line.c_str(), stderr);
  }
}

/// What report_portable() has said on stderr of a type of call.
template <Executor Exec, class Call>
std::atomic_flag& said_of_call() {
  static std::atomic_flag was_said;
  return was_said;
}

/// Runs a call for which the executor has no programs beside the portable one.
template <Executor Exec, class Call>
void run_first(Exec const& exec, Call const& call, model_list<>) {
  execution_options const options = options_of(exec);
  if (options.watched_by != nullptr) {
    constexpr std::string_view name = name_of_call<Call>();
    options.watched_by->chose({name, portable_program_name, true, {}});
  }
  if (!options.is_dry) {
    run_portably(exec, call);
  }
}

template <Executor Exec, class Call, class... Models>
void run_first(Exec const& exec, Call const& call, model_list<Models...>) {
  refused_program items[sizeof...(Models)] = {};
  refused_list refused{items, 0};
  if ((try_model<Models>(exec, call, refused) || ...)) {
    return;
  }
  execution_options const options = options_of(exec);
  report_portable(options, name_of_call<Call>(), refused, said_of_call<Exec, Call>());
  if (!options.is_dry) {
    run_portably(exec, call);
  }
}

}  // namespace detail

/// Enqueues a call by the first of the executor's models that takes it, else portably. The choice neither waits nor
/// allocates, unless the executor is watched or something is said. Throws slower_program, see execution_options.
template <Executor Exec, class Call>
void run(Exec const& exec, Call const& call) {
  if constexpr (requires { call.is_empty(); }) {
    if (call.is_empty()) {
      return;
    }
  }
  if constexpr (requires { call.groups() == 0; }) {
    if (call.groups() == 0) {
      return;
    }
  }
  detail::run_first(exec, call, typename models_for<Exec, Call>::type{});
}

}  // namespace v0
}  // namespace tessera
