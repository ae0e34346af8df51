#include "runtime/compile_request.h"

namespace ahead::runtime {

aot::CompileRequest request_for(const Graph& graph, std::string name, int64_t num_params_buffers) {
  aot::CompileRequest request{graph, {}};
  request.name = std::move(name);
  for (const auto& [value, slot, captured] : graph.inputs()) {
    const bool is_parameter = slot.kind == Slot::Kind::Primal && slot.index < num_params_buffers;
    request.static_inputs.push_back(is_parameter || slot.kind == Slot::Kind::Captured);
    request.inputs.push_back(value->meta);
    if (request.target.is_cpu()) request.target = value->meta.device;
  }
  return request;
}

}  // namespace ahead::runtime
