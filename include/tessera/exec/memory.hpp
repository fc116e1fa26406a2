// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Memory resources: where executors, buffers and stores get memory from. A memory resource is any type with
///
///     void* allocate(std::size_t bytes, std::size_t alignment, stream_handle stream);   // throws when it cannot
///     void deallocate(void* pointer, std::size_t bytes, std::size_t alignment, stream_handle stream) noexcept;
///
/// This header has the resources that need no device: `host_memory`, `arena` (a block allocated piece by piece),
/// `tracking_memory` (counts what is allocated through it). `exec/cuda_memory.cuh` has pinned and device memory.
/// `memory_handle` holds any of them.
///
///     tracking_memory counted{memory_handle()};
///     tessera::cpu exec{.memory = counted};
///     ...
///     std::printf("at most %zu bytes at a time\n", counted.peak_bytes());
#pragma once

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include <tessera/core/because.hpp>
#include <tessera/core/check.hpp>

namespace tessera {
inline namespace v0 {

/// A `cudaStream_t` for code that does not include CUDA; null if there is no stream. Memory that is freed "on" a stream
/// is used again only by later work on that stream.
using stream_handle = void*;

/// A source of memory, which takes memory back in the order of a stream.
// clang-format off
template <class R>
concept MemoryResource =
    (requires(R& r, std::size_t bytes, stream_handle stream) {
       { r.allocate(bytes, bytes, stream) } -> std::same_as<void*>;
     }
        || because<"a MemoryResource has void* allocate(size_t bytes, size_t alignment, stream_handle stream)">) &&
    (requires(R& r, void* pointer, std::size_t bytes, stream_handle stream) {
       r.deallocate(pointer, bytes, bytes, stream);
     }
        || because<"a MemoryResource has deallocate(void*, size_t bytes, size_t alignment, stream_handle stream)">);
// clang-format on

/// The memory of `operator new`.
struct host_memory {
  static void* allocate(std::size_t bytes, std::size_t alignment, stream_handle = nullptr) {
    return ::operator new (bytes, std::align_val_t{alignment});
  }
  static void deallocate(void* pointer, std::size_t, std::size_t alignment, stream_handle = nullptr) noexcept {
    ::operator delete (pointer, std::align_val_t{alignment});
  }
};

/// Refers to any memory resource, by reference (the caller keeps it alive) or shared. A default handle means host
/// memory.
class memory_handle {
 public:
  memory_handle() : memory_handle(host()) {}
  /// Refers to a resource, which must live as long as the handle does.
  template <MemoryResource Resource>
  requires(!std::derived_from<Resource, memory_handle>) memory_handle(Resource& resource)
      : object_(std::addressof(resource)), calls_(&calls_of<Resource>) {}
  /// Shares a resource.
  template <MemoryResource Resource>
  memory_handle(std::shared_ptr<Resource> resource)
      : object_(resource.get()), calls_(&calls_of<Resource>), owner_(std::move(resource)) {}

  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t alignment, stream_handle stream = nullptr) const {
    return calls_->allocate(object_, bytes, alignment, stream);
  }
  void deallocate(void* pointer, std::size_t bytes, std::size_t alignment,
                  stream_handle stream = nullptr) const noexcept {
    calls_->deallocate(object_, pointer, bytes, alignment, stream);
  }

  /// Lets the member `memory` of an executor be set by name, `cpu{.memory = pool}`, and be read by call,
  /// `exec.memory()`.
  [[nodiscard]] memory_handle const& operator()() const { return *this; }

 private:
  struct calls {
    void* (*allocate)(void*, std::size_t, std::size_t, stream_handle);
    void (*deallocate)(void*, void*, std::size_t, std::size_t, stream_handle) noexcept;
  };
  template <class Resource>
  static void* allocate_from(void* object, std::size_t bytes, std::size_t alignment, stream_handle stream) {
    return static_cast<Resource*>(object)->allocate(bytes, alignment, stream);
  }
  template <class Resource>
  static void deallocate_to(void* object, void* pointer, std::size_t bytes, std::size_t alignment,
                            stream_handle stream) noexcept {
    static_cast<Resource*>(object)->deallocate(pointer, bytes, alignment, stream);
  }
  static host_memory& host() {
    static host_memory resource;  // has no state
    return resource;
  }
  template <class Resource>
  static constexpr calls calls_of{&allocate_from<Resource>, &deallocate_to<Resource>};

  void* object_;
  calls const* calls_;
  std::shared_ptr<void> owner_;
};

/// One block, allocated from front to back. Pieces that are given back in reverse order are used again at once, all
/// others when the last piece is back. The arena never reads or writes the block, so it may lie on a device (then each
/// arena is for one stream).
class arena {
 public:
  /// An arena in a block of the caller's, who keeps it alive.
  arena(void* block, std::size_t bytes) : block_(static_cast<std::byte*>(block)), bytes_(bytes) {
    check<value_error>(block != nullptr || bytes == 0, "arena: the block has no memory but ", bytes, " bytes");
  }
  /// An arena with its own block.
  arena(memory_handle source, std::size_t bytes, stream_handle stream = nullptr)
      : block_(static_cast<std::byte*>(source.allocate(bytes, block_alignment, stream))),
        bytes_(bytes),
        source_(std::make_unique<memory_handle>(std::move(source))),
        stream_(stream) {}
  arena(arena const&) = delete;
  arena& operator=(arena const&) = delete;
  ~arena() {
    if (source_) {
      source_->deallocate(block_, bytes_, block_alignment, stream_);
    }
  }

