// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Communicator: one of several ranks that exchange lists of numbers, on the streams of their executors.
///
///     struct add_up {
///       template <class Exec, tessera::Communicator<Exec> Ranks>
///       static void forward(Exec const& exec, Ranks& ranks, tessera::array_view<float> gradients) {
///         ranks.all_reduce(exec, gradients, tessera::rank_reduction::sum, gradients);  // in place
///       }
///     };
///
/// Ranks are numbered from 0 to size() - 1. All lists are contiguous, else shape_error is thrown. Elements of
/// reductions are float, double, int32, int64, bfloat16 or float16; what is sent or gathered is of any trivially
/// copyable type.
///
/// Laws:
///   * all_reduce, all_gather and reduce_scatter are called by all ranks, in one order. Rank r's part of a gathered or
///     scattered list begins at r times the part's size. A list may be reduced in place; a gathered rank's source may
///     be its own part of the target, and a scattered rank's target its own part of the source.
///   * All ranks get the same bits from all_reduce. Where `reduces_in_rank_order` is true, an element is
///     ((x0 + x1) + x2) + ..., in float and rounded once at the end for bfloat16 and float16, so that the same ranks
///     give the same bits in every run, and reduce_scatter gives the parts of these bits. Integers wrap around. A
///     maximum or minimum is that of the numbers, NaN where an element is NaN, and of equal ones the first rank's. NCCL
///     has an order of its own, in reduce_scatter another one, and of maxima of NaN it promises nothing.
///   * The n-th send of rank a to rank b is received by the n-th receive of b from a. A send may wait until it is
///     received. Sends and receives of one grouped() begin together, whatever their order, so that ranks which exchange
///     lists do not wait for each other; they are done when grouped() returns or, on a stream, when the stream
///     gets there, and the lists stay until then. What is received overlaps nothing else of the group. A rank sends to
///     itself only in grouped().
///   * Wrong arguments throw shape_error or value_error, which name the function and both values. What other ranks then
///     learn, the model says. Where all ranks refuse a call, the next collective is as if it had not been made.
///   * No call waits for the executor's stream. One without a stream waits for the other ranks.
/// Models: loopback, threads, nccl.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/core/because.hpp>

namespace tessera {
inline namespace v0 {

// clang-format off
template <class T, int Rank> struct view;  // of view/view.hpp, a layer above
// clang-format on

/// What a reduction over ranks makes of their elements.
enum class rank_reduction : std::uint8_t {
  sum,      ///< x0 + x1 + ...
  maximum,  ///< the largest, NaN if one is NaN
  minimum,  ///< the smallest, NaN if one is NaN
};

namespace detail {

/// Arguments of a communicator's functions; views are complete where it is instantiated.
template <class C, template <class, int> class View = view>
struct communication_archetype {
  View<float const, 1> source;
  View<float, 1> target;
  void operator()() const {}
};

}  // namespace detail

// clang-format off
template <class C, class Exec>
concept Communicator =
    (requires(C const& c) {
       requires std::is_same_v<decltype(c.rank()), int> && std::is_same_v<decltype(c.size()), int>;
     }
        || because<"a Communicator has its rank and how many there are: int rank() const, int size() const">) &&
    (requires { requires std::is_same_v<decltype(C::reduces_in_rank_order), bool const>; }
        || because<"a Communicator says how it adds: static constexpr bool reduces_in_rank_order">) &&
    (requires(C& c, Exec const& e, detail::communication_archetype<C> with) {
       c.all_reduce(e, with.source, rank_reduction::sum, with.target);
     }
        || because<"a Communicator has all_reduce(executor, source, rank_reduction, target)">) &&
    (requires(C& c, Exec const& e, detail::communication_archetype<C> with) {
       c.all_gather(e, with.source, with.target);
     }
        || because<"a Communicator has all_gather(executor, source, target)">) &&
    (requires(C& c, Exec const& e, detail::communication_archetype<C> with) {
       c.reduce_scatter(e, with.source, rank_reduction::sum, with.target);
     }
        || because<"a Communicator has reduce_scatter(executor, source, rank_reduction, target)">) &&
    (requires(C& c, Exec const& e, detail::communication_archetype<C> with) {
       c.send(e, with.source, int{});
       c.receive(e, int{}, with.target);
     }
        || because<"a Communicator has send(executor, source, rank) and receive(executor, rank, target)">) &&
    (requires(C& c, detail::communication_archetype<C> with) { c.grouped(with); }
        || because<"a Communicator has grouped(function), which calls a function that sends and receives">);
// clang-format on

}  // namespace v0
}  // namespace tessera
