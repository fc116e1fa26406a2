// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `compressed_all_gather`: the all_gather of lists of weights, which travel as streams of a lossless codec. Every rank
/// gets the bits that all_gather of the communicator would give it, for two thirds of the bytes.
///
///     #include <tessera/algorithm/weights/compressed_all_gather.hpp>
///     #include <tessera/comm/loopback.hpp>
///     #include <tessera/neuzip.hpp>
///
///     using collective = tessera::compressed_all_gather<tessera::neuzip>;
///     tessera::loopback ranks;                                                  // or tessera::nccl of a ncclComm_t
///     tessera::side_queue<Executor> const wire(exec, collective::side_marks, true);
///     auto const plan = collective::plan(exec, ranks.size(), own.size());
///     tessera::buffer<std::byte> memory(exec, plan.bytes());
///     collective::exchange(exec, wire, ranks, own, all, {}, tessera::workspace(plan, memory));
///
/// Messages go on the side queue `wire`, in this order: the head as it is, then the body of each chunk
/// (compressed_collective_types.hpp), by sends to each other rank or by one all_gather of the communicator, while the
/// executor encodes the next chunks, in few calls for ever more of them, to where the communicator takes their bodies.
/// As soon as the first body of the last such call is there the host has the sizes of all streams and enqueues decoding
/// these chunks in one call, and each later one when its body comes. Only where a rank's stream is longer than its body
/// is the chunk encoded again, with room for its tail, and tails are exchanged, by grouped sends. A wire that goes
/// first gets room on the GPU beside the encoder. It must be of this executor, and of no other call at the same time.
///
/// Where copy engines send (compressed_collective_options::for_copy_engines()) the workspace is memory that NCCL has
/// registered: `tessera::nccl_memory memory(comm, plan.bytes())` and its view() (comm/nccl_memory.cuh). The lists need
/// not be.
///
/// Where ranks store into each other's memory (compressed_collective_options::for_peer_memory()) they are a
/// PeerCommunicator, and the workspace is memory that they share: for tessera::nccl it is an nccl_memory that use() was
/// given. Encoding then writes each stream to where the other rank decodes it (detail/stored_streams.hpp): there are no
/// bodies, no tails and no table of sizes. Other ranks, and other memory, throw value_error. Observers and explain()
/// see which way a call goes by its programs: with nccl `meet_peers` runs before and after the stores.
///
/// `exchange()` is called by all ranks, with lists of one size and the same options; `own` may be this rank's part of
/// `all`. Lists too small to gain are gathered by the communicator alone, as are those of one rank. Determinism: bits
/// are those of the sources. The call waits once on the host, for the table of sizes (a few KiB), after it has enqueued
/// all bodies; so it cannot be captured in a CUDA graph. It allocates only what the communicator does, and lists of
/// chunks on the host.
///
/// Errors: shape_error and value_error for arguments, as everywhere, before anything is sent; a rank that throws them
/// leaves the others to its Communicator. Where lists have different sizes all ranks throw shape_error with both, if
/// the executor has no stream. On a GPU nobody waits to ask: messages of different sizes are the communicator's (NCCL
/// may wait for ever), others are refused as damaged. A damaged message is refused by the ranks that get it, and
/// nothing is written outside of `all`: a table of sizes throws corrupt_data at once, and a stream is reported by
/// wait() of the executor, as by compressed_weights::decode, with zeros for its corrupt blocks. What earlier programs
/// reported is thrown when everything is enqueued.
///
/// Model: a rank sends head + (list - head) * body_bits / bits, so that with bf16's 11 bits, no tails and the
/// communicator's own rate at this size the call is at most 16 / 11 = 1.45 times as fast as all_gather: 1.29 times
/// where the head is a quarter of the list, 1.44 with one of 1 MiB in 64; with bodies of 10.67 bits and no head 1.50.
/// To this come the decoding of the last chunk and what a message costs by itself, of which there is one more than
/// there are chunks. Where the communicator's all_gather is not the fastest way to send, the call may gain more: on two
/// H200 over NVLink NCCL's programs send 1 GiB of each at 280 GB/s by all_gather, at 359 by sends, and copy engines at
/// 390.
///
/// Measured on two H200, over NCCL's own all_gather as it comes, for 64 MiB, 256 MiB and 1 GiB of each rank: without
/// peer access (24 GB/s) 1.36, 1.40 and 1.41; over NVLink by stores 1.31, 1.44 and 1.56, by copy engines 1.09, 1.35 and
/// 1.70, by NCCL's programs 1.00 (sent as they are), 1.04 and 1.08. Over NCCL's all_gather by copy engines, of lists
/// that are registered too: by stores 1.07, 1.15 and 1.33, by copy engines 0.88, 1.08 and 1.45.
///
/// Workspace: room for everyone's bodies (ranks * 11/16 of a list), for the longest chunk of everyone, and without
/// sends_to_each for all heads; by stores for the longest streams of all other ranks ((ranks - 1) lists), and their
/// heads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/algorithm/weights/compressed_collective_types.hpp>
#include <tessera/algorithm/weights/compressed_weights.hpp>
#include <tessera/algorithm/weights/detail/chunk_calls.hpp>
#include <tessera/algorithm/weights/detail/message_layout.hpp>
#include <tessera/algorithm/weights/detail/stored_streams.hpp>
#include <tessera/concepts/comm/communicator.hpp>
#include <tessera/concepts/comm/peer_communicator.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/check_reach.hpp>
#include <tessera/exec/execution_options.hpp>
#include <tessera/exec/side_queue.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// The all_gather of the weights of a lossless compressed_weights, such as neuzip or neuzip_of<float16>.
template <class Codec>
struct compressed_all_gather : private detail::compressed_collective<Codec> {
  using value_type = typename Codec::value_type;
  /// The marks that the side queue needs.
  static constexpr int side_marks = detail::message_layout<Codec>::most_chunks;

