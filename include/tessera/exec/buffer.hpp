// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `buffer<T>`: elements in an executor's memory, which is freed when the buffer is destroyed. A buffer can be moved,
/// not copied, converts to `array_view<T>`, and starts with unspecified contents.
///
///     buffer<float> losses(exec, tokens);
///     exec.run(program{.losses = losses}, tokens);
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include <tessera/concepts/executor.hpp>
#include <tessera/exec/memory.hpp>
#include <tessera/view/array_view.hpp>

namespace tessera {
inline namespace v0 {

template <class T>
class buffer {
  static_assert(std::is_trivially_copyable_v<T>, "tessera: a buffer holds trivially copyable elements");

 public:
  /// The type of its elements.
  using element_type = T;
  /// The type of its elements.
  using value_type = T;
  /// The alignment of the first element: enough for every vector load and for TMA.
  static constexpr std::size_t alignment = alignof(T) > 256 ? alignof(T) : 256;

  buffer() = default;
  /// Takes `size` elements from `memory`; they go back on the same stream.
  explicit buffer(std::int64_t size, memory_handle memory = {}, stream_handle stream = nullptr)
      : memory_(std::move(memory)), stream_(stream) {
    constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max() / static_cast<std::int64_t>(sizeof(T));
    check<shape_error>(size >= 0 && size <= most, "buffer: ", size, " elements of ", sizeof(T),
                       " bytes are not a size");
    if (size > 0) {
      data_ = static_cast<T*>(memory_.allocate(static_cast<std::size_t>(size) * sizeof(T), alignment, stream_));
    }
    size_ = size;
  }
  /// Takes `size` elements from the executor's memory, on its stream.
  template <Executor Exec>
  requires requires(Exec const& exec) {
    { exec.memory() } -> std::convertible_to<memory_handle>;
  }
  buffer(Exec const& exec, std::int64_t size) : buffer(size, exec.memory(), exec.stream) {}

  /// Takes the memory over; the other buffer is empty afterwards.
  buffer(buffer&& other) noexcept
      : memory_(other.memory_),
        stream_(other.stream_),
        data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)) {}
  /// Gives its own memory back and takes the other's over.
  buffer& operator=(buffer&& other) noexcept {
    buffer taken(std::move(other));
    std::swap(memory_, taken.memory_);
    std::swap(stream_, taken.stream_);
    std::swap(data_, taken.data_);
    std::swap(size_, taken.size_);
    return *this;
  }
  ~buffer() {
    if (data_ != nullptr) {
      memory_.deallocate(data_, bytes(), alignment, stream_);
    }
  }

  /// The first element; null if there are none.
  [[nodiscard]] T* data() { return data_; }
  /// The first element; null if there are none.
  [[nodiscard]] T const* data() const { return data_; }
  /// How many elements there are.
  [[nodiscard]] std::int64_t size() const { return size_; }
  /// Whether there are no elements.
  [[nodiscard]] bool is_empty() const { return size_ == 0; }
  /// The size of the elements in bytes.
  [[nodiscard]] std::size_t bytes() const { return static_cast<std::size_t>(size_) * sizeof(T); }
  /// The resource that the memory comes from and goes back to.
  [[nodiscard]] memory_handle const& memory() const { return memory_; }

  /// The elements, which may be changed; valid as long as the buffer is.
  [[nodiscard]] array_view<T> view() { return {data_, size_}; }
  /// The elements, to be read; valid as long as the buffer is.
  [[nodiscard]] array_view<T const> view() const { return {data_, size_}; }

  // Members for buffers that the host can read.
  /// The first element, for loops on the host.
  [[nodiscard]] T* begin() { return data_; }
  /// The address after the last element.
  [[nodiscard]] T* end() { return data_ + size_; }
  /// The first element, for loops on the host.
  [[nodiscard]] T const* begin() const { return data_; }
  /// The address after the last element.
  [[nodiscard]] T const* end() const { return data_ + size_; }
  /// The element `i`, unchecked; for the host only if the memory is the host's.
  [[nodiscard]] T& operator[](std::int64_t i) { return data_[i]; }
  /// The element `i`, unchecked; for the host only if the memory is the host's.
  [[nodiscard]] T const& operator[](std::int64_t i) const { return data_[i]; }

 private:
  memory_handle memory_{};
  stream_handle stream_ = nullptr;
  T* data_ = nullptr;
  std::int64_t size_ = 0;
};

}  // namespace v0
}  // namespace tessera
