#pragma once

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>

namespace ahead {

/// Hooks of tensors that are made again together when one of them is asked for: to ask for the
/// others of a group is then no more than to fetch them.
class GroupedHooks : public torch::autograd::SavedVariableHooks {
 public:
  /// The same for all tensors of a group, as long as one of their hooks lives.
  virtual const void* group() const = 0;
};

/// Makes the pack and unpack hooks of the tensors that autograd saves.
class SavedTensorPacker {
 public:
  virtual ~SavedTensorPacker() = default;
  /// The hooks of the next tensor to be saved.
  virtual std::unique_ptr<torch::autograd::SavedVariableHooks> make_hooks() = 0;
};

/// A backward that LibTorch's engine is asked to run.
struct BackwardCall {
  const torch::autograd::edge_list& roots;
  const torch::autograd::variable_list& inputs;
  bool keep_graph;
  bool create_graph;
  bool accumulate_grad;
  const torch::autograd::edge_list& outputs;

  torch::autograd::variable_list run_in(torch::autograd::Engine& engine) const {
    return engine.execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
  }
};

/// What stands before LibTorch's default engine, once somebody needs it: hooks of saved tensors are
/// asked of the thread's packer, backwards go through the gate. All else, and all of it where there
/// is neither, is passed on. There is one such engine for both, so that it does not matter who
/// comes first.
namespace front_engine {

/// Puts it before the engine that LibTorch uses now, unless it is there.
void ensure_installed();

/// Who makes the hooks of tensors that are saved on this thread; null: LibTorch's engine.
SavedTensorPacker*& packer();

/// Who runs a backward, given the engine behind; null: that engine does.
using Gate = torch::autograd::variable_list (*)(torch::autograd::Engine& behind,
                                                const BackwardCall& call);
void set_gate(Gate gate);

}  // namespace front_engine
}  // namespace ahead
