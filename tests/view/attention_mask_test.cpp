// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <limits>

#include <tessera/view/attention_mask.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

bool is_seen(attention_mask const& mask, std::int64_t query, std::int64_t key) {
  key_interval const seen = mask.of(query);
  return key >= seen.first && key < seen.end;
}

}  // namespace

TEST_CASE("a mask shows the keys that its words say, whatever the lengths", "[host]") {
  for (std::int64_t const queries : {0, 1, 5, 9}) {
    for (std::int64_t const keys : {0, 1, 5, 9}) {
      for (std::int64_t const left : {-1, 0, 1, 3, 100}) {
        for (std::int64_t const right : {-1, 0, 2, 100}) {
          attention_mask const mask{queries, keys, left, right};
          int wrong = 0;
          for (std::int64_t query = 0; query < 12; ++query) {
            for (std::int64_t key = 0; key < 12; ++key) {
              std::int64_t const own = query + keys - queries;
              bool const expected =
                  query < queries && key < keys && (left < 0 || key >= own - left) && (right < 0 || key <= own + right);
              wrong += is_seen(mask, query, key) == expected ? 0 : 1;
            }
          }
          CAPTURE(queries, keys, left, right);
          CHECK(wrong == 0);
        }
      }
    }
  }
}

TEST_CASE("the last query sees the last key of a causal mask, and the first ones of many see none", "[host]") {
  attention_mask const decode{1, 1000, -1, 0};
  CHECK((decode.of(0).first == 0 && decode.of(0).end == 1000));
  attention_mask const many{10, 4, -1, 0};
  CHECK(many.of(5).end == 0);
  CHECK(many.of(6).end == 1);
  attention_mask const wide{4, 4, std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::max()};
  CHECK((wide.of(3).first == 0 && wide.of(3).end == 4));
}
