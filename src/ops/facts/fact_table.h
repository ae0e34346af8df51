#pragma once

#include <array>
#include <optional>

#include "ops/facts/facts.h"

namespace ahead::ops {

/// One row of the table of facts: what cannot be derived from an `aten` operator's schema and tags.
/// It holds for all overloads of the name, unless an overload has a row of its own, and for the
/// in-place and `out` forms.
struct FactRow {
  struct More {
    const char* reads = nullptr;  ///< OpFacts::data_dependent
    FlopFormula flops = FlopFormula::None;
    std::optional<Cost> cost = {};            ///< else what the class suggests
    std::optional<Recompute> recompute = {};  ///< else what the class suggests
    const char* why = nullptr;                ///< the reason for `recompute`
    std::optional<ViewKind> view = {};        ///< else what the schema says
    int8_t random_if = -1;                    ///< OpFacts::random_if
    bool not_random = false;                  ///< tagged as random, but draws nothing itself
    bool effect = false;                      ///< has an effect the schema does not show
    std::array<int8_t, 2> writes = {-1, -1};  ///< OpFacts::hidden_writes
    const char* functional = nullptr;  ///< OpFacts::functional where the name does not give it
  };

  const char* name;  ///< as in the schema, with or without the overload: `mm`, `pow_.Scalar`
  OpClass op_class;
  More more = {};
};

/// The rows, from the first to one past the last.
const FactRow* fact_table_begin();
const FactRow* fact_table_end();

}  // namespace ahead::ops
