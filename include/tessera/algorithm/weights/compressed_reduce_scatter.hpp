// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `compressed_reduce_scatter`: adds the lists of all ranks, such as gradients, and gives each rank its part of the
/// sums. What ranks send each other travels as streams of a lossless codec.
///
///     #include <tessera/algorithm/weights/compressed_reduce_scatter.hpp>
///     #include <tessera/comm/loopback.hpp>
///     #include <tessera/neuzip.hpp>
///
///     using collective = tessera::compressed_reduce_scatter<tessera::neuzip>;
///     tessera::loopback ranks;                                                  // or tessera::nccl of a ncclComm_t
///     tessera::side_queue<Executor> const wire(exec, collective::side_marks, true);
///     auto const plan = collective::plan(exec, ranks.size(), sums.size());
///     tessera::buffer<std::byte> memory(exec, plan.bytes());
///     collective::exchange(exec, wire, ranks, gradients, sums, {}, tessera::workspace(plan, memory));
///
/// Rank r's part of `all` begins at r times the part's size. Each rank sends each other one its part, by grouped sends
/// on the side queue `wire`: the head as it is, then the body of each chunk (compressed_collective_types.hpp), while
/// the executor encodes the next chunks. When the first body of the last of its calls is there the host has the sizes
/// of all streams that the rank sends and gets. Chunks are then decoded and added as their bodies come. Tails, where
/// streams are longer than their bodies, are exchanged in the end, and all chunks are added after that. `part` may be
/// this rank's part of `all`.
///
/// With compressed_collective_options::for_peer_memory() the ranks are a PeerCommunicator and share the workspace, and
/// encoding writes each stream to where the other rank decodes it, as compressed_all_gather says.
///
/// A sum is ((x0 + x1) + x2) + ... in the order of the ranks, in float, and rounded once: the bits of a communicator
/// that reduces in rank order, the same in every run and on every executor. NCCL, which adds bf16 in an order of its
/// own and may round after each addition, may give other ones.
///
/// `exchange()` is called by all ranks, with lists of one size and the same options. Parts too small to gain are sent
/// as they are. The call waits once on the host, for the tables of sizes (a few KiB), and cannot be captured in a CUDA
/// graph.
///
/// Errors: shape_error and value_error for arguments, before anything is sent, and for lists of different sizes as
/// compressed_all_gather says. A damaged message is refused by the rank that gets it: a table of sizes throws
/// corrupt_data at once, and a stream is reported by wait() of the executor, as by compressed_weights::decode, with
/// zeros in the place of its corrupt blocks. Nothing is written outside of `part`. What earlier programs reported is
/// thrown when everything is enqueued.
///
/// Model: a rank sends (ranks - 1) * (head + (part - head) * body_bits / bits), 11/16 of a long list of bf16, as in
/// compressed_all_gather; decoding and adding read and write each part's weights twice more. Measured on two H200, over
/// NCCL's own reduce_scatter: 1.24 to 1.32 without peer access; over NVLink, where it hardly pays, 0.83 to 0.87 by
/// NCCL's programs, and by stores 0.85 (1 GiB) to 0.98 (64 MiB), or 0.88 to 1.05 with no multiprocessor spared.
/// Workspace: one's own streams and those of the others (2 * (ranks - 1) parts), the heads, and the longest chunk of
/// every other rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <tessera/algorithm/weights/compressed_collective_types.hpp>
#include <tessera/algorithm/weights/compressed_weights.hpp>
#include <tessera/algorithm/weights/detail/chunk_calls.hpp>
#include <tessera/algorithm/weights/detail/message_layout.hpp>
#include <tessera/algorithm/weights/detail/stored_streams.hpp>
#include <tessera/concepts/comm/communicator.hpp>
#include <tessera/concepts/comm/peer_communicator.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/check.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/exec/check_reach.hpp>
#include <tessera/exec/execution_options.hpp>
#include <tessera/exec/side_queue.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/program/weights/detail/rank_messages.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// The reduce_scatter of values of a lossless compressed_weights, such as neuzip or neuzip_of<float16>.
template <class Codec>
struct compressed_reduce_scatter : private detail::compressed_collective<Codec> {
  using value_type = typename Codec::value_type;
  static_assert(std::is_same_v<value_type, bfloat16> || std::is_same_v<value_type, float16> ||
                    std::is_same_v<value_type, float>,
                "tessera: ranks add values of bfloat16, float16 and float");
  /// The marks that the side queue needs.
  static constexpr int side_marks = detail::message_layout<Codec>::most_chunks + 1;

