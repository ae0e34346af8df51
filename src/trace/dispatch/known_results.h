#pragma once

#include <vector>

#include "ahead/graph.h"

namespace ahead::tracing {

/// While it exists, the operator that this thread calls next, the user's or one whose results are
/// as large as values say, returns tensors that look like this: it was seen to do so, and need not
/// run to find out.
class KnownResults {
 public:
  KnownResults(const c10::OperatorHandle& op, const std::vector<TensorMeta>& results);
  ~KnownResults();
  KnownResults(const KnownResults&) = delete;
  KnownResults& operator=(const KnownResults&) = delete;

  /// What is known of the results of an operator; null: nothing.
  static const std::vector<TensorMeta>* find(const c10::OperatorHandle& op);

 private:
  const KnownResults* const before_;
  const c10::OperatorHandle& op_;
  const std::vector<TensorMeta>& results_;
};

}  // namespace ahead::tracing
