// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The result of `check_laws`: the laws that were broken, each with its first counterexample.
#pragma once

#include <cmath>
#include <string>
#include <vector>

namespace tessera {
inline namespace v0 {
namespace testing {

/// A list of broken laws, empty when every law held.
class law_report {
 public:
  /// Records that `law` is broken unless `holds`. Only the first counterexample of a law is kept.
  void expect(bool holds, std::string const& law, std::string const& example = {}) {
    if (holds || is_broken(law)) {
      return;
    }
    laws_.push_back(law);
    failures_.push_back(example.empty() ? law : law + ": " + example);
  }

  /// Takes over the failures of a part, each prefixed by the part's name.
  void include(std::string const& part, law_report const& other) {
    for (std::string const& failure : other.failures_) {
      laws_.push_back(part + failure);
      failures_.push_back(part + failure);
    }
  }

  /// Whether all laws hold.
  [[nodiscard]] bool is_empty() const { return failures_.empty(); }
  /// The broken laws, each with a counterexample.
  [[nodiscard]] std::vector<std::string> const& failures() const { return failures_; }

  /// All failures, one a line.
  [[nodiscard]] std::string text() const {
    std::string all;
    for (std::string const& failure : failures_) {
      all += failure + "\n";
    }
    return all;
  }

  /// Whether a failure mentions `words`.
  [[nodiscard]] bool mentions(std::string const& words) const { return text().find(words) != std::string::npos; }

 private:
  [[nodiscard]] bool is_broken(std::string const& law) const {
    for (std::string const& known : laws_) {
      if (known == law) {
        return true;
      }
    }
    return false;
  }

  std::vector<std::string> laws_;
  std::vector<std::string> failures_;
};

/// Whether two numbers differ by at most `tolerance`, relative to the larger of 1 and their magnitudes. NaN is close
/// only to NaN, an infinity only to itself.
inline bool is_close(double a, double b, double tolerance) {
  if (std::isnan(a) || std::isnan(b)) {
    return std::isnan(a) && std::isnan(b);
  }
  if (std::isinf(a) || std::isinf(b)) {
    return a == b;
  }
  double const larger = std::fabs(a) < std::fabs(b) ? std::fabs(b) : std::fabs(a);
  return std::fabs(a - b) <= tolerance * (larger < 1.0 ? 1.0 : larger);
}

}  // namespace testing
}  // namespace v0
}  // namespace tessera
