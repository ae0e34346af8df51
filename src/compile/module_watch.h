#pragma once

#include <torch/csrc/api/include/torch/nn/module.h>

#include <memory>
#include <vector>

namespace ahead::compiling {

/// What modules say about how they run, besides their tensors.
class ModuleWatch {
 public:
  /// The training flag of each module, and the probability of each that drops something.
  using Readings = std::vector<double>;

  /// Watches a module and all modules in it.
  void add(const std::shared_ptr<torch::nn::Module>& module);
  Readings read() const;
  /// Whether they say the same now.
  bool holds(const Readings& before) const;

 private:
  struct Watched {
    std::shared_ptr<torch::nn::Module> module;
    const double* probability = nullptr;  ///< null: it has none
  };
  std::vector<Watched> modules_;
};

}  // namespace ahead::compiling
