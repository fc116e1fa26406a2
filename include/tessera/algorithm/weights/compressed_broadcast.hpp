// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `compressed_broadcast`: gives every rank the weights of one of them, which travel as streams of a lossless codec,
/// for two thirds of the bytes.
///
///     #include <tessera/algorithm/weights/compressed_broadcast.hpp>
///     #include <tessera/comm/loopback.hpp>
///     #include <tessera/neuzip.hpp>
///
///     using collective = tessera::compressed_broadcast<tessera::neuzip>;
///     tessera::loopback ranks;                                                  // or tessera::nccl of a ncclComm_t
///     tessera::side_queue<Executor> const wire(exec, collective::side_marks, true);
///     auto const plan = collective::plan(exec, ranks.size(), list.size());
///     tessera::buffer<std::byte> memory(exec, plan.bytes());
///     collective::exchange(exec, wire, ranks, 0, list, {}, tessera::workspace(plan, memory));   // the list of rank 0
///
/// Ranks form a chain that begins with the root. Each hands on what it gets, as it got it, so that a list takes the
/// time of one transfer and that of one message for each further rank. Messages are the head and the bodies of chunks
/// (compressed_collective_types.hpp), in this order, on the side queue `wire`; at the same time root encodes what
/// comes next. When the table of sizes has come, each rank enqueues decoding the chunks that it gets. Tails, where
/// streams are longer than their bodies, go through the chain in the end.
///
/// `exchange()` is called by all ranks, with lists of one size, the same root and the same options. `list` is read on
/// root and written on all others. Lists too small to gain go through the chain as they are. The call waits once on the
/// host, for a table of some hundred bytes, when the bodies of the first chunks are there; it cannot be captured in a
/// CUDA graph. Determinism: bits are root's.
///
/// Errors: shape_error and value_error for arguments, before anything is sent, and for lists of different sizes as
/// compressed_all_gather says. A damaged message is refused by the ranks that get it, and by those after them: a table
/// of sizes throws corrupt_data at once, and a stream is reported by wait() of the executor, as by
/// compressed_weights::decode, with zeros for its corrupt blocks. Nothing is written outside of `list`. What earlier
/// programs reported is thrown when everything is enqueued.
///
/// Model: a rank sends head + (list - head) * body_bits / bits, 11/16 of a long list of bf16, as in
/// compressed_all_gather. Measured on two H200, over NCCL's own broadcast: 1.36 to 1.40 without peer access; over
/// NVLink 0.947 for 256 MiB and 1.167 for 1 GiB. Workspace: one list, and what one chunk needs to be encoded and
/// decoded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/algorithm/weights/compressed_collective_types.hpp>
#include <tessera/algorithm/weights/compressed_weights.hpp>
#include <tessera/algorithm/weights/detail/chunk_calls.hpp>
#include <tessera/algorithm/weights/detail/message_layout.hpp>
#include <tessera/concepts/comm/communicator.hpp>
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

/// The broadcast of the weights of a lossless compressed_weights, such as neuzip or neuzip_of<float16>.
template <class Codec>
struct compressed_broadcast : private detail::compressed_collective<Codec> {
  using value_type = typename Codec::value_type;
  /// The marks that the side queue needs.
  static constexpr int side_marks = detail::message_layout<Codec>::most_chunks + 1;

  /// The workspace of exchange() for `ranks` ranks and a list of `count` weights. Throws for options out of range.
  template <Executor Exec>
  static workspace_plan plan(Exec const& exec, std::int64_t ranks, std::int64_t count,
                             compressed_collective_options const& options = {}) {
    base::check_ranks(where, ranks);
    return regions(exec, ranks, layout_type::of(where, count, options)).plan;
  }

