// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Streams that ranks store into each other's memory: encoding writes each one to where the other rank decodes it. A
/// slot holds the longest stream of its chunk, so that there are no bodies, no tails and no sizes to wait for.
///
/// What a collective enqueues, on the executor if not said otherwise:
///   1. share(): no rank reads its slots of an earlier call any more.
///   2. On the side queue, copies of heads to the other ranks, meet(), and what is done with heads: while histograms
///      and codebooks are made nothing else goes over the wire.
///   3. For each chunk but the last: encoding; on the side queue meet() and decoding, while the next chunk is encoded.
///   4. Encoding of the last chunk, meet() and decoding.
///
/// Model, from parts that were measured on two H200 over NVLink. Streams are stored at 340 GB/s, 502 GB/s of bf16
/// weights, which half of the multiprocessors keep up with; copies go at 392. A call of the encoder begins with 40 us
/// in which it stores nothing. Decoding takes 48 us of 64 MiB and 142 of 256 MiB, meet() 5 us. So 64 MiB take 5 + 158 +
/// 5 + 48 = 216 us without a head (measured 211), less 20 with one of 16 MiB, which goes in those 40 us; 256 MiB take 5
/// + 551 + 5 + 142 = 703 us. all_gather also copies the own list, 37 and 130 us on all multiprocessors: it has those
/// that encoding spares, or it would come on top. Chunks that are decoded while the next ones are encoded hide
/// decoding, but the 40 us come once for each: from 256 MiB a chunk on that pays.
///
/// A stream for each other rank is encoded by itself, also where all of them get the same weights. By count that costs
/// no time for any number of ranks: without multicast each stream goes over a rank's wire as often, and encoding is
/// three times as fast as the wire. Measured are two ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/algorithm/weights/compressed_collective_types.hpp>
#include <tessera/algorithm/weights/detail/chunk_calls.hpp>
#include <tessera/algorithm/weights/detail/message_layout.hpp>
#include <tessera/concepts/comm/peer_communicator.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/execution_options.hpp>
#include <tessera/exec/side_queue.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Regions of the workspace for streams of all other ranks.
template <class Codec>
struct stored_regions {
  using value_type = typename Codec::value_type;
  using chunks = chunk_calls<Codec>;

  workspace_plan plan;
  region<value_type> heads;
  region<std::byte> streams;
  region<std::int64_t> sizes;
  region<value_type> decoded;
  region<std::byte> encode;
  region<std::byte> decode;

  /// `has_decoded`: whether there is room for the weights of a chunk, rank by rank.
  template <Executor Exec>
  stored_regions(char const* where, Exec const& exec, std::int64_t ranks, message_layout<Codec> const& layout,
                 bool has_decoded)
      : plan(where) {
    std::int64_t const others = layout.chunks == 0 ? 0 : ranks - 1;
    auto const times = [&](std::int64_t count) { return checked_multiply(where, others, count); };
    heads = plan.template add<value_type>("heads of other ranks", times(layout.head));
    streams = plan.template add<std::byte>("streams of other ranks", times(layout.stored_bytes_before(layout.chunks)));
    sizes = plan.template add<std::int64_t>("sizes of streams", times(layout.chunks));
    decoded = plan.template add<value_type>("decoded chunks",
                                            has_decoded && others > 0 ? times(layout.weights_of(layout.longest())) : 0);
    encode = plan.template add<std::byte>("encoding", others == 0 ? 0 : chunks::encode_bytes(exec, layout, others));
    decode = plan.template add<std::byte>("decoding", others == 0 ? 0 : chunks::decode_bytes(exec, layout, others));
  }
};

/// One rank's part of a collective by stores.
template <class Codec, class Exec, PeerCommunicator<Exec> Ranks>
class stored_streams {
 public:
  using value_type = typename Codec::value_type;
  using layout_type = message_layout<Codec>;
  using chunks = chunk_calls<Codec>;

  /// Enqueues share(). What is given must live longer than this.
  stored_streams(Exec const& exec, side_queue<Exec> const& wire, Ranks& ranks, layout_type const& layout,
                 stored_regions<Codec> const& at, workspace const& space)
      : exec_(exec),
        wire_(wire),
        ranks_(ranks),
        layout_(layout),
        at_(at),
        space_(space),
        memory_(ranks.share(exec, {space.data(), at.plan.bytes()})) {}

  /// Enqueues the exchange of all chunks. list_for(rank): the list that a rank gets; beside(first, end): what the side
  /// queue does with the own weights from `first` to before `end` while others are sent; receive(on, chunk): decodes a
  /// chunk on an executor, with decode(); receive_heads(): what the side queue does with heads, if there are any.
  template <class ListFor, class Beside, class Receive, class ReceiveHeads>
  void exchange(ListFor const& list_for, Beside const& beside, Receive const& receive,
                ReceiveHeads const& receive_heads) const {
    joining(wire_, [&, this] {
      wire_.follow();
      if (layout_.head > 0) {
        send_heads(list_for);
        ranks_.meet(wire_.executor());
        receive_heads();
      }
      std::int64_t const last = layout_.chunks - 1;
      beside(0, layout_.head);
      beside(layout_.first_of(last), layout_.count);
      wire_.mark(0);
      for (std::int64_t which = 0; which < last; ++which) {
        encode(which, list_for);
        wire_.follow();
        ranks_.meet(wire_.executor());
        receive(wire_.executor(), which);
        beside(layout_.first_of(which), layout_.first_of(which + 1));
        wire_.mark(0);
      }
      encode(last, list_for);
      wire_.join(0);
      ranks_.meet(exec_);
      receive(exec_, last);
    });
  }

