// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// What compressed collectives do with chunks: encode and decode them in a part of the workspace, and read the sizes of
/// streams that the tables of ranks say.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <type_traits>
#include <vector>

#include <tessera/algorithm/weights/detail/message_layout.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/execution_options.hpp>
#include <tessera/exec/side_queue.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/program/weights/detail/rank_messages.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Tables of the sizes of streams, on the host.
class stream_sizes {
 public:
  /// `tables` tables, with streams as small as they can be, until they are read.
  template <class Codec>
  stream_sizes(message_layout<Codec> const& layout, std::int64_t tables) : chunks_(layout.chunks) {
    numbers_.reserve(static_cast<std::size_t>(tables * layout.table_numbers()));
    for (std::int64_t table = 0; table < tables; ++table) {
      for (std::int64_t which = 0; which < chunks_; ++which) {
        numbers_.push_back(layout.spec_of(which).smallest_bytes());
      }
      numbers_.push_back(seal_of(numbers_.data() + std::ssize(numbers_) - chunks_, chunks_));
    }
  }
  /// The size of a stream.
  [[nodiscard]] std::int64_t operator()(std::int64_t table, std::int64_t which) const { return table_of(table)[which]; }

  /// Enqueues reading all tables; `gathered` has room for them on the device.
  template <Executor Exec>
  void read(Exec const& exec, array_view<std::int64_t const> gathered) {
    exec.copy(gathered, array_view<std::int64_t>(numbers_.data(), std::ssize(numbers_)));
  }
  /// Throws corrupt_data for a rank's table that is not what was sent.
  template <class Codec>
  void check_table(char const* function, message_layout<Codec> const& layout, std::int64_t table,
                   std::int64_t rank) const {
    for (std::int64_t which = 0; which < chunks_; ++which) {
      layout.check_size(function, rank, which, (*this)(table, which));
    }
    std::int64_t const wanted = seal_of(table_of(table), chunks_);
    std::int64_t const found = table_of(table)[chunks_];
    check<corrupt_data>(found == wanted, function, ": the sizes of the streams of rank ", rank, " have the checksum ",
                        wanted, ", but its message says ", found);
  }

 private:
  [[nodiscard]] std::int64_t const* table_of(std::int64_t table) const {
    return numbers_.data() + table * (chunks_ + 1);
  }

  std::int64_t chunks_;
  std::vector<std::int64_t> numbers_;
};

/// Enqueues copying tables next to each other.
template <Executor Exec>
void copy_tables(Exec const& exec, matrix_view<std::int64_t const> const& tables, array_view<std::int64_t> gathered) {
  gather_tables const gather{tables, gathered};
  exec.run(gather, gather.groups());
}

/// Waits for the executor. What earlier programs reported is returned, to be thrown when the call has done its part for
/// the other ranks.
template <Executor Exec>
[[nodiscard]] std::exception_ptr wait_for_sizes(Exec const& exec) {
  try {
    exec.wait();
  } catch (device_error const&) {
    throw;
  } catch (error const&) {
    return std::current_exception();
  }
  return nullptr;
}

/// Runs a call that sends chunks whose sizes ranks tell each other on the way, and then throws what earlier programs
/// reported. Call: has send(), and where there are chunks read(sizes) and receive(sizes).
template <Executor Exec, class Call>
void send_and_receive(Exec const& exec, side_queue<Exec> const& wire, Call const& call, bool has_chunks,
                      stream_sizes& sizes) {
  std::exception_ptr const earlier = joining(wire, [&]() -> std::exception_ptr {
    call.send();
    if (!has_chunks) {
      return nullptr;
    }
    call.read(sizes);
    std::exception_ptr reported = wait_for_sizes(exec);
    call.receive(sizes);
    return reported;
  });
  if (earlier) {
    std::rethrow_exception(earlier);
  }
}

/// Encoding and decoding of the chunks of lists, several lists at a time.
template <class Codec>
struct chunk_calls {
  using layout_type = message_layout<Codec>;
  using value_type = typename Codec::value_type;
  using source_type = typename Codec::source;
  using target_type = typename Codec::target;

  /// Bytes of workspace for encoding groups of chunks of so many lists.
  template <Executor Exec>
  static std::int64_t encode_bytes(Exec const& exec, layout_type const& layout, std::int64_t lists) {
    return most_of(layout, [&](weight_stream_spec const& spec) {
      std::vector<source_type> const sources(static_cast<std::size_t>(lists * layout.largest_group()),
                                             source_type{spec, {}, {}, {}});
      return Codec::plan_encode(exec, view_of(sources)).bytes();
    });
  }
  /// Bytes of workspace for decoding so many chunks at a time.
  template <Executor Exec>
  static std::int64_t decode_bytes(Exec const& exec, layout_type const& layout, std::int64_t streams) {
    return most_of(layout, [&](weight_stream_spec const& spec) {
      std::vector<target_type> const targets(static_cast<std::size_t>(streams), target_type{spec, {}, {}});
      return Codec::plan_decode(exec, view_of(targets)).bytes();
    });
  }

