// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// compressed_all_gather where ranks store into each other's memory: encoding writes each stream to where it will be
/// decoded. A slot holds the longest stream of its chunk, so that there are no bodies, no tails and no sizes to wait
/// for.
///
/// What a call enqueues, on the executor if not said otherwise:
///   1. share(): no rank reads its slots of an earlier call any more.
///   2. On the side queue, copies of the head to each other rank and of the own list: while histograms and codebooks
///      are made nothing else goes over the wire.
///   3. For each group of chunks but the last: encoding, and on the side queue meet() and decoding, while the next
///      group is encoded.
///   4. Encoding of the last group, meet(), decoding, and beside that the heads' way from the slots to their places.
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

namespace tessera {
inline namespace v0 {
namespace detail {

template <class Codec>
struct all_gather_by_stores {
  using value_type = typename Codec::value_type;
  using layout_type = message_layout<Codec>;
  using chunks = chunk_calls<Codec>;
  static constexpr char const* where = "compressed_all_gather.exchange";

  template <Executor Exec>
  static workspace_plan plan(Exec const& exec, std::int64_t ranks, layout_type const& layout) {
    return regions(exec, ranks, layout).plan;
  }

  template <Executor Exec, PeerCommunicator<Exec> Ranks>
  static compressed_traffic exchange(Exec const& exec, side_queue<Exec> const& wire, Ranks& ranks,
                                     layout_type const& layout, array_view<value_type const> own,
                                     array_view<value_type> all, workspace const& space) {
    regions const at(exec, ranks.size(), layout);
    space.check_room(where, at.plan.bytes(), ranks.size(), " ranks with ", own.size(), " weights");
    std::vector<std::byte*> const memory = ranks.share(exec, {space.data(), at.plan.bytes()});
    call<Exec, Ranks> const of{exec, wire, ranks, layout, at, space, memory, own, all};
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(layout.chunks));
    joining(wire, [&] {
      of.send_heads();
      of.send_and_receive();
      of.wait_for_sizes(sizes);
    });
    return traffic_of(layout, sizes, options_of(exec).is_dry);
  }

 private:
  struct regions {
    workspace_plan plan{where};
    region<value_type> heads;
    region<std::byte> streams;
    region<std::int64_t> sizes;
    region<std::byte> encode;
    region<std::byte> decode;

    template <Executor Exec>
    regions(Exec const& exec, std::int64_t ranks, layout_type const& layout) {
      bool const is_plain = layout.chunks == 0 || ranks == 1;
      std::int64_t const others = is_plain ? 0 : ranks - 1;
      heads = plan.template add<value_type>("heads of other ranks", checked_multiply(where, others, layout.head));
      streams = plan.template add<std::byte>("streams of other ranks",
                                             checked_multiply(where, others, layout.sender_bytes()));
      sizes = plan.template add<std::int64_t>("sizes of streams", checked_multiply(where, others, layout.chunks));
      encode = plan.template add<std::byte>("encoding", is_plain ? 0 : chunks::encode_bytes(exec, layout, others));
      decode = plan.template add<std::byte>(
          "decoding", is_plain ? 0 : chunks::decode_bytes(exec, layout, others * layout.largest_group()));
    }
  };

  /// What the parts of a call share. `memory`: where each rank's workspace begins.
  template <class Exec, class Ranks>
  struct call {
    Exec const& exec;
    side_queue<Exec> const& wire;
    Ranks& ranks;
    layout_type const& layout;
    regions const& at;
    workspace const& space;
    std::vector<std::byte*> const& memory;
    array_view<value_type const> own;
    array_view<value_type> all;

    /// Enqueues copying the head to all others, and the own list to its place.
    void send_heads() const {
      wire.follow();
      if (layout.head > 0) {
        each_other([&](int to) {
          wire.executor().copy(own.slice(0, 0, layout.head),
                               peer(at.heads, to).slice(0, place(ranks.rank(), to) * layout.head, layout.head));
        });
      }
      array_view<value_type> const own_part = list_of(ranks.rank());
      if (own_part.data != own.data) {
        wire.executor().copy(own, own_part);
      }
      wire.mark(0);
    }

    void send_and_receive() const {
      for (std::int64_t first = 0; first < layout.chunks;) {
        std::int64_t const end = first + layout.group_from(first);
        encode(first, end);
        if (end < layout.chunks) {
          wire.follow();
          ranks.meet(wire.executor());
          decode(wire.executor(), first, end);
          wire.mark(0);
        } else {
          wire.join(0);
          ranks.meet(exec);
          wire.follow();
          place_heads();
          decode(exec, first, end);
          wire.mark(0);
          wire.join(0);
        }
        first = end;
      }
    }

    /// Waits, for no decoding of the last group, until the sizes of the own streams are there.
    void wait_for_sizes(std::vector<std::int64_t>& sizes) const {
      wire.executor().copy(array_view<std::int64_t const>(space[at.sizes]).slice(0, 0, layout.chunks), sizes);
      wire.wait();
    }

   private:
    template <class Function>
    void each_other(Function const& function) const {
      for (int step = 1; step < ranks.size(); ++step) {  // each rank stores to another one first
        function((ranks.rank() + step) % ranks.size());
      }
    }
    /// A region of another rank's workspace.
    template <class T>
    [[nodiscard]] array_view<T> peer(region<T> const& which, int rank) const {
      return {reinterpret_cast<T*>(memory[static_cast<std::size_t>(rank)] + which.offset), which.count};
    }
    /// The place of what one rank sends among all that another one gets.
    [[nodiscard]] static std::int64_t place(std::int64_t from, std::int64_t to) { return from < to ? from : from - 1; }
    template <class Byte>
    [[nodiscard]] array_view<Byte> slot_in(array_view<Byte> streams, std::int64_t place, std::int64_t which) const {
      return streams.slice(0, place * layout.sender_bytes() + layout.slot_of(which), layout.slot_bytes(which));
    }
    [[nodiscard]] array_view<value_type> list_of(std::int64_t rank) const {
      return all.slice(0, rank * layout.count, layout.count);
    }

    /// Enqueues encoding chunks, once for each other rank. Over NVLink that costs no time: encoding is several times as
    /// fast as the wire, over which each stream goes as often.
    void encode(std::int64_t first, std::int64_t end) const {
      std::vector<typename Codec::source> sources;
      each_other([&](int to) {
        std::int64_t const mine = place(ranks.rank(), to);
        auto* const table = reinterpret_cast<std::byte*>(
            space[at.sizes].slice(0, place(to, ranks.rank()) * layout.chunks, layout.chunks).data);
        for (std::int64_t which = first; which < end; ++which) {
          sources.push_back(chunks::source_of(layout, which, own, slot_in(peer(at.streams, to), mine, which), table));
        }
      });
      chunks::encode(exec, layout, sources, space[at.encode]);
    }
    /// Enqueues decoding chunks of all other ranks. A stream is as long as its header says.
    void decode(Exec const& on, std::int64_t first, std::int64_t end) const {
      std::vector<typename Codec::target> targets;
      array_view<std::byte const> const streams = space[at.streams];
      each_other([&](int from) {
        for (std::int64_t which = first; which < end; ++which) {
          targets.push_back({layout.spec_of(which), slot_in(streams, place(from, ranks.rank()), which),
                             layout.chunk_of(list_of(from), which)});
        }
      });
      chunks::decode(on, layout, targets, space[at.decode]);
    }
    void place_heads() const {
      if (layout.head > 0) {
        each_other([&](int from) {
          array_view<value_type const> const heads = space[at.heads];
          wire.executor().copy(heads.slice(0, place(from, ranks.rank()) * layout.head, layout.head),
                               list_of(from).slice(0, 0, layout.head));
        });
      }
    }
  };

  static compressed_traffic traffic_of(layout_type const& layout, std::vector<std::int64_t> const& sizes, bool is_dry) {
    std::int64_t const head = layout.head * layout_type::weight_bytes;
    compressed_traffic made{layout.count * layout_type::weight_bytes, head, head};
    for (std::int64_t which = 0; which < layout.chunks; ++which) {
      made.needed += is_dry ? layout.spec_of(which).smallest_bytes() : sizes[static_cast<std::size_t>(which)];
    }
    made.sent = made.needed;
    return made;
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