  /// Makes every rank's list that of the rank `root`; see above.
  template <Executor Exec, Communicator<Exec> Ranks>
  static compressed_traffic exchange(Exec const& exec, side_queue<Exec> const& wire, Ranks& ranks, int root,
                                     array_view<value_type> list, compressed_collective_options const& options,
                                     workspace const& space) {
    layout_type const layout = check_call(exec, wire, ranks, root, list, options, space);
    base::compare_counts(where, exec, ranks, list.size());
    if (ranks.size() == 1) {
      return base::plain_traffic(layout);
    }
    regions const at(exec, ranks.size(), layout);
    space.check_room(where, at.plan.bytes(), ranks.size(), " ranks with ", list.size(), " weights");
    call<Exec, Ranks> const of{exec, wire, ranks, root, layout, at, space, list};
    detail::stream_sizes sizes(layout, 1);
    detail::send_and_receive(exec, wire, of, layout.chunks > 0, sizes);
    return layout.traffic([&](std::int64_t which) { return sizes(0, which); });
  }

 private:
  using base = detail::compressed_collective<Codec>;
  using layout_type = typename base::layout_type;
  using chunks = typename base::chunks;
  static constexpr char const* where = "compressed_broadcast.exchange";
  static constexpr int all_sent = side_marks - 1;  ///< the mark behind the last message; those before are of chunks

  struct regions {
    workspace_plan plan{where};
    region<std::byte> sender;
    region<std::int64_t> sizes;
    region<std::byte> encode;
    region<std::byte> decode;

    template <Executor Exec>
    regions(Exec const& exec, std::int64_t ranks, layout_type const& layout) {
      bool const is_alone = ranks == 1;
      sender = plan.template add<std::byte>("root's streams", is_alone ? 0 : layout.sender_bytes());
      sizes = plan.template add<std::int64_t>("sizes of streams", is_alone ? 0 : layout.table_numbers());
      encode = plan.template add<std::byte>("encoding", is_alone ? 0 : chunks::encode_bytes(exec, layout, 1));
      decode = plan.template add<std::byte>("decoding",
                                            is_alone ? 0 : chunks::decode_bytes(exec, layout, layout.table_chunk + 1));
    }
  };

  /// What the parts of a call share.
  template <class Exec, class Ranks>
  struct call {
    Exec const& exec;
    side_queue<Exec> const& wire;
    Ranks& ranks;
    int root;
    layout_type const& layout;
    regions const& at;
    workspace const& space;
    array_view<value_type> list;

    /// Enqueues encoding all chunks, on root, and the chain of head and bodies.
    void send() const {
      std::int64_t const heads = layout.head > 0 ? 1 : 0;
      std::vector<array_view<std::byte>> messages;
      if (heads > 0) {
        messages.push_back({reinterpret_cast<std::byte*>(list.data), layout.head * layout_type::weight_bytes});
      }
      for (std::int64_t which = 0; which < layout.chunks; ++which) {
        messages.push_back(layout.body(space[at.sender], which));
      }
      std::byte* const table = space[at.sender].data + layout.table_of();
      std::int64_t encoded = 0;
      auto const before = [&, this](std::int64_t message) {
        if (ranks.rank() == root && message >= heads) {
          chunks::encode_until(
              exec, layout, message - heads, encoded, space[at.encode], layout.tables(table, 1, 0),
              [&, this](std::int64_t next, auto& sources) {
                sources.push_back(chunks::source_of(layout, next, list, layout.slot(space[at.sender], next), table));
              });
        }
        if (ranks.rank() == root) {
          wire.follow();
        }
      };
      auto const after = [&, this](std::int64_t message) {
        if (message >= heads) {
          wire.mark(static_cast<int>(message - heads));
        }
      };
      wire.follow();
      hand_on(wire.executor(), messages, before, after);
      wire.mark(all_sent);
      if (layout.chunks == 0) {
        wire.join(all_sent);
      }
    }

