#pragma once

#include <torch/csrc/api/include/torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "ahead/detail/host_parts.h"
#include "ahead/state.h"

namespace ahead::compiling {

/// What modules say about how they run, besides their tensors.
class ModuleWatch {
 public:
  /// The training flag of each module, the probability of each that drops something, and the
  /// numbers that were announced with AHEAD_STATE; all by their bits.
  using Readings = std::vector<uint64_t>;

  /// Watches a module and all modules in it.
  void add(const std::shared_ptr<torch::nn::Module>& module) { add(module, nullptr); }
  /// The same for the compiled module, whose own bytes are looked at anyway.
  void add_callable(const std::shared_ptr<torch::nn::Module>& module) { add(module, module.get()); }
  Readings read() const;
  /// Whether they say the same now.
  bool holds(const Readings& before) const;
  /// Where the tensors are that were announced.
  const detail::HostParts& tensors() const { return tensors_; }

 private:
  struct Watched {
    std::shared_ptr<torch::nn::Module> module;
    std::vector<detail::AnnouncedMember> numbers;  ///< the probability among them
  };
  void add(const std::shared_ptr<torch::nn::Module>& module, const torch::nn::Module* callable);

  std::vector<Watched> modules_;
  detail::HostParts tensors_;
};

}  // namespace ahead::compiling
