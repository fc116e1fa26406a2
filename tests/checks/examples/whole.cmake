# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Examples that include all that they need.
set(loss "std::int64_t tokens, std::int64_t vocabulary, std::int64_t channels, tessera::array_view<float> value, \
  ${given_matrix} hidden, ${given_matrix} classifier, tessera::array_view<std::int64_t const> labels")
set(attention "std::int64_t batch, std::int64_t query_heads, std::int64_t key_heads, std::int64_t queries, \
  std::int64_t keys, std::int64_t channels, ${given_heads} q, ${given_heads} k, ${given_heads} v, \
  tessera::head_view<tessera::bfloat16> result")
set(cpu_memory "tessera::cpu const& exec, tessera::buffer<std::byte>& memory")
set(cpu_includes "#include <tessera/exec/buffer.hpp>\n#include <tessera/exec/cpu.hpp>\n")
tessera_check_example(neuzip.hpp "std::vector<tessera::bfloat16>& weights" "#include <vector>\n")
tessera_check_example(cut_cross_entropy.hpp
  "${loss}, ${given_result} hidden_gradient, ${given_result} classifier_gradient")
tessera_check_example(sage_attention2.hpp "${attention}, tessera::view<float, 3> log_sum_exp")
tessera_check_example(minicache.hpp "std::int64_t slots, std::int64_t tokens, std::int64_t blocks, \
  std::int64_t key_heads, std::int64_t channels, int layers")
tessera_check_example(shadow_kv.hpp "std::int64_t query_heads, std::int64_t key_heads, std::int64_t channels, \
  std::int64_t sequence, std::int64_t steps, tessera::rotary_embedding const& rotary, ${given_tokens} keys, \
  ${given_tokens} values, ${given_tokens} queries, ${given_tokens} new_keys, ${given_tokens} new_values, \
  tessera::view<tessera::bfloat16, 3> result")
tessera_check_pieces(WITH_NVCC nvcc "" shadow_kv.hpp:2
  "std::int64_t query_heads, std::int64_t key_heads, std::int64_t channels")
tessera_check_example(algorithm/attention/attention.hpp "${cpu_memory}, ${attention}"
  "${cpu_includes}using namespace tessera;\n")
tessera_check_example(algorithm/loss/chosen_log_probabilities.hpp
  "tessera::cpu const& exec, ${given_matrix} hidden, ${given_matrix} classifier, \
  tessera::matrix_view<std::int32_t const> entries, tessera::array_view<float const> log_sum_exp, \
  tessera::matrix_view<float> log_probabilities"
  "#include <tessera/exec/cpu.hpp>\n")
tessera_check_example(algorithm/loss/linear_distillation.hpp
  "tessera::cpu const& exec, std::int64_t tokens, std::int64_t vocabulary, std::int64_t channels, \
  std::int64_t teacher_channels, ${given_matrix} hidden, ${given_matrix} classifier, ${given_matrix} teacher_hidden, \
  ${given_matrix} teacher_classifier, tessera::array_view<float> value, ${given_result} hidden_gradient, \
  ${given_result} classifier_gradient"
  "${cpu_includes}#include <tessera/core/bfloat16.hpp>\n")
tessera_check_example(algorithm/loss/linear_loss.hpp
  "${cpu_memory}, ${loss}, tessera::linear_loss_options const& options"
  "${cpu_includes}using namespace tessera;\n")
tessera_check_example(algorithm/loss/soft_target_loss.hpp
  "tessera::cpu const& exec, std::int64_t tokens, std::int64_t vocabulary, std::int64_t channels, \
  ${given_matrix} hidden, ${given_matrix} classifier, tessera::matrix_view<std::int32_t const> entries, \
  tessera::matrix_view<float const> entry_weights, tessera::array_view<float> value, ${given_result} hidden_gradient, \
  ${given_result} classifier_gradient"
  "${cpu_includes}")
tessera_check_example(algorithm/loss/vocabulary_parallel.hpp
  "tessera::cpu const& exec, std::int64_t tokens, std::int64_t own_entries, std::int64_t first_entry, \
  std::int64_t vocabulary, std::int64_t channels, ${given_matrix} hidden, ${given_matrix} own_rows, \
  tessera::array_view<std::int64_t const> labels, tessera::array_view<float> value, ${given_result} hidden_gradient, \
  ${given_result} own_gradient"
  "${cpu_includes}using namespace tessera;\n")
