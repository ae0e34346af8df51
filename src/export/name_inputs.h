#pragma once

#include <vector>

#include "ahead/exported.h"
#include "export/module_state.h"

namespace ahead::exporting {

/// What is known of a traced module besides its graph.
struct TracedModule {
  Graph graph;
  ModuleState state;
  /// How many results the module returned; the graph's further ones are the new contents of
  /// `assigned`, in order.
  size_t num_results = 0;
  std::vector<at::Tensor> assigned;
};

/// Puts named inputs in the place of captured tensors: parameters and buffers, all of them and in
/// the module's order, then constants. Orders outputs by kind. Throws Unsupported for a captured
/// tensor that is written to, or that would get a gradient, without being registered.
aot::ExportedModule name_inputs(const TracedModule& traced, const aot::ExportOptions& options);

}  // namespace ahead::exporting
