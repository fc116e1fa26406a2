// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a user does with a package: a classifier's weights go through NeuZip and back, a damaged stream is refused, and
// the loss over what came back is compared with one in double precision.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include <tessera/cut_cross_entropy.hpp>
#include <tessera/neuzip.hpp>

using tessera::bfloat16;

namespace {

constexpr std::int64_t tokens = 37;
constexpr std::int64_t vocabulary = 301;
constexpr std::int64_t channels = 48;

std::vector<bfloat16> normal(std::int64_t count, float sigma, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> distribution(0.0F, sigma);
  std::vector<bfloat16> values(static_cast<std::size_t>(count));
  for (bfloat16& value : values) {
    value = tessera::store<bfloat16>(distribution(engine));
  }
  return values;
}

double logit(std::vector<bfloat16> const& hidden, std::vector<bfloat16> const& classifier, std::int64_t token,
             std::int64_t entry) {
  double sum = 0;
  for (std::int64_t channel = 0; channel < channels; ++channel) {
    sum += double(tessera::load(hidden[static_cast<std::size_t>(token * channels + channel)])) *
           double(tessera::load(classifier[static_cast<std::size_t>(entry * channels + channel)]));
  }
  return sum;
}

double expected_loss(std::vector<bfloat16> const& hidden, std::vector<bfloat16> const& classifier,
                     std::vector<std::int64_t> const& labels) {
  double total = 0;
  for (std::int64_t token = 0; token < tokens; ++token) {
    double sum = 0;
    for (std::int64_t entry = 0; entry < vocabulary; ++entry) {
      sum += std::exp(logit(hidden, classifier, token, entry));
    }
    total += std::log(sum) - logit(hidden, classifier, token, labels[static_cast<std::size_t>(token)]);
  }
  return total / double(tokens);
}

float computed_loss(tessera::cpu const& exec, std::vector<bfloat16> const& hidden,
                    std::vector<bfloat16> const& classifier, std::vector<std::int64_t> const& labels) {
  using loss = tessera::exact_cross_entropy;
  auto const plan = loss::plan_forward(exec, {tokens, vocabulary, channels});
  tessera::buffer<std::byte> memory(exec, plan.bytes());
  std::vector<float> value(1, -1.0F);
  loss::inputs<std::int64_t> const inputs{
      {hidden.data(), {tokens, channels}}, {classifier.data(), {vocabulary, channels}}, labels};
  loss::forward(exec, inputs, {}, {.loss = value}, tessera::workspace(plan, memory));
  exec.wait();
  return value[0];
}

bool is_refused(tessera::cpu const& exec, tessera::buffer<std::byte>& stream, std::vector<bfloat16>& weights) {
  stream.data()[stream.size() / 2] ^= std::byte{0x10};
  try {
    tessera::neuzip::decode(exec, stream, weights);
    return false;
  } catch (tessera::corrupt_data const& problem) {
    std::printf("refused, as it should be: %s\n", problem.what());
    return true;
  }
}

}  // namespace

int main() {
  tessera::cpu const exec{.threads = 2};
  auto const hidden = normal(tokens * channels, 1.0F, 1);
  auto const classifier = normal(vocabulary * channels, 0.2F, 2);
  std::vector<std::int64_t> labels(static_cast<std::size_t>(tokens));
  for (std::size_t token = 0; token < labels.size(); ++token) {
    labels[token] = static_cast<std::int64_t>(token * 7919 % vocabulary);
  }

  auto stream = tessera::neuzip::encode(exec, classifier, {.checksums = true});
  std::vector<bfloat16> restored(classifier.size());
  tessera::neuzip::decode(exec, stream, restored);
  bool const is_same = std::memcmp(restored.data(), classifier.data(), classifier.size() * sizeof(bfloat16)) == 0;
  double const bits = 8.0 * static_cast<double>(stream.size()) / static_cast<double>(classifier.size());
  double const expected = expected_loss(hidden, classifier, labels);
  double const computed = double(computed_loss(exec, hidden, restored, labels));
  std::printf("%.2f bits a weight, %s; loss %.6f, in double precision %.6f\n", bits, is_same ? "the same" : "CHANGED",
              computed, expected);
  bool const is_close = std::abs(computed - expected) < 1e-4 * expected;
  return is_same && bits < 14.0 && is_close && is_refused(exec, stream, restored) ? 0 : 1;
}
