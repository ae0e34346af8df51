#pragma once

#include <cstdint>
#include <vector>

#include "native/loops/kernel.h"

namespace ahead::native {

/// One pass over the columns of a row, and what is done for the row before it.
struct Phase {
  std::vector<TermId> row_terms;   ///< computed before the pass, once for the row
  std::vector<TermId> terms;       ///< computed in the pass, for each column, in this order
  std::vector<TermId> reductions;  ///< of what the pass computes; known after it
  std::vector<size_t> row_stores;  ///< of Kernel::stores, before the pass
  std::vector<size_t> stores;      ///< of Kernel::stores, in the pass
  std::vector<size_t> row_sums;    ///< of Kernel::sums, before the pass
  std::vector<size_t> sums;        ///< of Kernel::sums, in the pass
  std::vector<TermId> kept;        ///< go to their row buffers in the pass

  bool has_pass() const {
    return !reductions.empty() || !stores.empty() || !sums.empty() || !kept.empty();
  }
};

/// A kernel in the order in which a row is worked off.
struct Phases {
  /// What is the same for all rows, computed before the first.
  std::vector<TermId> constants;
  std::vector<Phase> phases;
  /// For each term that a later pass needs and that costs more to compute again than to read: the
  /// buffer of one row in which it is kept; -1 for others.
  std::vector<int32_t> row_buffers;
  int32_t num_row_buffers = 0;
  /// The phase in which each term is computed first.
  std::vector<int32_t> level;
};

/// Decides which pass computes what, and what is kept from one to the next.
Phases divide(const Kernel& kernel);

}  // namespace ahead::native
