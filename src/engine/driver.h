#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/graph_task.h>

#include <memory>
#include <string>
#include <vector>

#include "ahead/compiled_autograd.h"
#include "base/libtorch.h"

namespace ahead::engine {

/// How the backwards of this thread are to be run; null: in the eager engine.
struct Settings {
  compiled_autograd::Options options;
  const std::string* backend;  ///< interned
};
std::shared_ptr<const Settings> current_settings();

/// Whether a captured backward is running on this thread.
bool is_running();

/// What LibTorch's engine calls instead of running a backward itself.
torch::autograd::variable_list run_backward(const NodePtr& root,
                                            const torch::autograd::GraphTask& task,
                                            bool accumulate_grad,
                                            const torch::autograd::edge_list& outputs);

}  // namespace ahead::engine
