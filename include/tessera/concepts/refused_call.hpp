// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Types and concepts for overloads that catch wrong calls of a function, so that the compiler says in one line what
/// the function takes. Two overloads are added to the function. The first takes arguments whose types are wrong or
/// missing; arguments in braces have no type. The second takes braces that hold the wrong things:
///
///     struct algorithm {
///       template <class Exec, class T = bfloat16>
///       static void forward(Exec const& exec, inputs<T> const& in, options const& chosen, workspace const& space);
///
///       template <class Exec, class In = anything, class Chosen = options, class... More>
///       requires(!(MadeOrBraces<In, inputs> && IsFirst<options, Chosen> && IsFirst<workspace, More...>))
///       static void forward(Exec const&, In const&, Chosen const&, More const&...) {
///         static_assert(never<In>, "tessera: forward takes an executor, inputs<T>, options and a workspace");
///       }
///       template <class... None>
///       static void forward(anything, anything, options const&, anything) {
///         static_assert(never<None...>, "tessera: forward takes an executor, inputs<T>, options and a workspace");
///       }
///     };
///
/// The second overload converts the executor, which the function takes as it is. So it is never called in the
/// function's place.
#pragma once

#include <type_traits>

#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

/// False, but only once the template around it is instantiated.
template <class... Given>
inline constexpr bool never = false;

/// Converts from any value, and from braces that hold anything.
struct anything {
  /// Needed for overload resolution only.
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

/// T is an instance of Template whose arguments begin with Begin, or derives from one.
template <class T, template <class...> class Template, class... Begin>
concept Made = requires(T const& given) {
  detail::maker<Template, Begin...>::takes(given);
};

/// T is Made, or is `anything`, which stands for braces without a type.
template <class T, template <class...> class Template, class... Begin>
concept MadeOrBraces = std::is_same_v<T, anything> || Made<T, Template, Begin...>;

/// At least one type is given, and the first one converts to T.
template <class T, class... Given>
concept IsFirst = detail::is_first<T, Given...>;

}  // namespace v0
}  // namespace tessera
