// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Errors at the border: a function of C runs in guarded(), which turns exceptions into a status and a text.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>

#include <tessera/core/check.hpp>
#include <tessera/core/error.hpp>

#include "tessera_c.h"

namespace tessera_c {

/// What this interface refuses itself.
class refusal : public std::runtime_error {
 public:
  refusal(tessera_status status, std::string const& text) : std::runtime_error(text), status_(status) {}
  [[nodiscard]] tessera_status status() const noexcept { return status_; }

 private:
  tessera_status status_;
};

/// A part of a message: the numbers of C's enumerations are numbers.
template <class Part>
decltype(auto) part_of_text(Part const& part) {
  if constexpr (std::is_enum_v<Part>) {
    return static_cast<int>(part);
  } else {
    return (part);
  }
}

/// Throws a refusal with the joined parts unless `holds`.
template <class... Parts>
void require(bool holds, tessera_status status, Parts const&... parts) {
  if (!holds) {
    throw refusal(status, tessera::join(part_of_text(parts)...));
  }
}

/// Throws where a pointer is null.
inline void require_given(void const* pointer, char const* name) {
  require(pointer != nullptr, TESSERA_NULL_POINTER, name, " is null but must be given");
}

/// Keeps the text of an error for tessera_last_error(), and returns the status.
tessera_status keep_error(tessera_status status, char const* function, char const* text) noexcept;

/// Runs a call; `function` is the one of C.
template <class Call>
tessera_status guarded(char const* function, Call const& call) noexcept {
  try {
    call();
    return TESSERA_SUCCESS;
  } catch (refusal const& e) {
    return keep_error(e.status(), function, e.what());
  } catch (tessera::shape_error const& e) {
    return keep_error(TESSERA_SHAPE_ERROR, function, e.what());
  } catch (tessera::value_error const& e) {
    return keep_error(TESSERA_VALUE_ERROR, function, e.what());
  } catch (tessera::corrupt_data const& e) {
    return keep_error(TESSERA_CORRUPT_DATA, function, e.what());
  } catch (tessera::device_error const& e) {
    return keep_error(TESSERA_DEVICE_ERROR, function, e.what());
  } catch (std::bad_alloc const&) {
    return keep_error(TESSERA_OUT_OF_MEMORY, function, "malloc has no memory left");
  } catch (std::exception const& e) {
    return keep_error(TESSERA_OTHER_ERROR, function, e.what());
  } catch (...) {
    return keep_error(TESSERA_OTHER_ERROR, function, "an error of no known type");
  }
}

/// A structure of the caller's, as large as its `size` says. Members that this library does not know must be zeros.
template <class Structure>
Structure known_part(Structure const* given, char const* name) {
  require_given(given, name);
  std::size_t const size = given->size;
  require(size >= sizeof(Structure), TESSERA_VALUE_ERROR, name, " says that it has ", size,
          " bytes but must have at least ", sizeof(Structure), "; TESSERA_..._INIT sets the size");
  auto const* const bytes = reinterpret_cast<unsigned char const*>(given);
  constexpr std::size_t most = 4096;
  require(size <= most, TESSERA_VALUE_ERROR, name, " says that it has ", size, " bytes but at most ", most, " can be");
  require(std::all_of(bytes + sizeof(Structure), bytes + size, [](unsigned char byte) { return byte == 0; }),
          TESSERA_VALUE_ERROR, name, " has ", size, " bytes but this library knows ", sizeof(Structure),
          " of them, and the others are not zeros");
  Structure known;
  std::memcpy(&known, given, sizeof(known));
  return known;
}

/// The same, or defaults where the caller gives null.
template <class Structure>
Structure known_part(Structure const* given, char const* name, Structure const& defaults) {
  return given == nullptr ? defaults : known_part(given, name);
}

}  // namespace tessera_c