    /// Enqueues reading the sizes of streams.
    void read(detail::stream_sizes& sizes) const {
      if (ranks.rank() != root) {
        wire.join(static_cast<int>(layout.table_chunk));
      }
      std::byte const* const first = space[at.sender].data + layout.table_of();
      detail::copy_tables(exec, layout.tables(first, 1, 0), space[at.sizes]);
      sizes.read(exec, space[at.sizes]);
    }

    /// Enqueues decoding, and the chain of tails.
    void receive(detail::stream_sizes const& sizes) const {
      ranks.grouped(
          [&, this] {  // so that others learn, where the communicator tells them, that this rank goes on no more
            sizes.check_table(where, layout, 0, root);
          });
      std::vector<std::int64_t> left;
      std::vector<array_view<std::byte>> tails;
      std::vector<typename Codec::target> ready;
      for (std::int64_t which = 0; which < layout.chunks; ++which) {
        if (layout.tail_bytes(which, sizes(0, which)) > 0) {
          left.push_back(which);
          tails.push_back(layout.tail(space[at.sender], which, sizes(0, which)));
        } else {
          ready.push_back(target_of(which, sizes));
        }
        if (ranks.rank() != root && which >= layout.table_chunk) {  // the bodies before it were there already
          wire.join(static_cast<int>(which));
          chunks::decode(exec, layout, ready, space[at.decode]);
          ready.clear();
        }
      }
      wire.join(all_sent);
      hand_on(
          exec, tails, [](std::int64_t) {},
          [&, this](std::int64_t message) {
            chunks::decode(exec, layout, {target_of(left[static_cast<std::size_t>(message)], sizes)}, space[at.decode]);
          });
    }

    [[nodiscard]] typename Codec::target target_of(std::int64_t which, detail::stream_sizes const& sizes) const {
      array_view<std::byte const> const stream = layout.slot(space[at.sender], which);
      return {layout.spec_of(which), stream.slice(0, 0, sizes(0, which)), layout.chunk_of(list, which)};
    }

    /// Enqueues sending messages from rank to rank. A rank hands a message on while it gets the next one.
    template <class Before, class After>
    void hand_on(Exec const& on, std::vector<array_view<std::byte>> const& messages, Before const& before,
                 After const& after) const {
      auto const count = static_cast<std::int64_t>(messages.size());
      int const size = ranks.size();
      int const place = (ranks.rank() - root + size) % size;
      for (std::int64_t step = 0; step < count + size - 2; ++step) {
        std::int64_t const sent = step - place;
        std::int64_t const received = sent + 1;
        bool const sends = place + 1 < size && sent >= 0 && sent < count;
        bool const receives = place > 0 && received >= 0 && received < count;
        if (sends) {
          before(sent);
        }
        ranks.grouped([&, this] {
          if (sends) {
            array_view<std::byte const> const message = messages[static_cast<std::size_t>(sent)];
            ranks.send(on, message, (ranks.rank() + 1) % size);
          }
          if (receives) {
            ranks.receive(on, (ranks.rank() + size - 1) % size, messages[static_cast<std::size_t>(received)]);
          }
        });
        if (receives) {
          after(received);
        }
      }
    }
  };

  /// Throws for arguments that do not fit together, or lie where programs do not read them; returns the layout.
  template <class Exec, class Ranks>
  static layout_type check_call(Exec const& exec, side_queue<Exec> const& wire, Ranks const& ranks, int root,
                                array_view<value_type> list, compressed_collective_options const& options,
                                workspace const& space) {
    check<value_error>(root >= 0 && root < ranks.size(), where, ": root is ", root, " but there are ", ranks.size(),
                       " ranks");
    check<value_error>(!options.stores_to_peers, where, ": stores_to_peers is ", true, " but must be ", false);
    detail::check_side(where, exec, wire);
    detail::check_list(where, "list", list, detail::options_of(exec).is_dry);
    check_reach(exec, where, "weights", list, "bytes of the workspace", space);
    return layout_type::of(where, list.size(), options);
  }
};

}  // namespace v0
}  // namespace tessera
