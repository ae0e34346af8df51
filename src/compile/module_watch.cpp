#include "compile/module_watch.h"

#include <torch/csrc/api/include/torch/nn/modules/dropout.h>

namespace ahead::compiling {
namespace {

template <class... Modules>
const double* probability_of(torch::nn::Module& module) {
  const double* found = nullptr;
  const auto look = [&](auto* dropout) {
    if (dropout != nullptr) found = &dropout->options.p();
  };
  (look(module.as<Modules>()), ...);
  return found;
}

}  // namespace

void ModuleWatch::add(const std::shared_ptr<torch::nn::Module>& module) {
  for (auto& part : module->modules()) {
    const double* probability =
        probability_of<torch::nn::DropoutImpl, torch::nn::Dropout2dImpl, torch::nn::Dropout3dImpl,
                       torch::nn::AlphaDropoutImpl, torch::nn::FeatureAlphaDropoutImpl>(*part);
    modules_.push_back({std::move(part), probability});
  }
}

ModuleWatch::Readings ModuleWatch::read() const {
  Readings readings;
  readings.reserve(modules_.size());
  for (const Watched& watched : modules_) {
    readings.push_back(watched.module->is_training() ? 1 : 0);
    if (watched.probability != nullptr) readings.push_back(*watched.probability);
  }
  return readings;
}

bool ModuleWatch::holds(const Readings& before) const {
  size_t next = 0;
  for (const Watched& watched : modules_) {
    if (before[next++] != (watched.module->is_training() ? 1 : 0)) return false;
    if (watched.probability != nullptr && before[next++] != *watched.probability) return false;
  }
  return true;
}

}  // namespace ahead::compiling
