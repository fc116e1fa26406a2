// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// A cache on the host whose memory is copied to the device, where one program of a step can be run alone: the device's
/// results are compared with the host's, byte by byte if need be.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <tessera/algorithm/offloaded_cache/offloaded_cache.cuh>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/cuda_memory.cuh>
#include <tessera/exec/side_queue.cuh>

#include "support/offload_problem.hpp"
#include "support/offload_runs.cuh"

namespace tessera_test {

struct step_setup {
  offload_heads heads = {8, 2, 64};
  std::vector<std::int64_t> prompts = {650, 90, 0};
  std::int64_t steps_before = 3;
  std::int64_t selected = 12;
  std::int64_t slots = 0;
  int turning = 64;  ///< channels that rotate
  tessera::rotary_pairs pairs = tessera::rotary_pairs::halves;
  std::vector<std::int32_t> named = {};
  bool has_one_table = false;  ///< one table with the rotations of all positions
};

/// A cache's blocks of memory, on host or device, and the types that they hold.
template <class Method, class T>
struct step_blocks {
  typename Method::template cache_type<T> cache;
  tessera::offload_step<T> step;
};

/// A cache on the host, and a copy of all its memory on the device, where one program of a step can be run alone.
template <class Method, class T>
class step_problem {
 public:
  using selector_type = typename Method::selector_type;
  using element = typename tessera::chunk_landmarks<selector_type>::element_type;
  using codec = typename Method::codec_type;
  using blocks_type = step_blocks<Method, T>;

  explicit step_problem(step_setup const& setup)
      : setup_(setup),
        tables_(setup.turning > 0 ? tessera::rotary_frequencies(500000.0, setup.turning) : std::vector<double>{}, 8192),
        all_positions_(turns_of_all()),
        plan_(Method::template plan<T>(exec_, shape(setup), options(setup), selector(setup))),
        named_(exec_, 8),
        within_(on_device(setup_.has_one_table ? all_positions_ : tables_.within())),
        around_(on_device(tables_.blocks())) {
    if (!setup.named.empty()) {
      exec_.copy(setup.named, named_.view().slice(0, 0, steps()));
    }
    exec_.wait();
    for (std::size_t i = 0; i < 3; ++i) {
      std::fill(here_[i]->begin(), here_[i]->end(), std::byte{0xfb});
    }
    auto const embedding = this->embedding();
    here = std::make_unique<blocks_type>(
        open(tessera::cpu{}, here_[0]->view(), here_[1]->view(), here_[2]->view(), embedding));
    there = std::make_unique<blocks_type>(open(exec_, there_[0]->view(), there_[1]->view(), there_[2]->view(),
                                               embedding_of(within_.data(), around_.data())));
    found = std::make_unique<blocks_type>(
        open(tessera::cpu{}, found_[0]->view(), found_[1]->view(), found_[2]->view(), embedding));
    here->step.sequences = setup.named;
    found->step.sequences = setup.named;
    if (!setup.named.empty()) {
      there->step.sequences = named_.view().slice(0, 0, steps());
    }
    prefill();
  }

  std::int64_t steps() const {
    return static_cast<std::int64_t>(setup_.named.empty() ? setup_.prompts.size() : setup_.named.size());
  }
  tessera::offload_extents const& extents() const { return plan_.extents; }

  /// Copies all memory of the host to the device.
  void upload() {
    for (std::size_t i = 0; i < 3; ++i) {
      exec_.copy(here_[i]->view(), there_[i]->view());
    }
    exec_.wait();
  }
  void download() {
    for (std::size_t i = 0; i < 3; ++i) {
      exec_.copy(there_[i]->view(), found_[i]->view());
    }
    exec_.wait();
  }
  /// Runs a program on the device, on a copy of the host's memory, and then on the host. `make`: makes the program for
  /// a side's blocks.
  template <class Make>
  void run(Make const& make) {
    upload();
    tessera::run(exec_, make(*there));
    download();
    tessera::run(tessera::cpu{}, make(*here));
  }
  /// The part of memory that differs: 0 device, 1 host, 2 tessera::workspace; -1: none.
  int differing(std::size_t parts = 3) const {
    for (std::size_t i = 0; i < parts; ++i) {
      if (!std::equal(here_[i]->begin(), here_[i]->end(), found_[i]->begin())) {
        return static_cast<int>(i);
      }
    }
    return -1;
  }