  /// Enqueues decoding a chunk of all other ranks, to target_of(rank). A stream is as long as its header says.
  template <class TargetOf>
  void decode(Exec const& on, std::int64_t which, TargetOf const& target_of) const {
    std::vector<typename Codec::target> targets;
    array_view<std::byte const> const streams = space_[at_.streams];
    each_other([&, this](int from) {
      targets.push_back({layout_.spec_of(which), slot_in(streams, place(from, ranks_.rank()), which), target_of(from)});
    });
    chunks::decode(on, layout_, targets, space_[at_.decode]);
  }

  /// Waits until the sizes of the streams that this rank stored are there, but not for the decoding of the last chunk.
  /// What was sent to the rank that got the most.
  [[nodiscard]] compressed_traffic wait_for_traffic() const {
    std::vector<std::int64_t> sizes(static_cast<std::size_t>((ranks_.size() - 1) * layout_.chunks));
    wire_.executor().copy(array_view<std::int64_t const>(space_[at_.sizes]), sizes);
    wire_.wait();
    compressed_traffic largest;
    std::int64_t const head = layout_.head * layout_type::weight_bytes;
    for (std::int64_t other = 0; other < ranks_.size() - 1; ++other) {
      compressed_traffic sent{layout_.count * layout_type::weight_bytes, head, head};
      for (std::int64_t which = 0; which < layout_.chunks; ++which) {
        std::int64_t const size = sizes[static_cast<std::size_t>(other * layout_.chunks + which)];
        sent.needed += options_of(exec_).is_dry ? layout_.spec_of(which).smallest_bytes() : size;
      }
      sent.sent = sent.needed;
      largest = sent.sent > largest.sent ? sent : largest;
    }
    return largest;
  }

  /// Calls function(rank) for all other ranks, from the next one on, so that each rank stores to another one first.
  template <class Function>
  void each_other(Function const& function) const {
    for (int step = 1; step < ranks_.size(); ++step) {
      function((ranks_.rank() + step) % ranks_.size());
    }
  }
  /// The place of a rank among the others of another rank.
  [[nodiscard]] static std::int64_t place(std::int64_t of, std::int64_t at) { return of < at ? of : of - 1; }
  /// The heads of all other ranks, in their places.
  [[nodiscard]] matrix_view<value_type const> heads() const {
    return {space_[at_.heads].data, {ranks_.size() - 1, layout_.head}};
  }
  [[nodiscard]] array_view<value_type const> head_of(std::int64_t rank) const {
    return array_view<value_type const>(space_[at_.heads])
        .slice(0, place(rank, ranks_.rank()) * layout_.head, layout_.head);
  }

 private:
  /// A region of another rank's workspace.
  template <class T>
  [[nodiscard]] array_view<T> at_peer(region<T> const& which, int rank) const {
    return {reinterpret_cast<T*>(memory_[static_cast<std::size_t>(rank)] + which.offset), which.count};
  }
  template <class Byte>
  [[nodiscard]] array_view<Byte> slot_in(array_view<Byte> streams, std::int64_t place, std::int64_t which) const {
    return streams.slice(0, place * layout_.stored_bytes_before(layout_.chunks) + layout_.stored_at(which),
                         layout_.slot_bytes(which));
  }

  template <class ListFor>
  void send_heads(ListFor const& list_for) const {
    each_other([&, this](int to) {
      wire_.executor().copy(list_for(to).slice(0, 0, layout_.head),
                            at_peer(at_.heads, to).slice(0, place(ranks_.rank(), to) * layout_.head, layout_.head));
    });
  }
  template <class ListFor>
  void encode(std::int64_t which, ListFor const& list_for) const {
    std::vector<typename Codec::source> sources;
    each_other([&, this](int to) {
      std::int64_t* const sizes = space_[at_.sizes].data + place(to, ranks_.rank()) * layout_.chunks;
      sources.push_back(chunks::source_of(layout_, which, list_for(to),
                                          slot_in(at_peer(at_.streams, to), place(ranks_.rank(), to), which),
                                          reinterpret_cast<std::byte*>(sizes)));
    });
    chunks::encode(exec_, layout_, sources, space_[at_.encode]);
  }

  Exec const& exec_;
  side_queue<Exec> const& wire_;
  Ranks& ranks_;
  layout_type const& layout_;
  stored_regions<Codec> const& at_;
  workspace const& space_;
  std::vector<std::byte*> memory_;  ///< where each rank's workspace begins
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
