#include "fuzz/snapshot.h"

namespace ahead::fuzz {

Snapshot::Snapshot(const std::vector<MadeInput>& inputs) : random_state_(random_state()) {
  for (const MadeInput& input : inputs) tensors_.emplace_back(input.tensor);
}

std::string Snapshot::difference(const std::vector<MadeInput>& inputs) const {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string changed = tensors_[i].change(inputs[i].tensor);
    if (!changed.empty()) return "x" + std::to_string(i) + ": " + changed;
  }
  return at::equal(random_state_, random_state()) ? "" : "random number generator";
}

}  // namespace ahead::fuzz