  tessera::cuda const& exec() const { return exec_; }
  typename Method::template plan_type<T> const& plan() const { return plan_; }
  tessera::offload_tokens<T> tokens(std::int64_t after) {
    collect(after);
    return {{rows_.queries.data(), {steps(), setup_.heads.query_heads, setup_.heads.channels}},
            {rows_.keys.data(), {steps(), setup_.heads.key_heads, setup_.heads.channels}},
            {rows_.values.data(), {steps(), setup_.heads.key_heads, setup_.heads.channels}}};
  }
  tessera::view<float, 3> results() {
    results_.assign(static_cast<std::size_t>(steps() * setup_.heads.query_heads * setup_.heads.channels), -77.0F);
    return {results_.data(), {steps(), setup_.heads.query_heads, setup_.heads.channels}};
  }
  tessera::view<float, 2> sums() {
    sums_.assign(static_cast<std::size_t>(steps() * setup_.heads.query_heads), -77.0F);
    return {sums_.data(), {steps(), setup_.heads.query_heads}};
  }
  /// A step of all sequences with the memory that is on the device.
  template <class Side>
  std::vector<float> decode_there(Side const& side, std::int64_t after) {
    tessera::offload_tokens<T> in = tokens(after);
    auto const queries = on_device(rows_.queries);
    auto const keys = on_device(rows_.keys);
    auto const values = on_device(rows_.values);
    in.queries.data = queries.data();
    in.keys.data = keys.data();
    in.values.data = values.data();
    auto const expected = results();
    tessera::buffer<float> made(exec_, expected.size());
    Method::decode(exec_, side, there->cache, in, tessera::offload_outputs<float>{{made.data(), expected.extents}},
                   tessera::workspace(plan_.step, there_[2]->view()));
    std::vector<float> copied(static_cast<std::size_t>(made.size()));
    exec_.copy(made.view(), copied);
    exec_.wait();
    return copied;
  }
  tessera::rotary_embedding embedding() const {
    return embedding_of(setup_.has_one_table ? all_positions_.data() : tables_.within().data(),
                        tables_.blocks().data());
  }
  offload_sequence<T> const& sequence(std::size_t i) const { return sequences_[i]; }

  std::unique_ptr<blocks_type> here;
  std::unique_ptr<blocks_type> there;
  std::unique_ptr<blocks_type> found;

 private:
  tessera::rotary_embedding embedding_of(tessera::rotation const* within, tessera::rotation const* blocks) const {
    tessera::rotary_embedding made = tables_.embedding(setup_.pairs, within, blocks);
    if (setup_.has_one_table) {
      made.within.extents[0] = made.positions();
      made.blocks = {};
    }
    return made;
  }
  std::vector<tessera::rotation> turns_of_all() const {
    auto const made = tables_.embedding(setup_.pairs);
    std::vector<tessera::rotation> all;
    for (std::int64_t i = 0; setup_.has_one_table && i < made.positions() * made.within.extent(1); ++i) {
      all.push_back(made.at(i / made.within.extent(1), i % made.within.extent(1)));
    }
    return all;
  }
  static tessera::offload_shape shape(step_setup const& s) {
    std::vector<std::int64_t> room;
    for (std::int64_t const prompt : s.prompts) {
      room.push_back(prompt + 160);
    }
    return {s.heads.query_heads, s.heads.key_heads, s.heads.channels, room};
  }
  static tessera::offload_options options(step_setup const& s) {
    tessera::offload_options made;
    made.slots = s.slots;
    return made;
  }
  static selector_type selector(step_setup const& s) {
    selector_type made;
    made.chunks = s.selected;
    return made;
  }
  template <class U>
  tessera::buffer<U> on_device(std::vector<U> const& from) const {
    tessera::buffer<U> made(exec_, static_cast<std::int64_t>(from.size()));
    exec_.copy(from, made);
    return made;
  }
  template <class Exec>
  blocks_type open(Exec const& exec, tessera::array_view<std::byte> device, tessera::array_view<std::byte> host,
                   tessera::array_view<std::byte> step, tessera::rotary_embedding const& embedding) const {
    return {Method::open(exec, plan_, device, host, embedding, selector(setup_)),
            plan_.step_of(tessera::workspace(plan_.step, step), steps(), {})};
  }

