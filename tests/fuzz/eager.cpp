#include "fuzz/eager.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include "ahead/checkpoint.h"
#include "support/eager.h"

namespace ahead::fuzz {

void seed_generator() {
  torch::manual_seed(4242);
}

void set_random_state(const at::Tensor& state) {
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

Tensors tensors_of(const std::vector<MadeInput>& inputs) {
  Tensors tensors;
  for (const MadeInput& input : inputs) tensors.push_back(input.tensor);
  return tensors;
}

EagerRun::EagerRun(const Program& program, bool is_checkpointed)
    : inputs_(make_inputs(program.inputs)) {
  for (const MadeInput& input : inputs_) versions_.push_back(input.tensor._version());
  const Tensors tensors = tensors_of(inputs_);
  seed_generator();
  at::AutoGradMode mode(!program.no_grad);
  try {
    const aot::FlatFunction function = function_of(program, tensors);
    const Tensors arguments = arguments_of(program, tensors);
    results_ = is_checkpointed
                   ? checkpoint(CheckpointPolicy::recompute_everything(), function, arguments)
                   : function(arguments);
  } catch (const std::exception& error) {
    error_ = error.what();
  }
  random_state_ = ahead::random_state();
}

Tensors EagerRun::roots() const {
  Tensors roots;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (mutated(i) && inputs_[i].tensor.requires_grad()) roots.push_back(inputs_[i].tensor);
  }
  for (const at::Tensor& result : results_) {
    if (result.requires_grad()) roots.push_back(result);
  }
  return roots;
}

Tensors EagerRun::backward(const Tensors& roots, const Tensors& tangents) {
  torch::autograd::edge_list from, to;
  Tensors found(inputs_.size());
  for (const at::Tensor& root : roots) {
    from.push_back(torch::autograd::impl::gradient_edge(root));
    TORCH_CHECK(from.back().is_valid(), "eager lost the history of a view");
  }
  for (const MadeInput& input : inputs_) {
    if (input.edge.is_valid()) to.push_back(input.edge);
  }
  if (from.empty() || to.empty()) return found;
  set_random_state(random_state_);
  // The engine replaces gradients of another shape than the history has.
  const Tensors given = tangents;
  const Tensors gradients = torch::autograd::Engine::get_default_engine().execute(
      from, given, /*keep_graph=*/false, /*create_graph=*/false, /*accumulate_grad=*/false, to);
  random_state_ = ahead::random_state();
  auto next = gradients.begin();
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].edge.is_valid()) found[i] = inputs_[i].gradient(*next++);
  }
  return found;
}

}  // namespace ahead::fuzz
