#include "engine/walk/chains.h"

#include "runtime/node/hand_over.h"

namespace ahead::engine {
namespace {

/// The steps of a chain, from its head on.
std::vector<size_t> steps_of_chain(size_t head, const Backward& backward) {
  std::vector<size_t> steps{head};
  const torch::autograd::Node* link = runtime::next_link(*backward.steps()[head].node);
  for (size_t i = head + 1; i < backward.steps().size() && link != nullptr; ++i) {
    if (backward.steps()[i].node != link) continue;
    steps.push_back(i);
    link = runtime::next_link(*link);
  }
  return steps;
}

/// Of chains that begin before `end`, those that reach `step`.
void leave_chains(size_t end, size_t step, const Backward& backward,
                  std::vector<Step::Kind>& kinds) {
  for (size_t head = 0; head < end; ++head) {
    if (runtime::next_link(*backward.steps()[head].node) == nullptr) continue;
    const std::vector<size_t> chain = steps_of_chain(head, backward);
    if (chain.back() < step) continue;
    for (const size_t one : chain) kinds[one] = Step::Kind::Eager;
  }
}

}  // namespace

void leave_chains_at(size_t step, const Backward& backward, std::vector<Step::Kind>& kinds) {
  leave_chains(step + 1, step, backward, kinds);
}

void leave_chains_across(size_t step, const Backward& backward, std::vector<Step::Kind>& kinds) {
  leave_chains(step, step, backward, kinds);
}

}  // namespace ahead::engine
