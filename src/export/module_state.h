#pragma once

#include <torch/csrc/api/include/torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

namespace ahead::exporting {

/// A registered tensor. One that is registered several times has several names.
struct NamedTensor {
  at::Tensor tensor;
  std::string name;
  std::vector<std::string> also;
};

/// The parameters and buffers of a module and of those in it, in the order in which the module
/// lists them.
struct ModuleState {
  std::vector<NamedTensor> parameters, buffers;

  explicit ModuleState(const torch::nn::Module& module);
  /// The registered tensor that this is; null: none.
  const NamedTensor* find(const at::Tensor& tensor) const;
};

/// While it exists, notices which buffers of a module are assigned: are another tensor than before,
/// rather than written to. At the end the module has the old ones.
class BufferWatch {
 public:
  explicit BufferWatch(const torch::nn::Module& module);
  ~BufferWatch();
  BufferWatch(const BufferWatch&) = delete;
  BufferWatch& operator=(const BufferWatch&) = delete;

  struct Assigned {
    at::Tensor buffer, value;
  };
  /// What was assigned since. The module has its old buffers again.
  std::vector<Assigned> take();

 private:
  struct Watched {
    std::shared_ptr<torch::nn::Module> module;
    std::string name;
    at::Tensor buffer;
  };
  std::vector<Watched> watched_;
};

}  // namespace ahead::exporting
