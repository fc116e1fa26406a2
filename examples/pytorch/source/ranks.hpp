// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Losses whose classifier is spread over the ranks of a process group. PyTorch's collectives are Python's to call: an
/// operator is given a function of Python's by which ranks gather parts of the workspace, a tensor of Python's.
/// rank_*_programs.hpp define the functions, and one source for each type and device compiles them beside those for one
/// rank, since both run the same programs.
#pragma once

#include <cstdint>
#include <tuple>
#include <type_traits>

#include <tessera/algorithm/loss/linear_loss_types.hpp>
#include <tessera/concepts/comm/communicator.hpp>
#include <tessera/core/check.hpp>
#include <tessera/view/array_view.hpp>

#include "distillation.hpp"
#include "loss.hpp"
#include "soft_targets.hpp"
#include "tensors.hpp"
#include "top_entries.hpp"

namespace tessera_torch {

/// Gathers `bytes` of all ranks' workspaces from `begin` on into those from `into` on; where that is in_place, it adds
/// up the ranks' floats there. Gives 0, or another number where that failed, for a reason that Python keeps.
using gather_function = std::int64_t (*)(std::int64_t begin, std::int64_t bytes, std::int64_t into);
inline constexpr std::int64_t in_place = -1;

/// What a rank of a group has: its number, its entries of the vocabulary, and how it gathers.
struct rank_place {
  std::int64_t rank;
  std::int64_t ranks;
  tessera::vocabulary_part part;
  gather_function gather = nullptr;

  rank_place(std::int64_t number, std::int64_t count, std::int64_t first, std::int64_t vocabulary,
             std::int64_t function = 0)
      : rank(number),
        ranks(count),
        part{first, vocabulary},
        gather(reinterpret_cast<gather_function>(static_cast<std::uintptr_t>(function))) {}
};

/// A process group as a Communicator. Losses gather states in the forward pass, and logits of chosen entries are added
/// up in their place; gradients of hidden states are added up in Python. Nothing else is exchanged, and it refuses all
/// other functions.
class torch_ranks {
 public:
  static constexpr bool reduces_in_rank_order = false;

  /// function: how errors call what gathers.
  torch_ranks(char const* function, rank_place const& place, Tensor const& workspace)
      : function_(function), place_(place), begin_(data_of<std::byte>(workspace)) {}
  [[nodiscard]] int rank() const { return static_cast<int>(place_.rank); }
  [[nodiscard]] int size() const { return static_cast<int>(place_.ranks); }

  template <class Exec, class T>
  void all_gather(Exec const&, tessera::array_view<T> source, tessera::array_view<std::remove_const_t<T>> target) {
    tessera::check<tessera::value_error>(place_.gather != nullptr, function_, ": a backward pass gathers nothing");
    if (source.size() > 0) {
      std::int64_t const failed =
          place_.gather(offset_of(source.data), source.size() * std::int64_t{sizeof(T)}, offset_of(target.data));
      tessera::check<tessera::value_error>(failed == 0, function_, ": the ranks did not gather ", source.size(),
                                           " states of tokens, error ", failed);
    }
  }
  template <class Exec, class T>
  void all_reduce(Exec const&, tessera::array_view<T> source, tessera::rank_reduction reduction,
                  tessera::array_view<std::remove_const_t<T>> target) {
    if constexpr (std::is_same_v<std::remove_const_t<T>, float>) {
      if (reduction == tessera::rank_reduction::sum && source.data == target.data && place_.gather != nullptr) {
        std::int64_t const failed =
            place_.gather(offset_of(source.data), source.size() * std::int64_t{sizeof(T)}, in_place);
        tessera::check<tessera::value_error>(failed == 0, function_, ": the ranks did not add up ", source.size(),
                                             " logits of entries, error ", failed);
        return;
      }
    }
    refuse("all_reduce but for sums of floats in their place");
  }
  template <class Exec, class T>
  void reduce_scatter(Exec const&, tessera::array_view<T>, tessera::rank_reduction,
                      tessera::array_view<std::remove_const_t<T>>) {
    refuse("reduce_scatter");
  }
  template <class Exec, class T>
  void send(Exec const&, tessera::array_view<T>, int) {
    refuse("send");
  }
  template <class Exec, class T>
  void receive(Exec const&, int, tessera::array_view<T>) {
    refuse("receive");
  }
  template <class Function>
  void grouped(Function&&) {
    refuse("grouped");
  }