  void* allocate(std::size_t bytes, std::size_t alignment, stream_handle = nullptr) {
    std::lock_guard const lock(mutex_);
    auto const address = reinterpret_cast<std::uintptr_t>(block_) + used_;
    std::size_t const padding = (alignment - address % alignment) % alignment;
    std::size_t const left = bytes_ - used_;
    check<shape_error>(padding <= left && bytes <= left - padding, "arena.allocate: ", bytes,
                       " bytes are asked for but ", left, " of ", bytes_, " are left");
    std::byte* const piece = block_ + used_ + padding;
    used_ += padding + bytes;
    peak_ = used_ > peak_ ? used_ : peak_;
    ++pieces_;
    return piece;
  }
  void deallocate(void* pointer, std::size_t bytes, std::size_t, stream_handle = nullptr) noexcept {
    std::lock_guard const lock(mutex_);
    auto const first = static_cast<std::size_t>(static_cast<std::byte*>(pointer) - block_);
    if (first + bytes == used_) {
      used_ = first;
    }
    if (--pieces_ == 0) {
      used_ = 0;
    }
  }

  /// Bytes of the block.
  [[nodiscard]] std::size_t capacity() const { return bytes_; }
  /// The most that was in use at a time, including gaps for alignment.
  [[nodiscard]] std::size_t peak_bytes() const {
    std::lock_guard const lock(mutex_);
    return peak_;
  }

 private:
  static constexpr std::size_t block_alignment = 256;

  std::byte* block_;
  std::size_t bytes_;
  std::unique_ptr<memory_handle> source_;
  stream_handle stream_ = nullptr;
  std::size_t used_ = 0;
  std::size_t peak_ = 0;
  std::size_t pieces_ = 0;
  mutable std::mutex mutex_;
};

/// Passes all requests on and counts them, exactly, from any number of threads.
class tracking_memory {
 public:
  /// Passes requests on to `source` and counts them.
  explicit tracking_memory(memory_handle source) : source_(std::move(source)) {}
  tracking_memory(tracking_memory const&) = delete;
  tracking_memory& operator=(tracking_memory const&) = delete;

  void* allocate(std::size_t bytes, std::size_t alignment, stream_handle stream = nullptr) {
    void* const pointer = source_.allocate(bytes, alignment, stream);
    std::size_t const now = current_.fetch_add(bytes) + bytes;
    std::size_t peak = peak_.load();
    while (now > peak && !peak_.compare_exchange_weak(peak, now)) {
    }
    allocations_.fetch_add(1);
    return pointer;
  }
  void deallocate(void* pointer, std::size_t bytes, std::size_t alignment, stream_handle stream = nullptr) noexcept {
    current_.fetch_sub(bytes);
    source_.deallocate(pointer, bytes, alignment, stream);
  }

  /// Bytes that are allocated and not given back yet.
  [[nodiscard]] std::size_t current_bytes() const { return current_.load(); }
  /// The most that current_bytes() has been.
  [[nodiscard]] std::size_t peak_bytes() const { return peak_.load(); }
  /// How often memory was asked for.
  [[nodiscard]] std::size_t allocations() const { return allocations_.load(); }
  /// Restarts the peak at the bytes that are in use.
  void reset_peak() { peak_.store(current_.load()); }

 private:
  memory_handle source_;
  std::atomic<std::size_t> current_{0};
  std::atomic<std::size_t> peak_{0};
  std::atomic<std::size_t> allocations_{0};
};

}  // namespace v0
}  // namespace tessera
