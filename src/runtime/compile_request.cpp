#include "runtime/compile_request.h"

namespace ahead::runtime {

bool is_static(Slot slot, const StaticArguments& arguments) {
  const auto index = static_cast<size_t>(slot.index);
  return slot.kind == Slot::Kind::Captured ||
         (slot.kind == Slot::Kind::Primal && index < arguments.size() && arguments[index]);
}

aot::CompileRequest request_for(const Graph& graph, std::string name,
                                const StaticArguments& arguments) {
  aot::CompileRequest request{graph, {}};
  request.name = std::move(name);
  for (const auto& [value, slot, captured] : graph.inputs()) {
    request.static_inputs.push_back(is_static(slot, arguments));
    request.inputs.push_back(value->meta);
    if (request.target.is_cpu()) request.target = value->meta.device;
  }
  return request;
}

}  // namespace ahead::runtime
