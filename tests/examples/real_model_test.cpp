// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <tessera/algorithm/attention/dense_attention.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/exec/cpu.hpp>

#include "../../examples/real_model/kept_prompt.hpp"
#include "../../examples/real_model/made_up_model.hpp"
#include "../../examples/real_model/tokenizer.hpp"
#include "../../examples/real_model/transformer.hpp"
#include "../../examples/support/distance.hpp"
#include "support/catch.hpp"
#include "support/message_of.hpp"

using namespace tessera_examples;
using tessera_test::message_of;

namespace {

/// A vocabulary of all bytes and some words.
tokenizer small_tokenizer() {
  std::string tokens;
  for (std::string const& letter : tessera_examples::detail::letters_of_bytes()) {
    tokens += letter + "\n";
  }
  tokens += "th\nthe\n\u0120t\n\u0120the\nes\n'\nre";
  return {tokens, "t h\nth e\n\u0120 t\n\u0120t he\n\u0120 the\ne s\nr e"};
}

std::vector<std::string> words_of(std::string const& text) {
  std::vector<std::string> words;
  tessera_examples::detail::word_cutter cutter(text);
  for (std::string_view word = cutter.next(); !word.empty(); word = cutter.next()) {
    words.emplace_back(word);
  }
  return words;
}

using doubles = std::vector<double>;

double number(weight_matrix const& matrix, std::int64_t row, std::int64_t column) {
  return static_cast<double>(tessera::load(matrix.view()(row, column)));
}

/// The forward pass by its definition, in double: one token's state at a time, keys and values of all before it.
class reference_model {
 public:
  explicit reference_model(language_model const& model) : model_(model), memory_(model.layers.size()) {}

  /// The normalised state of the next token.
  doubles next(std::int32_t token) {
    doubles state;
    for (std::int64_t channel = 0; channel < model_.extents.channels; ++channel) {
      state.push_back(number(model_.embedding, token, channel));
    }
    for (std::size_t layer = 0; layer < memory_.size(); ++layer) {
      layer_weights const& of = model_.layers[layer];
      add(state, product(of.results, attend(layer, normalised(state, of.attention_norm))));
      doubles const inputs = normalised(state, of.feed_forward_norm);
      doubles inner = product(of.gate, inputs);
      doubles const up = product(of.up, inputs);
      for (std::size_t i = 0; i < inner.size(); ++i) {
        inner[i] = inner[i] / (1 + std::exp(-inner[i])) * up[i];
      }
      add(state, product(of.down, inner));
    }
    ++position_;
    return normalised(state, model_.last_norm);
  }

 private:
  struct kept {
    std::vector<doubles> keys;
    std::vector<doubles> values;
  };

  static void add(doubles& to, doubles const& from) {
    for (std::size_t i = 0; i < to.size(); ++i) {
      to[i] += from[i];
    }
  }
  static doubles product(weight_matrix const& weights, doubles const& inputs) {
    doubles outputs(static_cast<std::size_t>(weights.rows));
    for (std::int64_t row = 0; row < weights.rows; ++row) {
      for (std::int64_t column = 0; column < weights.columns; ++column) {
        outputs[static_cast<std::size_t>(row)] +=
            number(weights, row, column) * inputs[static_cast<std::size_t>(column)];
      }
    }
    return outputs;
  }
  [[nodiscard]] doubles normalised(doubles state, weight_matrix const& weights) const {
    double squares = 0;
    for (double const element : state) {
      squares += element * element;
    }
    double const mean = squares / static_cast<double>(state.size());
    for (std::size_t i = 0; i < state.size(); ++i) {
      state[i] *= number(weights, 0, static_cast<std::int64_t>(i)) /
                  std::sqrt(mean + static_cast<double>(model_.extents.norm_epsilon));
    }
    return state;
  }
  void rotate_heads(doubles& heads) const {
    std::size_t const channels = static_cast<std::size_t>(model_.extents.head_channels);
    for (std::size_t first = 0; first < heads.size(); first += channels) {
      for (std::size_t i = 0; i < channels / 2; ++i) {
        double const frequency =
            std::pow(model_.extents.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(channels));
        double const angle = frequency * static_cast<double>(position_);
        double const a = heads[first + i];
        double const b = heads[first + i + channels / 2];
        heads[first + i] = a * std::cos(angle) - b * std::sin(angle);
        heads[first + i + channels / 2] = b * std::cos(angle) + a * std::sin(angle);
      }
    }
  }
  doubles attend(std::size_t layer, doubles const& inputs) {
    layer_weights const& of = model_.layers[layer];
    doubles queries = product(of.queries, inputs);
    doubles keys = product(of.keys, inputs);
    rotate_heads(queries);
    rotate_heads(keys);
    kept& memory = memory_[layer];
    memory.keys.push_back(keys);
    memory.values.push_back(product(of.values, inputs));
    model_extents const& n = model_.extents;
    doubles result(queries.size());
    for (std::int64_t head = 0; head < n.query_heads; ++head) {
      std::int64_t const key_head = head / (n.query_heads / n.key_heads);
      attend_head(memory, queries, static_cast<std::size_t>(head * n.head_channels),
                  static_cast<std::size_t>(key_head * n.head_channels), result);
    }
    return result;
  }
  void attend_head(kept const& memory, doubles const& queries, std::size_t query, std::size_t key,
                   doubles& result) const {
    auto const channels = static_cast<std::size_t>(model_.extents.head_channels);
    double total = 0;
    doubles sums(channels);
    for (std::size_t token = 0; token < memory.keys.size(); ++token) {
      double score = 0;
      for (std::size_t i = 0; i < channels; ++i) {
        score += queries[query + i] * memory.keys[token][key + i];
      }
      double const weight = std::exp(score / std::sqrt(static_cast<double>(channels)));
      total += weight;
      for (std::size_t i = 0; i < channels; ++i) {
        sums[i] += weight * memory.values[token][key + i];
      }
    }
    for (std::size_t i = 0; i < channels; ++i) {
      result[query + i] = sums[i] / total;
    }
  }