  void prefill() {
    tessera::buffer<std::byte> prompt(plan_.prompt.bytes());
    tessera::side_queue<tessera::cpu> const side(tessera::cpu{}, 1);
    for (std::size_t i = 0; i < setup_.prompts.size(); ++i) {
      std::int64_t const count = setup_.prompts[i];
      sequences_.push_back(make_sequence<T>(setup_.heads, count + 200, 40 + i));
      tessera::view<T const, 3> const keys(sequences_[i].keys.data(),
                                           {setup_.heads.key_heads, count + 200, setup_.heads.channels});
      tessera::view<T const, 3> const values(sequences_[i].values.data(),
                                             {setup_.heads.key_heads, count + 200, setup_.heads.channels});
      Method::prefill(tessera::cpu{}, side, here->cache, static_cast<std::int64_t>(i), keys.slice(1, 0, count),
                      values.slice(1, 0, count), tessera::workspace(plan_.prompt, prompt.view()));
    }
    for (std::int64_t k = 0; k < setup_.steps_before; ++k) {
      tessera::offload_tokens<T> in = tokens(k);
      in.sequences = setup_.named;
      Method::decode(tessera::cpu{}, side, here->cache, in, tessera::offload_outputs<float>{results()},
                     tessera::workspace(plan_.step, here_[2]->view()));
    }
  }
  void collect(std::int64_t after) {
    rows_ = {};
    for (std::int64_t i = 0; i < steps(); ++i) {
      std::int64_t const named = setup_.named.empty() ? i : std::int64_t{setup_.named[static_cast<std::size_t>(i)]};
      auto const which = static_cast<std::size_t>(named < 0 ? 0 : named);
      rows_.add(setup_.heads, sequences_[which], setup_.prompts[which] + after);
    }
  }

  step_setup setup_;
  tessera::cuda exec_;
  tessera::pinned_memory pinned_;
  tessera::rotary_tables tables_;
  std::vector<tessera::rotation> all_positions_;
  typename Method::template plan_type<T> plan_;
  tessera::buffer<std::int32_t> named_;
  tessera::buffer<tessera::rotation> within_;
  tessera::buffer<tessera::rotation> around_;
  std::vector<offload_sequence<T>> sequences_;
  offload_rows<T> rows_;
  std::vector<float> results_;
  std::vector<float> sums_;
  using block = std::unique_ptr<tessera::buffer<std::byte>>;
  block here_block(std::int64_t bytes) const { return std::make_unique<tessera::buffer<std::byte>>(bytes); }
  std::vector<block> three_here() const {
    std::vector<block> made;
    made.push_back(here_block(plan_.device.bytes()));
    made.push_back(here_block(plan_.host.bytes()));
    made.push_back(here_block(plan_.step.bytes()));
    return made;
  }
  std::vector<block> three_there() {
    std::vector<block> made;
    made.push_back(std::make_unique<tessera::buffer<std::byte>>(exec_, plan_.device.bytes()));
    made.push_back(std::make_unique<tessera::buffer<std::byte>>(plan_.host.bytes(), pinned_));
    made.push_back(std::make_unique<tessera::buffer<std::byte>>(exec_, plan_.step.bytes()));
    return made;
  }
  std::vector<block> here_ = three_here();
  std::vector<block> there_ = three_there();
  std::vector<block> found_ = three_here();
};

}  // namespace tessera_test
