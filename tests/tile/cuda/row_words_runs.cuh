// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Runs the program of all words for rows on a GPU, by any model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cuda.cuh>

#include "support/device_copies.cuh"
#include "tile/row_words.hpp"

namespace tessera_test {

/// What is wrong with the words of a model, which work on Rows x Columns sums. Words, BitWords: as tile_words.
template <class Sum, int Rows, int Columns, class Words, class BitWords, int Lanes>
std::string wrong_words_on_device() {
  cuda const exec;
  row_words_problem<Sum> const problem{Rows, Columns};
  row_words_outcome<Sum> made(problem);
  auto const sums = to_device(exec, problem.sums);
  auto const ends = to_device(exec, problem.ends);
  auto reduced = to_device(exec, made.reduced);
  auto folded = to_device(exec, made.folded);
  auto pairs = to_device(exec, made.pairs);
  auto listed = to_device(exec, made.listed);
  auto largest = to_device(exec, made.largest);
  auto rows = to_device(exec, made.rows);
  auto hidden = to_device(exec, made.hidden);
  auto bits = to_device(exec, made.bits);
  auto ordered = to_device(exec, made.ordered);
  exec.run(row_words_program<Sum, Words, BitWords, Lanes>{{sums.data(), {Rows, Columns}},
                                                          ends.view(),
                                                          problem.first,
                                                          {reduced.view(),
                                                           folded.view(),
                                                           pairs.view(),
                                                           listed.view(),
                                                           largest.view(),
                                                           rows.view(),
                                                           {hidden.data(), {Rows, Columns}},
                                                           {bits.data(), {Rows, Columns}},
                                                           {ordered.data(), {Rows, Columns}}}},
           1);
  made.reduced = to_host(exec, reduced);
  made.folded = to_host(exec, folded);
  made.pairs = to_host(exec, pairs);
  made.listed = to_host(exec, listed);
  made.largest = to_host(exec, largest);
  made.rows = to_host(exec, rows);
  made.hidden = to_host(exec, hidden);
  made.bits = to_host(exec, bits);
  made.ordered = to_host(exec, ordered);
  return difference(made, problem);
}

}  // namespace tessera_test
