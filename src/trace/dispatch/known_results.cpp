#include "trace/dispatch/known_results.h"

#include <ATen/core/dispatch/Dispatcher.h>

namespace ahead::tracing {
namespace {

thread_local const KnownResults* innermost_results = nullptr;

}  // namespace

KnownResults::KnownResults(const c10::OperatorHandle& op, const std::vector<TensorMeta>& results)
    : before_(innermost_results), op_(op), results_(results) {
  innermost_results = this;
}

KnownResults::~KnownResults() {
  innermost_results = before_;
}

const std::vector<TensorMeta>* KnownResults::find(const c10::OperatorHandle& op) {
  return innermost_results != nullptr && innermost_results->op_ == op ? &innermost_results->results_
                                                                      : nullptr;
}

}  // namespace ahead::tracing