  /// The workspace of exchange() for `ranks` ranks with `count` weights each. Throws for options out of range.
  template <Executor Exec>
  static workspace_plan plan(Exec const& exec, std::int64_t ranks, std::int64_t count,
                             compressed_collective_options const& options = {}) {
    base::check_ranks(where, ranks);
    layout_type const layout = layout_type::of(where, count, options);
    if (options.stores_to_peers) {
      return stored_regions(where, exec, ranks, layout, false).plan;
    }
    return regions(exec, ranks, layout).plan;
  }

  /// Puts the lists of all ranks, of one size, behind each other in every rank's `all`; see above.
  template <Executor Exec, Communicator<Exec> Ranks>
  static compressed_traffic exchange(Exec const& exec, side_queue<Exec> const& wire, Ranks& ranks,
                                     array_view<value_type const> own, array_view<value_type> all,
                                     compressed_collective_options const& options, workspace const& space) {
    layout_type const layout = check_call(exec, wire, ranks, own, all, options, space);
    base::compare_counts(where, exec, ranks, own.size());
    if (layout.chunks == 0 || ranks.size() == 1) {
      ranks.all_gather(exec, own, all);
      return base::plain_traffic(layout);
    }
    if (options.stores_to_peers) {
      if constexpr (PeerCommunicator<Ranks, Exec>) {
        return exchange_by_stores(exec, wire, ranks, layout, own, all, space);
      } else {
        throw value_error(join(where, ": stores_to_peers is ", true, " but the ranks are no PeerCommunicator"));
      }
    }
    regions const at(exec, ranks.size(), layout);
    space.check_room(where, at.plan.bytes(), ranks.size(), " ranks with ", own.size(), " weights");
    call<Exec, Ranks> const of{exec, wire, ranks, layout, at, space, own, all};
    detail::stream_sizes sizes(layout, ranks.size());
    detail::send_and_receive(exec, wire, of, true, sizes);
    return layout.traffic([&](std::int64_t which) { return sizes(ranks.rank(), which); });
  }

 private:
  using base = detail::compressed_collective<Codec>;
  using layout_type = typename base::layout_type;
  using chunks = typename base::chunks;
  using stored_regions = detail::stored_regions<Codec>;
  static constexpr char const* where = "compressed_all_gather.exchange";

