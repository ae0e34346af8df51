#pragma once

namespace ahead::observe {

/// Stands in front of what LibTorch does to tensors without calling an operator, to tell the
/// recorder of it. To be called once.
void install_variable_hooks();

}  // namespace ahead::observe