 private:
  [[noreturn]] void refuse(char const* what) const {
    throw tessera::value_error(tessera::join(function_, ": losses of Python gather states and do not call ", what));
  }
  std::int64_t offset_of(void const* data) const { return static_cast<std::byte const*>(data) - begin_; }

  char const* function_;
  rank_place place_;
  std::byte const* begin_;
};

/// linear_cross_entropy over ranks, for operands of a type. Tensors are as in loss.hpp, with the rank's rows of the
/// classifier and elements of the bias.
template <class Device, class Operand>
struct rank_loss_of {
  static std::int64_t bytes(loss_tensors const& given, loss_settings const& settings, std::int64_t ranks,
                            bool for_backward);
  /// Losses, log-sum-exps, log-probabilities, entropies and predictions, in a new workspace.
  static std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> forward(loss_tensors const& given,
                                                                    loss_settings const& settings,
                                                                    gradient_sums const& sums, Tensor const& workspace,
                                                                    rank_place const& place);
  /// That of hidden states is a part of a sum over ranks.
  static std::tuple<Tensor, Tensor, Tensor> backward(loss_tensors const& given, loss_settings const& settings,
                                                     Tensor const& workspace, rank_place const& place,
                                                     loss_gradient_request const& wanted);
};

/// soft_target_cross_entropy and chosen_log_probabilities over ranks.
template <class Device, class Operand>
struct rank_soft_targets_of {
  static std::int64_t bytes(soft_target_tensors const& given, tessera::linear_loss_options const& options,
                            std::int64_t ranks, bool for_backward);
  /// Losses and log-sum-exps.
  static std::tuple<Tensor, Tensor> forward(soft_target_tensors const& given,
                                            tessera::linear_loss_options const& options, Tensor const& workspace,
                                            rank_place const& place);
  static std::tuple<Tensor, Tensor, Tensor> backward(soft_target_tensors const& given,
                                                     tessera::linear_loss_options const& options,
                                                     Tensor const& workspace, rank_place const& place,
                                                     loss_gradient_request const& wanted);
  /// The workspace of chosen().
  static std::int64_t chosen_bytes(chosen_tensors const& given, std::int64_t ranks);
  /// Log-probabilities of entries: tokens x K.
  static Tensor chosen(chosen_tensors const& given, tessera::linear_loss_options const& options,
                       Tensor const& workspace, rank_place const& place);
};

/// top_log_probabilities over ranks.
template <class Device, class Operand>
struct rank_top_entries_of {
  static std::int64_t bytes(top_tensors const& given, std::int64_t k, tessera::linear_loss_options const& options,
                            std::int64_t ranks);
  /// Log-probabilities and entries, tokens x k each, from the largest down, and log-sum-exps of tokens.
  static std::tuple<Tensor, Tensor, Tensor> forward(top_tensors const& given, std::int64_t k,
                                                    tessera::linear_loss_options const& options,
                                                    Tensor const& workspace, rank_place const& place);
};

/// linear_distillation over ranks, with the rank's rows of both classifiers.
template <class Device, class Operand>
struct rank_distillation_of {
  static std::int64_t bytes(distillation_tensors const& given, distillation_settings const& settings,
                            std::int64_t ranks, bool for_backward);
  static Tensor forward(distillation_tensors const& given, distillation_settings const& settings,
                        Tensor const& workspace, rank_place const& place);
  static std::tuple<Tensor, Tensor> backward(distillation_tensors const& given, distillation_settings const& settings,
                                             Tensor const& workspace, rank_place const& place,
                                             loss_gradient_request const& wanted);
};

}  // namespace tessera_torch
