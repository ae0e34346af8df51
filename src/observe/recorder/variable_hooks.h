#pragma once

namespace ahead::observe {

/// Wraps LibTorch's VariableHooks, so that the recorder is told of what happens to tensors without
/// an operator. To be called once.
void install_variable_hooks();

}  // namespace ahead::observe