  struct regions {
    workspace_plan plan{where};
    region<value_type> heads;
    region<std::byte> received;
    region<std::byte> whole;
    region<std::int64_t> sizes;
    region<std::byte> encode;
    region<std::byte> decode;

    template <Executor Exec>
    regions(Exec const& exec, std::int64_t ranks, layout_type const& layout) {
      bool const is_plain = layout.chunks == 0 || ranks == 1;
      std::int64_t const all = is_plain ? 0 : ranks;
      heads = plan.template add<value_type>("heads of all ranks",
                                            layout.sends_to_each ? 0 : checked_multiply(where, all, layout.head));
      received = plan.template add<std::byte>("bodies of all ranks",
                                              checked_multiply(where, all, layout.bodies_before(layout.chunks)));
      whole = plan.template add<std::byte>("bodies and tails of a chunk",
                                           checked_multiply(where, all, whole_bytes(layout)));
      sizes = plan.template add<std::int64_t>("sizes of streams", checked_multiply(where, all, layout.table_numbers()));
      encode = plan.template add<std::byte>("encoding", is_plain ? 0 : chunks::encode_bytes(exec, layout, 1));
      decode = plan.template add<std::byte>(
          "decoding", is_plain ? 0 : chunks::decode_bytes(exec, layout, (ranks - 1) * (layout.table_chunk + 1)));
    }
    /// Bytes for the longest stream of any chunk.
    static std::int64_t whole_bytes(layout_type const& layout) {
      return layout.chunks == 0 ? 0 : max(layout.slot_bytes(layout.longest()), layout.slot_bytes(layout.chunks - 1));
    }
  };

  /// What the parts of a call share.
  template <class Exec, class Ranks>
  struct call {
    Exec const& exec;
    side_queue<Exec> const& wire;
    Ranks& ranks;
    layout_type const& layout;
    regions const& at;
    workspace const& space;
    array_view<value_type const> own;
    array_view<value_type> all;

    /// Enqueues encoding all chunks, each to where its body lies among those of all ranks, and sending heads and
    /// bodies.
    void send() const {
      wire.follow();
      if (layout.head > 0) {
        share_heads();
      }
      std::byte* const table =
          bodies_of(layout.table_chunk).data + ranks.rank() * layout.body_bytes(layout.table_chunk);
      std::int64_t encoded = 0;
      for (std::int64_t which = 0; which < layout.chunks; ++which) {
        chunks::encode_until(
            exec, layout, which, encoded, space[at.encode], layout.tables(table, 1, 0),
            [&, this](std::int64_t next, auto& sources) {
              sources.push_back(chunks::source_of(layout, next, own, stream_of(ranks.rank(), next), table));
            });
        wire.follow();
        share_bodies(which);
        wire.mark(static_cast<int>(which));
      }
    }

    /// Enqueues what needs no sizes, and reading these.
    void read(detail::stream_sizes& sizes) const {
      array_view<value_type> const own_part = list_of(ranks.rank());
      if (own_part.data != own.data) {
        exec.copy(own, own_part);
      }
      if (layout.head > 0 && !layout.sends_to_each) {
        wire.join(0);  // and with the first body all heads
        for (std::int64_t rank = 0; rank < ranks.size(); ++rank) {
          if (rank != ranks.rank()) {
            exec.copy(array_view<value_type const>(space[at.heads]).slice(0, rank * layout.head, layout.head),
                      head_of(rank));
          }
        }
      }
      wire.join(static_cast<int>(layout.table_chunk));
      std::byte const* const first = bodies_of(layout.table_chunk).data;
      detail::copy_tables(exec, layout.tables(first, ranks.size(), layout.body_bytes(layout.table_chunk)),
                          space[at.sizes]);
      sizes.read(exec, space[at.sizes]);
    }

