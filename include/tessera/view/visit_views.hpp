// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `visit_views`: names the views that an object reads, such as a source, a map or a bias, where the object says them
/// by each_view(); nothing where it does not.
///
///     visit_views(bias, [&](char const* what, auto const& view) { sizes[what] = view.size(); });
#pragma once

namespace tessera {
inline namespace v0 {

/// Calls use(name, view) for each view of an object.
template <class Object, class Use>
constexpr void visit_views([[maybe_unused]] Object const& object, [[maybe_unused]] Use const& use) {
  if constexpr (requires { object.each_view(use); }) {
    object.each_view(use);
  }
}

}  // namespace v0
}  // namespace tessera