  /// The workspace of exchange() for `ranks` ranks with parts of `count` values. Throws for options out of range.
  template <Executor Exec>
  static workspace_plan plan(Exec const& exec, std::int64_t ranks, std::int64_t count,
                             compressed_collective_options const& options = {}) {
    base::check_ranks(where, ranks);
    layout_type const layout = layout_type::of(where, count, options);
    if (options.stores_to_peers && layout.chunks > 0) {
      return stored_regions(where, exec, ranks, layout, true).plan;
    }
    return regions(exec, ranks, layout).plan;
  }

  /// Adds the lists of all ranks, of one size, and gives each rank its part; see above. What is returned is of a
  /// message to one other rank, the one with the most bytes.
  template <Executor Exec, Communicator<Exec> Ranks>
  static compressed_traffic exchange(Exec const& exec, side_queue<Exec> const& wire, Ranks& ranks,
                                     array_view<value_type const> all, array_view<value_type> part,
                                     compressed_collective_options const& options, workspace const& space) {
    layout_type const layout = check_call(exec, wire, ranks, all, part, options, space);
    base::compare_counts(where, exec, ranks, part.size());
    if (ranks.size() == 1) {
      ranks.reduce_scatter(exec, all, rank_reduction::sum, part);
      return base::plain_traffic(layout);
    }
    if (options.stores_to_peers && layout.chunks > 0) {
      if constexpr (PeerCommunicator<Ranks, Exec>) {
        return exchange_by_stores(exec, wire, ranks, layout, all, part, space);
      } else {
        throw value_error(join(where, ": stores_to_peers is ", true, " but the ranks are no PeerCommunicator"));
      }
    }
    regions const at(exec, ranks.size(), layout);
    space.check_room(where, at.plan.bytes(), ranks.size(), " ranks with parts of ", part.size(), " values");
    call<Exec, Ranks> const of{exec, wire, ranks, layout, at, space, all, part};
    detail::stream_sizes sizes(layout, 2 * of.others());
    detail::send_and_receive(exec, wire, of, layout.chunks > 0, sizes);
    return of.largest_traffic(sizes);
  }

 private:
  using base = detail::compressed_collective<Codec>;
  using layout_type = typename base::layout_type;
  using chunks = typename base::chunks;
  static constexpr char const* where = "compressed_reduce_scatter.exchange";
  using stored_regions = detail::stored_regions<Codec>;
  static constexpr int head_sent = side_marks - 1;  ///< the mark behind the head; those before are of chunks

  struct regions {
    workspace_plan plan{where};
    region<std::byte> sent;
    region<std::byte> received;
    region<value_type> heads;
    region<value_type> decoded;
    region<std::int64_t> sizes;
    region<std::byte> encode;
    region<std::byte> decode;

    template <Executor Exec>
    regions(Exec const& exec, std::int64_t ranks, layout_type const& layout) {
      std::int64_t const others = ranks - 1;
      std::int64_t const streams = checked_multiply(where, others, layout.sender_bytes());
      sent = plan.template add<std::byte>("streams for other ranks", streams);
      received = plan.template add<std::byte>("streams of other ranks", streams);
      heads = plan.template add<value_type>("heads of other ranks", checked_multiply(where, others, layout.head));
      decoded = plan.template add<value_type>(
          "decoded chunks",
          checked_multiply(where, others, layout.chunks == 0 ? 0 : layout.weights_of(layout.longest())));
      sizes = plan.template add<std::int64_t>("sizes of streams",
                                              checked_multiply(where, 2 * others, layout.table_numbers()));
      encode = plan.template add<std::byte>("encoding", others == 0 ? 0 : chunks::encode_bytes(exec, layout, others));
      decode = plan.template add<std::byte>("decoding", others == 0 ? 0 : chunks::decode_bytes(exec, layout, others));
    }
  };

  /// What the parts of a call share. Other ranks are counted without the own one.
  template <class Exec, class Ranks>
  struct call {
    Exec const& exec;
    side_queue<Exec> const& wire;
    Ranks& ranks;
    layout_type const& layout;
    regions const& at;
    workspace const& space;
    array_view<value_type const> all;
    array_view<value_type> part;

    [[nodiscard]] std::int64_t others() const { return ranks.size() - 1; }

