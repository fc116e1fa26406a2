// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Operators of many arguments as functions of few: what several schemas have in common is an aggregate.
///
///     struct scaling { Tensor e; double softcap; };
///     template <>
///     struct schema_of<scaling> { using type = schema<Tensor, double>; };
///
///     Tensor forward(scaling const& in, bool for_backward);
///     m.impl("forward", TORCH_BOX(&flat<&forward>::call));                // takes a Tensor, a double and a bool
#pragma once

#include <array>
#include <cstddef>
#include <numeric>
#include <tuple>
#include <type_traits>
#include <utility>

namespace tessera_torch {

/// Types of arguments in the order of an operator's schema.
template <class... Types>
struct schema {
  static constexpr std::size_t size = sizeof...(Types);
};

/// What a parameter of a function is in a schema: one argument, or, where this is specialised, those that an aggregate
/// is made of, which may have aggregates as members.
template <class Parameter>
struct schema_of {
  using type = schema<Parameter>;
};

namespace detail {

template <class... Schemas>
struct joined;
template <class... Types>
struct joined<schema<Types...>> {
  using type = schema<Types...>;
};
template <class... First, class... Second, class... Others>
struct joined<schema<First...>, schema<Second...>, Others...> : joined<schema<First..., Second...>, Others...> {};

}  // namespace detail

/// The arguments of the members of an aggregate, one behind the other.
template <class... Members>
using joined_schema = typename detail::joined<typename schema_of<Members>::type...>::type;

namespace detail {

/// The parameter that arguments from number `First` on make.
template <class Parameter, std::size_t First, class Arguments>
Parameter parameter_of(Arguments const& all) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return Parameter{std::get<First + I>(all)...};
  }
  (std::make_index_sequence<schema_of<Parameter>::type::size>{});
}

template <auto Function, class Arguments, class... Parameters>
struct flat_call;
template <auto Function, class... Arguments, class... Parameters>
struct flat_call<Function, schema<Arguments...>, Parameters...> {
  static auto call(Arguments... arguments) {
    // For each parameter the number of its first argument.
    static constexpr auto firsts = [] {
      constexpr std::array sizes{schema_of<Parameters>::type::size...};
      std::array<std::size_t, sizeof...(Parameters)> begins{};
      std::exclusive_scan(sizes.begin(), sizes.end(), begins.begin(), std::size_t{0});
      return begins;
    }();
    auto const all = std::forward_as_tuple(arguments...);
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return Function(parameter_of<Parameters, firsts[I]>(all)...);
    }
    (std::make_index_sequence<sizeof...(Parameters)>{});
  }
};

template <auto Function, class Type>
struct flat_of;
template <auto Function, class Result, class... Parameters>
struct flat_of<Function, Result (*)(Parameters...)>
    : flat_call<Function, joined_schema<std::remove_cvref_t<Parameters>...>, std::remove_cvref_t<Parameters>...> {};

}  // namespace detail

/// flat<&function>::call: the function as an operator, whose arguments are those that its parameters are made of.
template <auto Function>
struct flat : detail::flat_of<Function, decltype(Function)> {};

}  // namespace tessera_torch
