#include "runtime/node/open_results.h"

#include <torch/csrc/autograd/saved_variable.h>

namespace ahead::runtime {

void OpenResults::enter(const CallPlan& plan, const torch::autograd::variable_list& gradients) {
  TORCH_CHECK(!is_closed_, torch::autograd::ERR_BACKWARD_TWICE);
  if (plan.backward.released_with.empty()) return;
  entered_.assign(plan.backward.released_with.size(), false);
  if (closed_.empty()) {
    closed_ = results_;
    closed_.flip();
    closed_.resize(entered_.size());
  }
  for (size_t i = 0; i < closed_.size(); ++i) {
    if (!gradients[i].defined()) continue;
    TORCH_CHECK(!closed_[i], torch::autograd::ERR_BACKWARD_TWICE);
    entered_[i] = true;
  }
}

bool OpenResults::is_last(const CallPlan& plan) const {
  for (size_t i = 0; i < closed_.size(); ++i) {
    bool stays_open = !closed_[i];
    for (size_t k = 0; k < closed_.size(); ++k)
      stays_open &= !(entered_[k] && plan.backward.released_with[k][i]);
    if (stays_open) return false;
  }
  return true;
}

void OpenResults::release(const CallPlan& plan) {
  is_closed_ = is_last(plan);
  for (size_t i = 0; i < closed_.size(); ++i) {
    for (size_t k = 0; k < closed_.size(); ++k) {
      if (entered_[k] && plan.backward.released_with[k][i]) closed_[i] = true;
    }
  }
}

}  // namespace ahead::runtime