    /// Enqueues encoding all chunks, and exchanging heads and bodies.
    void send() const {
      wire.follow();
      if (layout.head > 0) {
        exchange_each([&, this](int rank, std::int64_t other) {
          ranks.send(wire.executor(), part_of(rank).slice(0, 0, layout.head), rank);
          ranks.receive(wire.executor(), rank, space[at.heads].slice(0, other * layout.head, layout.head));
        });
        wire.mark(head_sent);
      }
      auto const tables = layout.tables(space[at.sent].data + layout.table_of(), others(), layout.sender_bytes());
      std::int64_t encoded = 0;
      for (std::int64_t which = 0; which < layout.chunks; ++which) {
        chunks::encode_until(exec, layout, which, encoded, space[at.encode], tables,
                             [&, this](std::int64_t next, auto& sources) {
                               for (std::int64_t other = 0; other < others(); ++other) {
                                 sources.push_back(chunks::source_of(layout, next, part_of(rank_of(other)),
                                                                     layout.slot(sent(other), next),
                                                                     sent(other).data + layout.table_of()));
                               }
                             });
        wire.follow();
        exchange_each([&, this](int rank, std::int64_t other) {
          ranks.send(wire.executor(), array_view<std::byte const>(layout.body(sent(other), which)), rank);
          ranks.receive(wire.executor(), rank, layout.body(received(other), which));
        });
        wire.mark(static_cast<int>(which));
      }
      if (layout.head > 0) {
        wire.join(head_sent);
        add(0, layout.head, {space[at.heads].data, {others(), layout.head}});
      }
    }

    /// Enqueues reading the sizes of streams: those that are sent, then those that come.
    void read(detail::stream_sizes& sizes) const {
      wire.join(static_cast<int>(layout.table_chunk));
      std::int64_t const count = others() * layout.table_numbers();
      for (int is_received = 0; is_received < 2; ++is_received) {
        std::byte const* const first = space[is_received != 0 ? at.received : at.sent].data + layout.table_of();
        detail::copy_tables(exec, layout.tables(first, others(), layout.sender_bytes()),
                            space[at.sizes].slice(0, is_received * count, count));
      }
      sizes.read(exec, space[at.sizes]);
    }

    /// Enqueues the exchange of tails, decoding and adding.
    void receive(detail::stream_sizes const& sizes) const {
      ranks.grouped(
          [&, this] {  // so that others learn, where the communicator tells them, that this rank goes on no more
            for (std::int64_t table = 0; table < 2 * others(); ++table) {
              sizes.check_table(where, layout, table, table < others() ? ranks.rank() : rank_of(table - others()));
            }
          });
      if (has_tails(sizes)) {
        exchange_tails(sizes);
      }
      for (std::int64_t which = 0; which < layout.chunks; ++which) {
        wire.join(static_cast<int>(which));
        decode(which, sizes);
        add(layout.first_of(which), layout.weights_of(which),
            {space[at.decoded].data, {others(), layout.weights_of(which)}});
      }
    }

    [[nodiscard]] compressed_traffic largest_traffic(detail::stream_sizes const& sizes) const {
      compressed_traffic largest;
      for (std::int64_t other = 0; other < others(); ++other) {
        compressed_traffic const found = layout.traffic([&](std::int64_t which) { return sizes(other, which); });
        largest = found.sent >= largest.sent ? found : largest;
      }
      return largest;
    }

   private:
    [[nodiscard]] int rank_of(std::int64_t other) const {
      return static_cast<int>(other < ranks.rank() ? other : other + 1);
    }
    [[nodiscard]] array_view<value_type const> part_of(std::int64_t rank) const {
      return all.slice(0, rank * layout.count, layout.count);
    }
    /// The slots and the table of what is sent to another rank.
    [[nodiscard]] array_view<std::byte> sent(std::int64_t other) const {
      return space[at.sent].slice(0, other * layout.sender_bytes(), layout.sender_bytes());
    }
    /// The slots and the table of what comes from another rank.
    [[nodiscard]] array_view<std::byte> received(std::int64_t other) const {
      return space[at.received].slice(0, other * layout.sender_bytes(), layout.sender_bytes());
    }

    /// Calls function(rank, other) for all other ranks, in one group.
    template <class Function>
    void exchange_each(Function const& function) const {
      ranks.grouped([&, this] {
        for (std::int64_t other = 0; other < others(); ++other) {
          function(rank_of(other), other);
        }
      });
    }

