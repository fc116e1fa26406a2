// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// What the filter of gradients does to a short fine-tuning of a real model's classifier, as curves of
/// losses with exact gradients, with both gradients
/// filtered, and with the classifier's kept whole.
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <tessera/cut_cross_entropy.hpp>

#include "../support/classifier_problem.hpp"
#include "../support/failure.hpp"
#include "../support/run_example.hpp"
#include "../support/text_table.hpp"
#include "curves_json.hpp"
#include "fine_tune.hpp"
#include "trainings.hpp"

namespace tessera_examples {
namespace {

constexpr char const* help_text =
    R"(Trains SmolLM2's classifier, and a linear adapter before it, on a text's hidden states, three times.

  example_fine_tuning              a few steps on the excerpt of tests/data, with a filter as coarse as that is small
  example_fine_tuning --data FOLDER   the whole classifier, with the paper's filter

  --data FOLDER   where python3 tests/data/make_data.py smollm2 --large FOLDER --tokens 8192 has been
  --steps N       steps of each training
  --batch N       tokens of a step
  --rate R        how far Adam moves a weight in a step
  --threads N     CPU threads; 1 by default
  --out FILE      the curves as JSON; TESSERA_COMMIT in the environment is the commit that stands in it
)";

struct arguments {
  std::string data;
  std::string out;
  training_plan plan;
  bool help = false;
};

/// The number in `text`, which is `what`'s and not below `least`.
double number_of(std::string const& what, std::string const& text, double least) {
  char* end = nullptr;
  double const value = std::strtod(text.c_str(), &end);
  require(exit_code::usage, end != text.c_str() && *end == '\0' && value >= least && value <= 1e6, what, " is ",
          shown(text), " but must be a number from ", least, " to 1000000");
  return value;
}

arguments parse(std::vector<std::string> const& words) {
  arguments result;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--data") {
      result.plan = whole_plan();
    }
  }
  if (result.plan.steps == 0) {
    result.plan = excerpt_plan();
  }
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::string const& word = words[i];
    auto const value = [&]() -> std::string const& {
      require(exit_code::usage, i + 1 < words.size(), word, " needs a value");
      return words[++i];
    };
    if (word == "--help" || word == "-h") {
      result.help = true;
    } else if (word == "--data") {
      result.data = value();
    } else if (word == "--out") {
      result.out = value();
    } else if (word == "--steps") {
      result.plan.steps = static_cast<int>(number_of(word, value(), 1));
    } else if (word == "--batch") {
      result.plan.batch = static_cast<std::size_t>(number_of(word, value(), 1));
    } else if (word == "--rate") {
      result.plan.rate = static_cast<float>(number_of(word, value(), 0));
    } else if (word == "--threads") {
      result.plan.threads = static_cast<int>(number_of(word, value(), 1));
    } else {
      throw failure(exit_code::usage, "unknown argument " + shown(word) + " (--help explains)");
    }
  }
  return result;
}

/// Reads the data, and says how to make them where they are not there.
classifier_problem read(std::string const& folder) {
  constexpr char const* hint =
      "; python3 tests/data/make_data.py smollm2 --large FOLDER --tokens 8192 makes the whole classifier and its "
      "hidden states";
  if (folder.empty()) {
    return read_classifier(std::string(EXAMPLE_DATA) + "/smollm2_classifier.safetensors");
  }
  try {
    classifier_problem problem = read_classifier(folder + "/smollm2_classifier.safetensors");
    require(exit_code::unsound, problem.vocabulary >= 32768, folder, ": the classifier has ", problem.vocabulary,
            " rows, so that it is not whole");
    return problem;
  } catch (failure const& problem) {
    throw failure(problem.code(), problem.what() + std::string(hint));
  }
}

void print(training_plan const& plan, std::vector<loss_curve> const& curves, std::vector<float> const& before) {
  std::vector<std::string> titles{"training"};
  for (int const step : curves.at(0).held_out_steps) {
    titles.push_back("after " + std::to_string(step));
  }
  titles.insert(titles.end(), {"rows not moved", "classifier's drift", "s a step"});
  text_table table(titles);
  for (loss_curve const& curve : curves) {
    std::vector<std::string> cells{curve.name};
    for (double const loss : curve.held_out) {
      cells.push_back(fixed(loss, 4));
    }
    cells.push_back(fixed(100 * curve.rows_not_moved, 1) + " %");
    cells.push_back(fixed(100 * relative_drift(curve.weights.classifier, curves[0].weights.classifier, before), 1) +
                    " %");
    cells.push_back(fixed(curve.seconds_a_step, 2));
    table.add(cells);
  }
  std::printf("loss of %zu held-out tokens, nats, after steps of %zu tokens:\n", plan.held_out, plan.batch);
  table.print(stdout);
}

void run(std::vector<std::string> const& words) {
  arguments const given = parse(words);
  if (given.help) {
    std::printf("%s", help_text);
    return;
  }
  classifier_problem const data = read(given.data);
  auto const told = [](int step, loss_curve const& curve) {
    std::fprintf(stderr, "%s, step %d: loss %.4f, held-out %.4f\n", curve.name.c_str(), step, curve.training.back(),
                 curve.held_out.back());
  };
  std::vector<loss_curve> const curves =
      given.data.empty() ? trainings<excerpt_loss>(data, given.plan, excerpt_threshold, told)
                         : trainings<tessera::cut_cross_entropy>(data, given.plan, paper_threshold, told);
  std::vector<float> const before = widened(data.classifier);
  print(given.plan, curves, before);
  if (!given.out.empty()) {
    std::ofstream file(given.out);
    file << curves_json(data, given.plan, curves, before).dump(1) << '\n';
    file.close();
    require(exit_code::unwritable, !file.fail(), given.out, ": cannot be written");
  }
  check_trainings(data, given.plan, curves, given.data.empty() ? excerpt_bound : HUGE_VAL);
}

}  // namespace
}  // namespace tessera_examples

int main(int count, char** words) {
  return tessera_examples::run_example(
      "fine_tuning", [&] { tessera_examples::run(std::vector<std::string>(words + 1, words + count)); });
}