  language_model const& model_;
  std::vector<kept> memory_;
  std::int64_t position_ = 0;
};

/// The relative distance of hidden states from those of the reference, of tokens from `first` on.
double distance_from_reference(language_model const& model, std::span<std::int32_t const> tokens,
                               hidden_states const& hidden, std::int64_t first) {
  reference_model reference(model);
  distance apart;
  for (std::int64_t token = 0; token < std::ssize(tokens); ++token) {
    doubles const expected = reference.next(tokens[static_cast<std::size_t>(token)]);
    for (std::int64_t channel = 0; token >= first && channel < hidden.columns; ++channel) {
      apart.add(static_cast<double>(tessera::load(hidden.view()(token - first, channel))),
                expected[static_cast<std::size_t>(channel)]);
    }
  }
  return apart.relative();
}

}  // namespace

TEST_CASE("a text is cut into words as GPT-2's expression cuts it, and digits are alone", "[host]") {
  using words = std::vector<std::string>;
  CHECK(words_of("").empty());
  CHECK(words_of("In the  beginning") == words{"In", " the", " ", " beginning"});
  CHECK(words_of("don't we'll 'sup I'm'") == words{"don", "'t", " we", "'ll", " '", "sup", " I", "'m", "'"});
  CHECK(words_of("12 3.5") == words{"1", "2", " ", "3", ".", "5"});
  CHECK(words_of("a \n\n b\t") == words{"a", " \n\n", " b", "\t"});
  CHECK(words_of("  7  ") == words{"  ", "7", "  "});
  CHECK(words_of("(na\u00efve \u2014 x\u00b2)") == words{"(", "na\u00efve", " \u2014", " x\u00b2", ")"});
  CHECK(words_of("a\xff"
                 "b") == words{"a", "\xff", "b"});
}

TEST_CASE("the tokenizer joins the pair that comes first in the list of merges", "[host]") {
  tokenizer const words = small_tokenizer();
  auto const id = [&](char byte) { return static_cast<std::int32_t>(static_cast<unsigned char>(byte)); };
  CHECK(words.encode("the") == std::vector<std::int32_t>{257});
  CHECK(words.encode(" the") == std::vector<std::int32_t>{259});
  CHECK(words.encode("these") == std::vector<std::int32_t>{257, id('s'), id('e')});
  CHECK(words.encode("t") == std::vector<std::int32_t>{id('t')});
  CHECK(words.encode("").empty());
}

TEST_CASE("what was encoded is decoded to the same bytes, whatever they are", "[host]") {
  tokenizer const words = small_tokenizer();
  std::string all = "the theses\r\n\t 3 x ";
  for (int byte = 0; byte < 256; ++byte) {
    all += static_cast<char>(byte);
  }
  CHECK(words.decode(words.encode(all)) == all);
  CHECK(words.decode({-1, 100000, 257}) == "the");
}

TEST_CASE("a vocabulary without a needed token is refused by name", "[host]") {
  tokenizer const words("a\nb", "");
  CHECK(words.encode("ab") == std::vector<std::int32_t>{0, 1});
  CHECK(message_of([&] { static_cast<void>(words.encode("ac")); }) ==
        "the vocabulary has no token \"c\" for the word \"ac\"");
}

TEST_CASE("the forward pass agrees with one in double", "[host]") {
  language_model const model = made_up_model(2);
  transformer const net(tessera::cpu{}, model);
  for (std::int64_t const count : {1, 2, 19}) {
    std::vector<std::int32_t> const tokens = made_up_tokens(model, count, 7);
    hidden_states const hidden = net.forward(tokens, 0, attention_within<tessera::dense_attention>(net.exec()));
    CAPTURE(count);
    CHECK(distance_from_reference(model, tokens, hidden, 0) < 0.02);
  }
}

TEST_CASE("tokens after a kept prompt have the hidden states that the whole text gives them", "[host]") {
  language_model const model = made_up_model(2);
  transformer const net(tessera::cpu{}, model);
  std::vector<std::int32_t> const tokens = made_up_tokens(model, 21, 8);
  kept_prompt prompt;
  static_cast<void>(net.forward(std::span(tokens).first(13), 0, attention_that_keeps(net.exec(), prompt)));
  CHECK(prompt.tokens() == 13);
  CHECK(prompt.bytes() == 2 * 3 * 13 * 64 * 2 * 2);
  hidden_states const hidden = net.forward(std::span(tokens).subspan(13), 13, attention_after(net.exec(), prompt));
  CHECK(distance_from_reference(model, tokens, hidden, 13) < 0.02);
}

TEST_CASE("tokens that the model does not have, and texts beyond its context, are refused", "[host]") {
  language_model const model = made_up_model(1);
  transformer const net(tessera::cpu{}, model);
  auto const attend = attention_within<tessera::dense_attention>(net.exec());
  std::vector<std::int32_t> const bad{3, 500};
  CHECK(message_of([&] { static_cast<void>(net.forward(bad, 0, attend)); }) == "token 500 is none of 500");
  CHECK(message_of([&] { static_cast<void>(net.forward(std::span(bad).first(1), 1024, attend)); }) ==
        "the text has 1025 tokens but the model's context 1024");
}