  /// The encoding of a chunk of a list to a slot. A stream that does not fit into the slot is not there, but the table
  /// says how long it is.
  static source_type source_of(layout_type const& layout, std::int64_t which, array_view<value_type const> list,
                               array_view<std::byte> slot, std::byte* table) {
    source_type made{layout.spec_of(which), layout.chunk_of(list, which), slot, layout.size_in(table, which)};
    made.reports_full = false;
    return made;
  }
  /// Enqueues encoding.
  template <Executor Exec>
  static void encode(Exec const& exec, layout_type const& layout, std::vector<source_type> const& sources,
                     array_view<std::byte> memory) {
    Codec::encode(sparing(exec, layout), view_of(sources),
                  workspace(Codec::plan_encode(exec, view_of(sources)), memory));
  }
  /// Enqueues the encoding of chunks until a chunk's body can be sent, and with it the tables, sealed. `encoded`: the
  /// chunks that have been encoded already. add(which, sources) adds the encodings of a chunk.
  template <Executor Exec, class Add>
  static void encode_until(Exec const& exec, layout_type const& layout, std::int64_t which, std::int64_t& encoded,
                           array_view<std::byte> memory, matrix_view<std::int64_t> const& tables, Add const& add) {
    std::int64_t const needed = which == layout.table_chunk ? layout.chunks : which + 1;
    while (encoded < needed) {
      std::vector<source_type> sources;
      std::int64_t const end = encoded + layout.group_from(encoded);
      for (; encoded < end; ++encoded) {
        add(encoded, sources);
      }
      encode(exec, layout, sources, memory);
    }
    if (which == layout.table_chunk) {
      seal_tables const seal{tables};
      exec.run(seal, seal.groups());
    }
  }
  /// Enqueues the decoding of chunks.
  template <Executor Exec>
  static void decode(Exec const& exec, layout_type const& layout, std::vector<target_type> const& targets,
                     array_view<std::byte> memory) {
    Codec::decode(sparing(exec, layout), view_of(targets),
                  workspace(Codec::plan_decode(exec, view_of(targets)), memory));
  }

 private:
  template <class Element>
  static array_view<Element const> view_of(std::vector<Element> const& list) {
    return {list.data(), std::ssize(list)};
  }
  /// The most bytes of the longest and the last chunk, which may be of another coder.
  template <class BytesOf>
  static std::int64_t most_of(layout_type const& layout, BytesOf const& bytes_of_spec) {
    return layout.chunks == 0
               ? 0
               : max(bytes_of_spec(layout.spec_of(layout.longest())), bytes_of_spec(layout.spec_of(layout.chunks - 1)));
  }
  /// The executor, leaving multiprocessors to the wire.
  template <Executor Exec>
  static Exec sparing(Exec const& exec, layout_type const& layout) {
    Exec made = exec;
    if constexpr (requires { made.options.spared_multiprocessors; }) {
      made.options.spared_multiprocessors = max(made.options.spared_multiprocessors, layout.spared_multiprocessors);
    }
    return made;
  }
};

/// Throws for lists that are not contiguous or, unless nothing runs, have no memory.
template <class T>
void check_list(char const* function, char const* what, array_view<T> const& list, bool is_dry) {
  check<shape_error>(list.is_contiguous(), function, ": the ", what, " has a stride of ", list.stride(0),
                     " but must have a stride of 1");
  check<shape_error>(list.size() >= 0, function, ": the ", what, " has ", list.size(), " elements");
  check<value_error>(list.data != nullptr || list.size() == 0 || is_dry, function, ": the ", what,
                     " has no memory but ", list.size(), " elements");
}

/// Throws for lists that cannot be a rank's part and that of all ranks.
inline void check_parts_of_ranks(char const* function, char const* what, std::int64_t part, std::int64_t whole,
                                 std::int64_t ranks) {
  std::int64_t const needed = checked_multiply(function, part, ranks);
  check<shape_error>(whole == needed, function, ": the ", what, " has ", part, " elements for each of ", ranks,
                     " ranks, which is ", needed, ", but the list for all has ", whole);
}

/// What every compressed collective has of its codec.
template <class Codec>
struct compressed_collective {
  static_assert(Codec::is_lossless,
                "tessera: ranks exchange weights bit for bit: take a codec that keeps all bits of "
                "mantissas, such as neuzip");

 protected:
  using layout_type = message_layout<Codec>;
  using chunks = chunk_calls<Codec>;
  using value_type = typename Codec::value_type;

  /// What is sent where the communicator alone sends a list.
  static compressed_traffic plain_traffic(layout_type const& layout) {
    std::int64_t const bytes = layout.count * layout_type::weight_bytes;
    return {bytes, bytes, bytes};
  }
  /// Throws shape_error on all ranks where their lists have different sizes, if that costs no wait for a stream.
  template <Executor Exec, class Ranks>
  static void compare_counts(char const* function, Exec const& exec, Ranks& ranks, std::int64_t count) {
    if constexpr (requires { typename std::bool_constant<Exec::stream == nullptr>; }) {
      if (!options_of(exec).is_dry && ranks.size() > 1) {
        std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks.size()));
        ranks.all_gather(exec, array_view<std::int64_t const>(&count, 1),
                         array_view<std::int64_t>(counts.data(), std::ssize(counts)));
        for (std::size_t rank = 1; rank < counts.size(); ++rank) {
          check<shape_error>(counts[rank] == counts[0], function, ": rank 0 gives ", counts[0], " weights but rank ",
                             static_cast<std::int64_t>(rank), " gives ", counts[rank]);
        }
      }
    }
  }
  static void check_ranks(char const* function, std::int64_t ranks) {
    check<value_error>(ranks >= 1, function, ": there are ", ranks, " ranks but must be 1 or more");
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
