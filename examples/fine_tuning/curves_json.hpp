// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Curves of losses as JSON in the form of Google Benchmark's, which bench/report.py reads: a row for each training.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "../support/classifier_problem.hpp"
#include "fine_tune.hpp"

namespace tessera_examples {
namespace detail {

inline std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) == 0 && line.find(": ") != std::string::npos) {
      return line.substr(line.find(": ") + 2);
    }
  }
  return "unknown";
}

inline std::string compiler() {
#if defined(__clang__)
  return std::string("clang ") + __clang_version__;
#else
  return std::string("gcc ") + __VERSION__;
#endif
}

inline std::string now() {
  std::time_t const seconds = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S+00:00", &parts);
  return text;
}

}  // namespace detail

/// The curves, the first of which is that of exact gradients. The commit is TESSERA_COMMIT in the environment.
inline nlohmann::json curves_json(classifier_problem const& data, training_plan const& plan,
                                  std::vector<loss_curve> const& curves, std::vector<float> const& before) {
  char const* const commit = std::getenv("TESSERA_COMMIT");
  nlohmann::json rows = nlohmann::json::array();
  std::string const classifier = std::to_string(data.vocabulary) + "x" + std::to_string(data.channels);
  loss_curve const& exact = curves.at(0);
  for (loss_curve const& curve : curves) {
    rows.push_back({{"name", "fine_tuning/" + curve.name + "/smollm2/" + classifier},
                    {"run_type", "iteration"},
                    {"batch_tokens", plan.batch},
                    {"classifier_drift", relative_drift(curve.weights.classifier, exact.weights.classifier, before)},
                    {"adapter_drift", relative_drift(curve.weights.adapter, exact.weights.adapter,
                                                     std::vector<float>(exact.weights.adapter.size()))},
                    {"rows_not_moved", curve.rows_not_moved},
                    {"seconds_a_step", curve.seconds_a_step},
                    {"first_held_out_loss", curve.held_out.front()},
                    {"last_held_out_loss", curve.held_out.back()},
                    {"largest_difference", largest_difference(curve, exact)},
                    {"training_loss", curve.training},
                    {"held_out_steps", curve.held_out_steps},
                    {"held_out_loss", curve.held_out}});
  }
  return {{"context",
           {{"date", detail::now()},
            {"executable", "fine_tuning"},
            {"commit", commit != nullptr && *commit != '\0' ? commit : "unknown"},
            {"cpu", detail::cpu_model()},
            {"cpu_threads", std::to_string(std::thread::hardware_concurrency())},
            {"compiler", detail::compiler()},
            {"steps", plan.steps},
            {"rate", plan.rate},
            {"warm_up_steps", plan.warm_up},
            {"held_out_tokens", plan.held_out},
            {"training_tokens", data.tokens - plan.held_out},
            {"threads", plan.threads}}},
          {"benchmarks", rows}};
}

}  // namespace tessera_examples
