# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
tessera_check_pieces(ON_HOST reduce "#include \"checks/examples/reduce.hpp\"\n#include <tessera/cut_cross_entropy.hpp>"
  reduce/absolute_maximum.hpp ""
  reduce/absolute_maximum_or_nan.hpp ""
  reduce/arg_max.hpp ""
  reduce/attention_softmax.hpp "tessera::online_softmax<float> const& softmax, std::vector<row_piece> const& pieces, \
    float scale, bool is_first_tile, float total"
  reduce/entropy.hpp ""
  reduce/largest_entries.hpp "std::vector<float> const& scores"
  reduce/log_sum_exp.hpp ""
  reduce/logit_reducer.hpp ""
  reduce/maximum.hpp "std::vector<float> const& values"
  reduce/mean.hpp ""
  reduce/minimum_maximum.hpp ""
  reduce/online_softmax.hpp "std::vector<row_piece> const& pieces, float total"
  reduce/pair_products.hpp "std::vector<float> const& a, std::vector<float> const& b, int n"
  reduce/paired.hpp "float score, std::int32_t column"
  reduce/piecewise_linear_softmax.hpp "row_piece const& tile, float scale, float sum, float total"
  reduce/row_finish.hpp "std::enable_if_t<RowFinish<keep_largest, indexed_value<float>>, keep_largest> const& finish"
  reduce/row_fold.hpp "std::vector<row_value> const& values, row_coordinate const& coordinate, \
    row_fold<paired_reducer<entropy_reducer<float>, arg_max_reducer<float>>>::part const& other, \
    float largest, float scale, float sum_of_exponentials, bool is_far, float (*power)(float)"
  reduce/row_parts.hpp "std::vector<row_part<softmax_state<float>, 2>> const& parts"
  reduce/sum.hpp "")