tessera_check_example(algorithm/loss/vocabulary_parallel_entries.hpp
  "tessera::cpu const& exec, std::int64_t tokens, std::int64_t own_entries, std::int64_t first_entry, \
  std::int64_t vocabulary, std::int64_t channels, ${given_matrix} hidden, ${given_matrix} own_rows, \
  tessera::matrix_view<std::int32_t const> entries, tessera::matrix_view<float const> entry_weights, \
  tessera::array_view<float> value, tessera::array_view<float> lse, tessera::matrix_view<float> log_probabilities, \
  ${given_result} hidden_gradient, ${given_result} own_gradient"
  "${cpu_includes}using namespace tessera;\n")
tessera_check_example(algorithm/loss/vocabulary_parallel_distillation.hpp
  "tessera::cpu const& exec, std::int64_t tokens, std::int64_t own_entries, std::int64_t first_entry, \
  std::int64_t vocabulary, std::int64_t channels, std::int64_t teacher_channels, ${given_matrix} hidden, \
  ${given_matrix} own_rows, ${given_matrix} teacher_hidden, ${given_matrix} own_teacher_rows, \
  tessera::array_view<float> value, ${given_result} hidden_gradient, ${given_result} own_gradient"
  "${cpu_includes}#include <tessera/core/bfloat16.hpp>\nusing namespace tessera;\n")
tessera_check_example(algorithm/loss/with_logit_maps.hpp
  "tessera::cpu const& exec, ${given_matrix} hidden, ${given_matrix} classifier, ${given_matrix} teacher_hidden, \
  ${given_matrix} teacher_classifier, tessera::array_view<float const> log_prior, tessera::array_view<float> value, \
  tessera::workspace const& space"
  "${cpu_includes}struct adjusted {\n  tessera::array_view<float const> log_prior;\n\
  float operator()(float logit, std::int64_t, std::int64_t entry) const { return logit + log_prior[entry];}\n\
  float slope(float, std::int64_t, std::int64_t) const { return 1.0F;}\n\
  float steepest() const { return 1.0F;}\n};\n")
tessera_check_example(algorithm/loss/sequence_parallel.hpp
  "tessera::cpu const& exec, std::int64_t tokens, std::int64_t own_entries, std::int64_t first_entry, \
  std::int64_t vocabulary, std::int64_t channels, ${given_matrix} own_hidden, ${given_matrix} own_rows, \
  tessera::array_view<std::int64_t const> labels, tessera::array_view<float> value, ${given_result} own_gradient, \
  ${given_result} rows_gradient"
  "${cpu_includes}using namespace tessera;\n")
tessera_check_example(algorithm/loss/with_teacher_classifier.hpp
  "tessera::cpu const& exec, ${given_matrix} hidden, tessera::matrix_view<float const> weights, \
  ${given_matrix} teacher_hidden, tessera::matrix_view<tessera::float8_e4m3 const> codes, \
  tessera::matrix_view<tessera::scaled_float_params const> scales, tessera::array_view<float> value, \
  tessera::workspace const& space"
  "${cpu_includes}")
tessera_check_example(algorithm/loss/hidden_progress.hpp
  "tessera::cpu const& exec, loss::inputs<std::int64_t> const& inputs, \
  tessera::linear_loss_gradients<tessera::bfloat16> const& gradients, tessera::workspace const& space"
  "#include <cstdio>\n#include <tessera/cut_cross_entropy.hpp>\n${cpu_includes}\
using loss = tessera::cut_cross_entropy;\n")
tessera_check_example(algorithm/loss/with_classifier.hpp
  "tessera::cpu const& exec, ${given_matrix} hidden, tessera::matrix_view<float const> weights, \
  tessera::array_view<std::int64_t const> labels, tessera::matrix_view<tessera::float8_e4m3 const> codes, \
  tessera::matrix_view<tessera::scaled_float_params const> scales, tessera::array_view<float> value, \
  tessera::matrix_view<float> hidden_gradient, tessera::matrix_view<float> classifier_gradient, \
  tessera::workspace const& space"
  "${cpu_includes}")
tessera_check_example(algorithm/paged_cache/cross_layer_cache.hpp
  "${cpu_memory}, int layer, std::int64_t n, \
  tessera::cache_extents const& extents, tessera::cache_sequences const& sequences, \
  tessera::array_view<std::int32_t> pages, ${given_heads} k0, ${given_heads} k1, ${given_heads} v0, \
  ${given_heads} v1, ${given_heads} k, ${given_heads} v, ${given_heads} q, \
  tessera::head_view<tessera::bfloat16> result, tessera::workspace const& attention_space"
  "${cpu_includes}using namespace tessera;\n")
tessera_check_example(reduce/write_top_entries.hpp
  "${loss}, tessera::matrix_view<std::int32_t> entries, tessera::matrix_view<float> log_probabilities")