    void decode(std::int64_t which, detail::stream_sizes const& sizes) const {
      std::vector<typename Codec::target> targets;
      std::int64_t const count = layout.weights_of(which);
      for (std::int64_t other = 0; other < others(); ++other) {
        array_view<std::byte const> const stream = layout.slot(received(other), which);
        targets.push_back({layout.spec_of(which), stream.slice(0, 0, sizes(others() + other, which)),
                           space[at.decoded].slice(0, other * count, count)});
      }
      chunks::decode(exec, layout, targets, space[at.decode]);
    }
    /// Enqueues adding what all ranks have from a value of the part on.
    void add(std::int64_t first, std::int64_t count, matrix_view<value_type const> const& of_others) const {
      detail::add_lists_of_ranks<value_type> const sum{of_others, part_of(ranks.rank()).slice(0, first, count),
                                                       ranks.rank(), part.slice(0, first, count)};
      exec.run(sum, sum.groups());
    }

    [[nodiscard]] bool has_tails(detail::stream_sizes const& sizes) const {
      for (std::int64_t i = 0; i < 2 * others() * layout.chunks; ++i) {
        if (layout.tail_bytes(i % layout.chunks, sizes(i / layout.chunks, i % layout.chunks)) > 0) {
          return true;
        }
      }
      return false;
    }
    /// Enqueues the exchange of all tails that the rank sends or gets.
    void exchange_tails(detail::stream_sizes const& sizes) const {
      wire.join(static_cast<int>(layout.chunks - 1));
      exchange_each([&, this](int rank, std::int64_t other) {
        for (std::int64_t which = 0; which < layout.chunks; ++which) {
          array_view<std::byte const> const out = layout.tail(sent(other), which, sizes(other, which));
          array_view<std::byte> const in = layout.tail(received(other), which, sizes(others() + other, which));
          if (!out.is_empty()) {
            ranks.send(exec, out, rank);
          }
          if (!in.is_empty()) {
            ranks.receive(exec, rank, in);
          }
        }
      });
    }
  };

  /// The call where ranks store into each other's memory (detail/stored_streams.hpp).
  template <class Exec, PeerCommunicator<Exec> Ranks>
  static compressed_traffic exchange_by_stores(Exec const& exec, side_queue<Exec> const& wire, Ranks& ranks,
                                               layout_type const& layout, array_view<value_type const> all,
                                               array_view<value_type> part, workspace const& space) {
    stored_regions const at(where, exec, ranks.size(), layout, true);
    space.check_room(where, at.plan.bytes(), ranks.size(), " ranks with parts of ", part.size(), " values");
    detail::stored_streams<Codec, Exec, Ranks> const streams(exec, wire, ranks, layout, at, space);
    int const rank = ranks.rank();
    auto const part_of = [&](std::int64_t of) { return all.slice(0, of * layout.count, layout.count); };
    auto const add = [&](Exec const& on, std::int64_t first, matrix_view<value_type const> const& of_others) {
      std::int64_t const count = of_others.extent(1);
      detail::add_lists_of_ranks<value_type> const sum{of_others, part_of(rank).slice(0, first, count), rank,
                                                       part.slice(0, first, count)};
      on.run(sum, sum.groups());
    };
    streams.exchange(
        part_of, [](std::int64_t, std::int64_t) {},
        [&](Exec const& on, std::int64_t which) {
          std::int64_t const count = layout.weights_of(which);
          streams.decode(on, which, [&](int from) {
            return space[at.decoded].slice(0, streams.place(from, rank) * count, count);
          });
          add(on, layout.first_of(which), {space[at.decoded].data, {ranks.size() - 1, count}});
        },
        [&] { add(wire.executor(), 0, streams.heads()); });
    return streams.wait_for_traffic();
  }

  /// Throws for arguments that do not fit together, or lie where programs do not read them; returns the layout.
  template <class Exec, class Ranks>
  static layout_type check_call(Exec const& exec, side_queue<Exec> const& wire, Ranks const& ranks,
                                array_view<value_type const> all, array_view<value_type> part,
                                compressed_collective_options const& options, workspace const& space) {
    bool const is_dry = detail::options_of(exec).is_dry;
    detail::check_side(where, exec, wire);
    detail::check_list(where, "list of all parts", all, is_dry);
    detail::check_list(where, "own part", part, is_dry);
    detail::check_parts_of_ranks(where, "own part", part.size(), all.size(), ranks.size());
    check_reach(exec, where, "values of all parts", all, "values of the own part", part, "bytes of the workspace",
                space);
    return layout_type::of(where, part.size(), options);
  }
};

}  // namespace v0
}  // namespace tessera