    /// Enqueues decoding, and the exchange of tails.
    void receive(detail::stream_sizes const& sizes) const {
      ranks.grouped(
          [&, this] {  // so that others learn, where the communicator tells them, that this rank goes on no more
            for (std::int64_t rank = 0; rank < ranks.size(); ++rank) {
              sizes.check_table(where, layout, rank, rank);
            }
          });
      std::vector<std::int64_t> left;
      std::vector<typename Codec::target> ready;
      for (std::int64_t which = 0; which < layout.chunks; ++which) {
        wire.join(static_cast<int>(which));
        if (has_tails(which, sizes)) {
          left.push_back(which);
        } else {
          add_targets(which, sizes, ready);
        }
        if (which >= layout.table_chunk) {  // the bodies before it were there already
          chunks::decode(exec, layout, ready, space[at.decode]);
          ready.clear();
        }
      }
      for (std::int64_t const which : left) {
        receive_tails(which, sizes);
        add_targets(which, sizes, ready);
        chunks::decode(exec, layout, ready, space[at.decode]);
        ready.clear();
      }
    }

   private:
    /// Enqueues sending the own part to all others, and receiving theirs: part_of(rank).
    template <class T, class PartOf>
    void send_to_each(array_view<T const> part, PartOf const& part_of) const {
      ranks.grouped([&, this] {
        for (int other = 0; other < ranks.size(); ++other) {
          if (other != ranks.rank()) {
            ranks.send(wire.executor(), part, other);
            ranks.receive(wire.executor(), other, part_of(other));
          }
        }
      });
    }
    void share_heads() const {
      array_view<value_type const> const head = own.slice(0, 0, layout.head);
      if (layout.sends_to_each) {
        send_to_each(head, [&, this](int rank) { return head_of(rank); });
        return;
      }
      array_view<value_type> const part = space[at.heads].slice(0, ranks.rank() * layout.head, layout.head);
      wire.executor().copy(head, part);
      ranks.all_gather(wire.executor(), array_view<value_type const>(part), space[at.heads]);
    }
    void share_bodies(std::int64_t which) const {
      array_view<std::byte> const bodies = bodies_of(which);
      std::int64_t const bytes = layout.body_bytes(which);
      array_view<std::byte const> const part = bodies.slice(0, ranks.rank() * bytes, bytes);
      if (layout.sends_to_each) {
        send_to_each(part, [&](int rank) { return bodies.slice(0, rank * bytes, bytes); });
      } else {
        ranks.all_gather(wire.executor(), part, bodies);
      }
    }

    [[nodiscard]] bool has_tails(std::int64_t which, detail::stream_sizes const& sizes) const {
      for (std::int64_t rank = 0; rank < ranks.size(); ++rank) {
        if (layout.tail_bytes(which, sizes(rank, which)) > 0) {
          return true;
        }
      }
      return false;
    }

    /// Puts what came first of a chunk's streams with tails, and these, behind each other. An own stream with a tail is
    /// encoded once more, with room for it.
    void receive_tails(std::int64_t which, detail::stream_sizes const& sizes) const {
      std::int64_t const begin = layout.tail_begin(which);
      std::int64_t const own_tail = layout.tail_bytes(which, sizes(ranks.rank(), which));
      if (own_tail > 0) {
        auto* const table = reinterpret_cast<std::byte*>(space[at.sizes].data);  // which has been read
        chunks::encode(exec, layout, {chunks::source_of(layout, which, own, whole_of(ranks.rank(), which), table)},
                       space[at.encode]);
      }
      ranks.grouped([&, this] {
        for (int other = 0; other < ranks.size(); ++other) {
          std::int64_t const tail = layout.tail_bytes(which, sizes(other, which));
          if (other != ranks.rank() && own_tail > 0) {
            ranks.send(exec, array_view<std::byte const>(whole_of(ranks.rank(), which).slice(0, begin, own_tail)),
                       other);
          }
          if (other != ranks.rank() && tail > 0) {
            ranks.receive(exec, other, whole_of(other, which).slice(0, begin, tail));
          }
        }
      });
      for (std::int64_t other = 0; other < ranks.size(); ++other) {
        if (other != ranks.rank() && layout.tail_bytes(which, sizes(other, which)) > 0) {
          exec.copy(array_view<std::byte const>(stream_of(other, which)).slice(0, 0, begin),
                    whole_of(other, which).slice(0, 0, begin));
        }
      }
    }

