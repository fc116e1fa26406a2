// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The exceptions that tessera throws. Every message names the function and shows the values that clash:
/// `attention.forward: keys have 96 channels but queries have 128`.
///
///     try { codec.decode(exec, stream, weights); exec.wait(); }
///     catch (tessera::corrupt_data const& e) { std::cerr << e.what() << " (at " << e.position() << ")\n"; }
///     catch (tessera::error const& e) { std::cerr << e.what() << "\n"; }
#pragma once

#if !defined(__CUDACC_RTC__)
#include <cstdint>
#include <stdexcept>
#include <string>
#endif

namespace tessera {
inline namespace v0 {

#if defined(__CUDACC_RTC__)  // names for check() alone: devices throw nothing
class error {};
class shape_error : public error {};
class value_error : public error {};
class device_error : public error {};
class slower_program : public error {};
class corrupt_data : public error {};
#else
/// The base of these exceptions: one `catch` for whatever this library reports.
class error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Extents, strides or sizes that do not fit together.
class shape_error : public error {
 public:
  using error::error;
};

/// A value outside of the range that the function accepts.
class value_error : public error {
 public:
  using error::error;
};

/// A call of the CUDA runtime failed, or the device cannot do what was asked.  `code()` is the `cudaError_t` as an int.
class device_error : public error {
 public:
  /// `code` is the error number of the CUDA runtime, 0 if there is none.
  explicit device_error(std::string const& message, int code = 0) : error(message), code_(code) {}
  /// The error number of the CUDA runtime, 0 if there is none.
  [[nodiscard]] int code() const noexcept { return code_; }

 private:
  int code_;
};

/// An executor that refuses_slower_programs has no fast program for a call (exec/execution_options.hpp). The message
/// says which programs it has, and why they do not take the call.
class slower_program : public error {
 public:
  using error::error;
};

/// Bytes that no encoder of this library wrote.  `position()` is where: a block or byte number, or -1 if there is none.
class corrupt_data : public error {
 public:
  /// `position` is where the data are wrong, -1 if that is not known.
  explicit corrupt_data(std::string const& message, std::int64_t position = -1) : error(message), position_(position) {}
  /// Where the data are wrong, counted in what the message names; -1 if that is not known.
  [[nodiscard]] std::int64_t position() const noexcept { return position_; }

 private:
  std::int64_t position_;
};
#endif

}  // namespace v0
}  // namespace tessera
