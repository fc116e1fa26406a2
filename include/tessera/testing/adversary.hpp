// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `testing::adversary`: an executor that runs programs in the most adverse ways that their rules allow, for tests of
/// programs.
///
///     testing::adversary exec{.seed = 7};
///     exec.run(program, tiles);         // the same results as on tessera::cpu, or the program is wrong
///
/// Tiles run in any order, and so do lanes, in another order in each loop; scratch and `per_lane` variables start with
/// garbage. What one lane writes to scratch, the others see only after `group.sync()`. It throws `testing::broken_rule`
/// when lanes write different values to one address between two syncs, when `variable[lane]` is not the variable of the
/// lane that the loop visits, when a collective or a sync stands inside of a loop over lanes, and when such a loop is
/// nested or left early.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <type_traits>
#include <vector>

#include <tessera/concepts/program.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/memory.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/tile/serial/group.hpp>

#if defined(__CUDACC__)
#pragma nv_diagnostic push
#pragma nv_diag_suppress 20011, 20014  // host only, called from code for both sides
#endif

namespace tessera {
inline namespace v0 {
namespace testing {

/// Thrown where a program did what threads of a GPU must not do.
class broken_rule : public error {
 public:
  using error::error;
};

namespace detail {

/// A small generator whose sequence is the same everywhere (xorshift64*).
class shuffler {
 public:
  explicit shuffler(std::uint64_t seed) : state_(seed * 2 + 1) {}
  std::uint64_t next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545f4914f6cdd1dull;
  }
  template <class T>
  void shuffle(std::vector<T>& items) {
    for (std::size_t i = items.size(); i > 1; --i) {
      std::size_t const j = static_cast<std::size_t>(next() % i);
      T const moved = items[i - 1];
      items[i - 1] = items[j];
      items[j] = moved;
    }
  }

 private:
  std::uint64_t state_;
};

/// Memory of which each lane sees its own version until the next sync.
class isolated_scratch {
 public:
  isolated_scratch(std::byte* memory, std::size_t bytes, int lanes)
      : memory_(memory), bytes_(bytes), written_(bytes), changes_(static_cast<std::size_t>(lanes)) {}

  /// Publishes what was written outside of loops over lanes, which counts as written by all lanes.
  void publish_uniform_writes() { common_.assign(memory_, memory_ + bytes_); }

  void enter(int lane) {
    for (change const& c : changes_[static_cast<std::size_t>(lane)]) {
      memory_[c.at] = c.value;
    }
  }
  void leave(int lane) {
    std::vector<change>& mine = changes_[static_cast<std::size_t>(lane)];
    mine.clear();
    for (std::size_t first = 0; first < bytes_; first += block) {
      take_back<block>(first, bytes_ < first + block ? bytes_ : first + block, mine);
    }
  }

  void sync() {
    publish_uniform_writes();
    for (std::size_t lane = 0; lane < changes_.size(); ++lane) {
      for (change const& c : changes_[lane]) {
        check<broken_rule>(!written_[c.at] || memory_[c.at] == c.value, "adversary: lane ", lane,
                           " and another wrote different values to byte ", c.at,
                           " of the scratch without a sync between");
        written_[c.at] = true;
        memory_[c.at] = c.value;
      }
    }
    for (std::vector<change>& mine : changes_) {
      for (change const& c : mine) {
        written_[c.at] = false;
      }
      mine.clear();
    }
  }

  /// The address in the common version that belongs to an address in the scratch, or null: for atomic operations.
  [[nodiscard]] std::byte* common(void const* address) {
    auto const at =
        static_cast<std::size_t>(reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(memory_));
    return at < bytes_ && !common_.empty() ? common_.data() + at : nullptr;
  }

 private:
  // Most blocks of the scratch have no change, and most lines of the others: one comparison finds out about all of it.
  static constexpr std::size_t block = 4096;
  static constexpr std::size_t line = 256;
  struct change {
    std::size_t at;
    std::byte value;
  };

  /// Adds the bytes from `first` to `end` - 1 that are not the common version's, and makes them that again.
  template <std::size_t Step>
  void take_back(std::size_t first, std::size_t end, std::vector<change>& mine) {
    std::byte* const found = memory_;
    std::byte const* const expected = common_.data();
    if (std::memcmp(found + first, expected + first, end - first) == 0) {
      return;
    }
    if constexpr (Step == block) {
      for (std::size_t at = first; at < end; at += line) {
        take_back<line>(at, end < at + line ? end : at + line, mine);
      }
    } else {
      for (std::size_t at = first; at < end;) {
        if (end - at >= sizeof(std::uint64_t)) {
          std::uint64_t here = 0;
          std::uint64_t there = 0;
          std::memcpy(&here, found + at, sizeof here);
          std::memcpy(&there, expected + at, sizeof there);
          if (here == there) {
            at += sizeof here;
            continue;
          }
        }
        if (found[at] != expected[at]) {
          mine.push_back({at, found[at]});
          found[at] = expected[at];
        }
        ++at;
      }
    }
  }

  std::byte* memory_;
  std::size_t bytes_;
  std::vector<std::byte> common_;
  std::vector<bool> written_;
  std::vector<std::vector<change>> changes_;
};

/// Knows which lane runs, and what it may see.
class lane_tracker {
 public:
  static constexpr int no_lane = -1;

  lane_tracker(int lanes, std::byte* scratch, std::size_t bytes, shuffler& random)
      : scratch_(scratch, bytes, lanes), random_(random), order_(static_cast<std::size_t>(lanes)), before_(active()) {
    std::iota(order_.begin(), order_.end(), 0);
    active() = this;
  }
  lane_tracker(lane_tracker const&) = delete;
  lane_tracker& operator=(lane_tracker const&) = delete;
  ~lane_tracker() { active() = before_; }

  /// The tracker of the tile that this thread runs; null outside of programs.
  static lane_tracker*& active() {
    thread_local lane_tracker* tracker = nullptr;
    return tracker;
  }

  void begin_loop() {
    require_no_loop("a loop over lanes");
    in_loop_ = true;
    random_.shuffle(order_);
    scratch_.publish_uniform_writes();
  }
  int enter(int step) {
    lane_ = order_[static_cast<std::size_t>(step)];
    scratch_.enter(lane_);
    return lane_;
  }
  void leave() {
    scratch_.leave(lane_);
    lane_ = no_lane;
  }
  void end_loop() { in_loop_ = false; }
  void sync() {
    require_no_loop("group.sync()");
    scratch_.sync();
  }
  void finish() {
    require_no_loop("the end of the program");
    scratch_.sync();
  }
  void require_no_loop(char const* what) const {
    check<broken_rule>(!in_loop_, "adversary: ", what,
                       " stands inside of a loop over lanes, or such a loop was left early");
  }
  void require_lane(int lane) const {
    check<broken_rule>(lane == lane_, "adversary: the variable of lane ", lane, " is used ",
                       lane_ == no_lane ? join("outside of a loop over lanes") : join("by lane ", lane_));
  }
  template <class T>
  T atomic_add(T& target, T value) {
    T const before = target;
    target = static_cast<T>(target + value);
    if (std::byte* const common = in_loop_ ? scratch_.common(&target) : nullptr) {
      std::memcpy(common, &target, sizeof(T));  // all lanes see it, and it counts as no lane's own write
    }
    return before;
  }

 private:
  isolated_scratch scratch_;
  shuffler& random_;
  std::vector<int> order_;
  lane_tracker* before_;
  int lane_ = no_lane;
  bool in_loop_ = false;
};

struct shuffled_lane_iterator {
  lane_tracker* tracker;
  int step;
  int lanes;

  TESSERA_FN int operator*() const { return tracker->enter(step); }
  TESSERA_FN shuffled_lane_iterator& operator++() {
    tracker->leave();
    ++step;
    return *this;
  }
  TESSERA_FN bool operator!=(shuffled_lane_iterator const&) const {
    if (step == lanes) {
      tracker->end_loop();
    }
    return step != lanes;
  }
};

}  // namespace detail

/// A Group whose loops visit lanes in a random order, and which checks what lanes may read.
template <int Lanes>
struct adversary_group {
  static constexpr int size = Lanes;
  static constexpr tessera::architecture architecture = tessera::architecture::host;

  detail::lane_tracker* tracker;  ///< the tracker of the program that runs

  [[nodiscard]] TESSERA_FN detail::shuffled_lane_iterator begin() const {
    tracker->begin_loop();
    return {tracker, 0, Lanes};
  }
  [[nodiscard]] TESSERA_FN detail::shuffled_lane_iterator end() const { return {tracker, Lanes, Lanes}; }
  TESSERA_FN void sync() const { tracker->sync(); }
  template <class T>
  TESSERA_FN T atomic_add(T& target, std::type_identity_t<T> value) const {
    return tracker->atomic_add(target, value);
  }
  TESSERA_FN void report(status_word* word, status_code code, std::int64_t position, status_detail detail = {}) const {
    tessera::detail::report_on_host(word, code, position, detail);
  }

  /// The same values in the serial group, whose collectives are the reference.
  template <class T>
  TESSERA_FN per_lane<T, serial_group<Lanes>> collect(per_lane<T, adversary_group> const& values) const {
    tracker->require_no_loop("a collective");
    per_lane<T, serial_group<Lanes>> collected{};
    for (int lane = 0; lane < Lanes; ++lane) {
      collected.values[lane] = values.values[lane];
    }
    return collected;
  }
};

template <int Lanes, class T, class Combine>
[[nodiscard]] TESSERA_FN T reduce(adversary_group<Lanes> const& group,
                                  per_lane<T, adversary_group<Lanes>> const& values, Combine combine) {
  return reduce(serial_group<Lanes>{}, group.collect(values), combine);
}
template <int Lanes, class T>
[[nodiscard]] TESSERA_FN T sum(adversary_group<Lanes> const& group, per_lane<T, adversary_group<Lanes>> const& values) {
  return sum(serial_group<Lanes>{}, group.collect(values));
}
template <int Lanes, class T>
[[nodiscard]] TESSERA_FN T maximum(adversary_group<Lanes> const& group,
                                   per_lane<T, adversary_group<Lanes>> const& values) {
  return maximum(serial_group<Lanes>{}, group.collect(values));
}
template <int Lanes, class T>
[[nodiscard]] TESSERA_FN T minimum(adversary_group<Lanes> const& group,
                                   per_lane<T, adversary_group<Lanes>> const& values) {
  return minimum(serial_group<Lanes>{}, group.collect(values));
}
template <int Lanes, class T>
TESSERA_FN T exclusive_sum(adversary_group<Lanes> const& group, per_lane<T, adversary_group<Lanes>>& values) {
  auto summed = group.collect(values);
  T const total = exclusive_sum(serial_group<Lanes>{}, summed);
  for (int lane = 0; lane < Lanes; ++lane) {
    values.values[lane] = summed.values[lane];
  }
  return total;
}
template <int Lanes, class T>
[[nodiscard]] TESSERA_FN T broadcast(adversary_group<Lanes> const& group,
                                     per_lane<T, adversary_group<Lanes>> const& values, int source) {
  return broadcast(serial_group<Lanes>{}, group.collect(values), source);
}
template <int Lanes>
[[nodiscard]] TESSERA_FN bool any(adversary_group<Lanes> const& group,
                                  per_lane<bool, adversary_group<Lanes>> const& votes) {
  return any(serial_group<Lanes>{}, group.collect(votes));
}
template <int Lanes>
[[nodiscard]] TESSERA_FN bool all(adversary_group<Lanes> const& group,
                                  per_lane<bool, adversary_group<Lanes>> const& votes) {
  return all(serial_group<Lanes>{}, group.collect(votes));
}
template <int Lanes>
[[nodiscard]] TESSERA_FN std::uint32_t ballot(adversary_group<Lanes> const& group,
                                              per_lane<bool, adversary_group<Lanes>> const& votes) {
  return ballot(serial_group<Lanes>{}, group.collect(votes));
}
template <int Lanes>
[[nodiscard]] TESSERA_FN int count_below(adversary_group<Lanes> const&, std::uint32_t mask, int lane) {
  return tessera::count_below(mask, lane);
}

namespace detail {

/// What the adversary needs to know of a program. One type for all programs, so that a program costs one function.
struct adverse_program {
  void const* program;
  std::size_t scratch_bytes;
  std::size_t scratch_alignment;
  int lanes;
  void (*run_tile)(void const* program, lane_tracker& tracker, std::int64_t which, void* scratch);
};

template <class P>
void run_adverse_tile(void const* program, lane_tracker& tracker, std::int64_t which, void* scratch) {
  (*static_cast<P const*>(program))(adversary_group<P::lanes>{&tracker}, which,
                                    *static_cast<scratch_for<P, adversary_group<P::lanes>>*>(scratch));
}

}  // namespace detail

struct adversary {
  /// The seed of the order; another seed gives another order.
  std::uint64_t seed = 1;
  memory_handle memory = {};     ///< for workspaces and buffers; empty: the host's memory
  cpu underlying{.threads = 1};  ///< the executor that copies and waits

  static constexpr stream_handle stream = nullptr;  ///< no stream: work is done when run() returns

  /// Runs all tiles now, in a random order, with scratch full of garbage. Throws broken_rule.
  template <class P>
  requires ProgramOn<P, typename tessera::detail::group_for<P, adversary_group>::type>
  void run(P const& program, std::int64_t count) const {
    using scratch_type = scratch_for<P, adversary_group<P::lanes>>;
    static_assert(std::is_trivially_copyable_v<scratch_type>, "tessera: scratch_type is trivial, it is moved as bytes");
    run_tiles({&program, sizeof(scratch_type), alignof(scratch_type), P::lanes, &detail::run_adverse_tile<P>}, count);
  }

  /// Throws what groups reported, as cpu does.
  void wait() const { underlying.wait(); }
  /// The word that programs report failures to.
  [[nodiscard]] status_word* status() const { return underlying.status(); }
  /// The word of a call; wait() names the call then.
  [[nodiscard]] status_word* status(status_call const& call) const { return underlying.status(call); }
  /// Copies at once, as cpu does.
  template <class Source, class Target>
  void copy(Source const& source, Target&& target) const {
    underlying.copy(source, target);
  }
  /// Writes zeros at once, as cpu does.
  template <class Target>
  void clear(Target&& target) const {
    underlying.clear(target);
  }

 private:
  void run_tiles(detail::adverse_program const& program, std::int64_t count) const {
    check<shape_error>(count >= 0, "adversary.run: the number of tiles is ", count, " but must not be negative");
    detail::shuffler random(seed);
    std::vector<std::int64_t> order(static_cast<std::size_t>(count));
    std::iota(order.begin(), order.end(), std::int64_t{0});
    random.shuffle(order);
    tessera::detail::scratch_memory const scratch(program.scratch_bytes, program.scratch_alignment);
    for (std::int64_t which : order) {
      // As values these are not a number, a negative or a huge integer, and a true that is not 1.
      int const poisons[]{0xff, 0xa5, 0x7f};
      std::memset(scratch.get(), poisons[random.next() % 3], program.scratch_bytes);
      detail::lane_tracker tracker(program.lanes, static_cast<std::byte*>(scratch.get()), program.scratch_bytes,
                                   random);
      program.run_tile(program.program, tracker, which, scratch.get());
      tracker.finish();
    }
  }
};

}  // namespace testing

/// A per_lane variable that checks each use and starts with garbage.
template <class T, int Lanes>
struct per_lane<T, testing::adversary_group<Lanes>> {
  using value_type = T;

  T values[Lanes];  ///< the lanes' values, garbage at first

  TESSERA_FN per_lane() {
    if constexpr (std::is_same_v<T, bool>) {
      for (int lane = 0; lane < Lanes; ++lane) {
        values[lane] = lane % 3 == 1;
      }
    } else {
      std::memset(static_cast<void*>(values), 0xa5, sizeof(values));
    }
  }
  /// A lane's value; throws for any lane but the one that runs.
  TESSERA_FN T& operator[](int lane) {
    require(lane);
    return values[lane];
  }
  /// A lane's value; throws for any lane but the one that runs.
  TESSERA_FN T const& operator[](int lane) const {
    require(lane);
    return values[lane];
  }

 private:
  static TESSERA_FN void require(int lane) {
    if (auto const* const tracker = testing::detail::lane_tracker::active()) {
      tracker->require_lane(lane);
    }
  }
};

}  // namespace v0
}  // namespace tessera

#if defined(__CUDACC__)
#pragma nv_diagnostic pop
#endif
