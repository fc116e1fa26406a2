// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Objects that Python refers to by numbers, since operators of PyTorch's stable interface take no objects.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include <tessera/core/check.hpp>

namespace tessera_torch {

/// The objects of a type. Numbers begin at 1, and none is given twice. May be called from any thread.
template <class T>
class handles {
 public:
  /// `what`: how errors call such an object.
  explicit handles(char const* what) : what_(what) {}

  std::int64_t add(std::shared_ptr<T> object) {
    std::lock_guard const lock(mutex_);
    objects_.emplace(++last_, std::move(object));
    return last_;
  }
  [[nodiscard]] std::shared_ptr<T> get(std::int64_t handle) const {
    std::lock_guard const lock(mutex_);
    auto const found = objects_.find(handle);
    tessera::check<tessera::value_error>(found != objects_.end(), what_, ": there is no object ", handle, " among the ",
                                         objects_.size(), " that were made and not freed");
    return found->second;
  }
  void free(std::int64_t handle) {
    std::shared_ptr<T> object = get(handle);  // whose destructor runs without the lock
    std::lock_guard const lock(mutex_);
    objects_.erase(handle);
  }

 private:
  char const* what_;
  mutable std::mutex mutex_;
  std::map<std::int64_t, std::shared_ptr<T>> objects_;
  std::int64_t last_ = 0;
};

}  // namespace tessera_torch
