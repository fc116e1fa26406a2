// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// What overloads are made of that take the calls which a function cannot, to say in one line what it takes. Of
///
///     template <class Executor, class T = bfloat16>
///     static void forward(Executor const& exec, inputs<T> const& in, options const& chosen, workspace const& space);
///
/// they are one for arguments whose types are wrong or missing, of which those in braces have none,
///
///     template <class Executor, class In = anything, class Chosen = options, class... More>
///     requires(!(MadeOrBraces<In, inputs> && IsFirst<options, Chosen> && IsFirst<workspace, More...>))
///     static void forward(Executor const&, In const&, Chosen const&, More const&...) {
///       static_assert(never<In>, "tessera: forward takes an executor, inputs<T>, options and a workspace");
///     }
///
/// and one, which says the same, for braces that hold the wrong things:
///
///     template <class... None>
///     static void forward(anything, anything, options const&, anything);
///
/// The last one converts the executor, which the function takes as it is: so it is never called in the function's
/// place.
#pragma once

#include <type_traits>

#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

/// False, but not before the template is used that it stands in.
template <class... Given>
inline constexpr bool never = false;

/// Made from anything, and from braces that hold anything.
struct anything {
  /// Of no use but to be called.
  template <class... Given>
  constexpr anything(Given const&...) {}  // NOLINT(google-explicit-constructor): so that everything converts
};

namespace detail {

template <template <class...> class Template, class... Begin>
struct maker {
  template <class... Rest>
  static void takes(Template<Begin..., Rest...> const&);
};

template <class T, class... Given>
inline constexpr bool is_first = false;
template <class T, class First, class... Rest>
inline constexpr bool is_first<T, First, Rest...> = std::is_convertible_v<First const&, T>;

}  // namespace detail

/// T is a Template of arguments that begin with these, or derived from one.
template <class T, template <class...> class Template, class... Begin>
concept Made = requires(T const& given) {
  detail::maker<Template, Begin...>::takes(given);
};

/// T is that, or stands for braces, which have no type.
template <class T, template <class...> class Template, class... Begin>
concept MadeOrBraces = std::is_same_v<T, anything> || Made<T, Template, Begin...>;

/// There is a type among those given, and the first converts to T.
template <class T, class... Given>
concept IsFirst = detail::is_first<T, Given...>;

}  // namespace v0
}  // namespace tessera
