#include "export/module_state.h"

#include <unordered_map>

#include "base/private_members.h"

namespace ahead::exporting {
namespace {

std::vector<NamedTensor> by_tensor(const torch::OrderedDict<std::string, at::Tensor>& registered) {
  std::vector<NamedTensor> all;
  std::unordered_map<const c10::TensorImpl*, size_t> known;
  for (const auto& item : registered) {
    if (!item.value().defined()) continue;
    const auto [first, is_new] = known.emplace(item.value().unsafeGetTensorImpl(), all.size());
    if (is_new) {
      all.push_back({item.value(), item.key(), {}});
    } else {
      all[first->second].also.push_back(item.key());
    }
  }
  return all;
}

}  // namespace

ModuleState::ModuleState(const torch::nn::Module& module)
    : parameters(by_tensor(module.named_parameters())),
      buffers(by_tensor(module.named_buffers())) {}

const NamedTensor* ModuleState::find(const at::Tensor& tensor) const {
  for (const std::vector<NamedTensor>* kind : {&parameters, &buffers}) {
    for (const NamedTensor& named : *kind) {
      if (named.tensor.is_same(tensor)) return &named;
    }
  }
  return nullptr;
}

BufferWatch::BufferWatch(const torch::nn::Module& module) {
  for (const std::shared_ptr<torch::nn::Module>& part : module.modules()) {
    for (const auto& item : part->named_buffers(/*recurse=*/false))
      watched_.push_back({part, item.key(), item.value()});
  }
}

BufferWatch::~BufferWatch() {
  take();
}

std::vector<BufferWatch::Assigned> BufferWatch::take() {
  std::vector<Assigned> assigned;
  for (const Watched& watched : watched_) {
    at::Tensor& now = registered_buffer(*watched.module, watched.name);
    if (now.is_same(watched.buffer)) continue;
    assigned.push_back({watched.buffer, std::exchange(now, watched.buffer)});
  }
  return assigned;
}

}  // namespace ahead::exporting
