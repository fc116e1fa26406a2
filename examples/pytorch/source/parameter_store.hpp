// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// A store of compressed parameters that are trained, for tensors. tensors.hpp describes a Device.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include <tessera/algorithm/weights/parameter_store.hpp>
#include <tessera/neuzip.hpp>
#include <tessera/view/view.hpp>

#include "handles.hpp"
#include "tensors.hpp"

namespace tessera_torch {

/// Parameters of one type, compressed (tessera/algorithm/weights/parameter_store.hpp).
class stored_parameters {
 public:
  virtual ~stored_parameters() = default;
  /// Compresses contiguous weights, and gives their number. Waits.
  virtual std::int64_t add(std::string const& name, Tensor const& weights) = 0;
  /// Decodes a parameter. The result, of one dimension, is memory of the store, until release().
  virtual Tensor acquire(std::int64_t parameter) = 0;
  virtual void release(std::int64_t parameter) = 0;
  /// Keeps what was written to the acquired weights.
  virtual void update(std::int64_t parameter) = 0;
  /// Takes a step of gradient descent with the acquired weights, and keeps them.
  virtual void sgd_update(std::int64_t parameter, Tensor const& gradient, double rate) = 0;
  /// Begins to decode a parameter that will be acquired soon. False if there is no room.
  virtual bool prefetch(std::int64_t parameter) = 0;
  /// Gives parameters that have outgrown their room more of it, and says how many there were. Waits.
  virtual std::int64_t resolve() = 0;
  virtual void wait() = 0;
  /// The bytes of a parameter's room.
  [[nodiscard]] virtual std::int64_t compressed_bytes(std::int64_t parameter) const = 0;
  /// Bytes of streams, scratch, staging, overflow and workspace.
  [[nodiscard]] virtual std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t> bytes()
      const = 0;
};

/// All that Python has.
handles<stored_parameters>& parameter_stores();

template <class Device, class T>
class stored_parameters_on final : public stored_parameters {
  using executor_type = typename Device::executor_type;
  using store_type = tessera::parameter_store<tessera::neuzip_of<T>, executor_type>;

 public:
  stored_parameters_on(tessera::parameter_store_options const& options, torch::stable::Device device)
      : device_(device), exec_(Device::executor(device)), store_(exec_, options) {}

  std::int64_t add(std::string const& name, Tensor const& weights) override {
    check_stream("parameter_store.add");
    return store_.add(name, list_of<T>(weights, device_, {"parameter_store.add", "weights"})).number;
  }
  Tensor acquire(std::int64_t parameter) override {
    check_stream("parameter_store.acquire");
    auto lease = store_.acquire({parameter});
    tessera::array_view<T> const weights = lease.weights();
    std::int64_t const count = weights.size();
    std::int64_t const step = 1;
    leases_.insert_or_assign(parameter, std::move(lease));
    return count == 0 ? empty_on(device_, {0}, type_of<T>)
                      : torch::stable::from_blob(weights.data, {&count, 1}, {&step, 1}, device_, type_of<T>);
  }
  void release(std::int64_t parameter) override {
    held("parameter_store.release", parameter).release();
    leases_.erase(parameter);
  }
  void update(std::int64_t parameter) override {
    check_stream("parameter_store.update");
    store_.update({parameter}, held("parameter_store.update", parameter));
  }
  void sgd_update(std::int64_t parameter, Tensor const& gradient, double rate) override {
    constexpr char const* function = "parameter_store.sgd_update";
    check_stream(function);
    auto const& lease = held(function, parameter);
    if (gradient.scalar_type() == ScalarType::Float) {
      step<float>(parameter, lease, gradient, rate);
    } else {
      step<T>(parameter, lease, gradient, rate);
    }
  }
  bool prefetch(std::int64_t parameter) override {
    check_stream("parameter_store.prefetch");
    return store_.prefetch({parameter});
  }
  std::int64_t resolve() override { return store_.resolve(); }
  void wait() override { store_.wait(); }
  [[nodiscard]] std::int64_t compressed_bytes(std::int64_t parameter) const override {
    return store_.bytes_compressed({parameter});
  }
  [[nodiscard]] std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t> bytes()
      const override {
    tessera::parameter_store_bytes const found = store_.bytes();
    return {found.streams, found.scratch, found.staging, found.overflow, found.workspace};
  }

 private:
  using lease_type = typename store_type::lease;

  template <class Gradient>
  void step(std::int64_t parameter, lease_type const& lease, Tensor const& gradient, double rate) {
    auto const list = list_of<Gradient>(gradient, device_, {"parameter_store.sgd_update", "gradients"});
    tessera::view<Gradient const, 1> const elements(list.data, {list.size()});
    store_.sgd_update({parameter}, lease, elements, static_cast<float>(rate));
  }
  lease_type& held(char const* function, std::int64_t parameter) {
    auto const found = leases_.find(parameter);
    tessera::check<tessera::value_error>(found != leases_.end(), function, ": parameter ", parameter,
                                         " was not acquired; those that were are ", leases_.size());
    return found->second;
  }
  /// The store stays on the stream that was current when it was made.
  void check_stream(char const* function) const {
    tessera::check<tessera::value_error>(Device::executor(device_).stream == exec_.stream, function,
                                         ": the current stream is ", number_of(Device::executor(device_).stream),
                                         " but the store was made on ", number_of(exec_.stream));
  }
  static std::uintptr_t number_of(tessera::stream_handle stream) { return reinterpret_cast<std::uintptr_t>(stream); }

  torch::stable::Device device_;
  executor_type exec_;
  store_type store_;
  std::map<std::int64_t, lease_type> leases_;
};

/// Makes a store of parameters of a tensor's type on its device, and gives its number.
template <class Device>
std::int64_t make_parameter_store(Tensor on, std::int64_t scratch_slots, double slack, std::int64_t part) {
  tessera::parameter_store_options options;
  options.scratch_slots = static_cast<int>(scratch_slots);
  options.slack = slack;
  options.part = part;
  torch::stable::Device const device = device_of<Device>(on, {"parameter_store", "elements"});
  auto const made = [&]<class T>(T) -> std::shared_ptr<stored_parameters> {
    return std::make_shared<stored_parameters_on<Device, T>>(options, device);
  };
  ScalarType const type = on.scalar_type();
  if (type == ScalarType::BFloat16) {
    return parameter_stores().add(made(bfloat16{}));
  }
  if (type == ScalarType::Half) {
    return parameter_stores().add(made(tessera::float16{}));
  }
  check_type(on, ScalarType::Float, {"parameter_store", "weights"});
  return parameter_stores().add(made(float{}));
}

}  // namespace tessera_torch