    /// Adds the decoding of a chunk of all other ranks.
    void add_targets(std::int64_t which, detail::stream_sizes const& sizes,
                     std::vector<typename Codec::target>& targets) const {
      for (std::int64_t rank = 0; rank < ranks.size(); ++rank) {
        if (rank != ranks.rank()) {
          std::int64_t const size = sizes(rank, which);
          array_view<std::byte const> const stream =
              layout.tail_bytes(which, size) > 0 ? whole_of(rank, which) : stream_of(rank, which);
          targets.push_back({layout.spec_of(which), stream.slice(0, 0, size), layout.chunk_of(list_of(rank), which)});
        }
      }
    }

    /// A rank's list.
    [[nodiscard]] array_view<value_type> list_of(std::int64_t rank) const {
      return all.slice(0, rank * layout.count, layout.count);
    }
    /// The head of a rank's list.
    [[nodiscard]] array_view<value_type> head_of(std::int64_t rank) const {
      return list_of(rank).slice(0, 0, layout.head);
    }
    /// The bodies of a chunk, rank by rank.
    [[nodiscard]] array_view<std::byte> bodies_of(std::int64_t which) const {
      return space[at.received].slice(0, layout.bodies_before(which) * ranks.size(),
                                      layout.body_bytes(which) * ranks.size());
    }
    /// The first part of a rank's stream.
    [[nodiscard]] array_view<std::byte> stream_of(std::int64_t rank, std::int64_t which) const {
      std::int64_t const first = rank * layout.body_bytes(which) + layout.table_before(which);
      return bodies_of(which).slice(0, first, layout.stream_part(which));
    }
    /// Room for a rank's whole stream.
    [[nodiscard]] array_view<std::byte> whole_of(std::int64_t rank, std::int64_t which) const {
      return space[at.whole].slice(0, rank * regions::whole_bytes(layout), layout.slot_bytes(which));
    }
  };

  /// The call where ranks store into each other's memory (detail/stored_streams.hpp).
  template <class Exec, PeerCommunicator<Exec> Ranks>
  static compressed_traffic exchange_by_stores(Exec const& exec, side_queue<Exec> const& wire, Ranks& ranks,
                                               layout_type const& layout, array_view<value_type const> own,
                                               array_view<value_type> all, workspace const& space) {
    stored_regions const at(where, exec, ranks.size(), layout, false);
    space.check_room(where, at.plan.bytes(), ranks.size(), " ranks with ", own.size(), " weights");
    detail::stored_streams<Codec, Exec, Ranks> const streams(exec, wire, ranks, layout, at, space);
    auto const list_of = [&](std::int64_t rank) { return all.slice(0, rank * layout.count, layout.count); };
    streams.exchange(
        [&](int) { return own; },
        [&](std::int64_t first, std::int64_t end) {
          if (list_of(ranks.rank()).data != own.data) {
            wire.executor().copy(own.slice(0, first, end - first), list_of(ranks.rank()).slice(0, first, end - first));
          }
        },
        [&](Exec const& on, std::int64_t which) {
          streams.decode(on, which, [&](int from) { return layout.chunk_of(list_of(from), which); });
        },
        [&] {
          streams.each_other(
              [&](int from) { wire.executor().copy(streams.head_of(from), list_of(from).slice(0, 0, layout.head)); });
        });
    return streams.wait_for_traffic();
  }

  /// Throws for arguments that do not fit together, or lie where programs do not read them; returns the layout.
  template <class Exec, class Ranks>
  static layout_type check_call(Exec const& exec, side_queue<Exec> const& wire, Ranks const& ranks,
                                array_view<value_type const> own, array_view<value_type> all,
                                compressed_collective_options const& options, workspace const& space) {
    bool const is_dry = detail::options_of(exec).is_dry;
    detail::check_side(where, exec, wire);
    detail::check_list(where, "own list", own, is_dry);
    detail::check_list(where, "list of all ranks", all, is_dry);
    detail::check_parts_of_ranks(where, "own list", own.size(), all.size(), ranks.size());
    check_reach(exec, where, "weights of the own list", own, "weights of all ranks", all, "bytes of the workspace",
                space);
    return layout_type::of(where, own.size(), options);
  }
};

}  // namespace v0
}  // namespace tessera
