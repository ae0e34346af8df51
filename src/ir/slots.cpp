#include "ir/slots.h"

#include <algorithm>

namespace ahead {
namespace {

template <class Entries>
bool any_of(const Entries& entries, std::initializer_list<Slot::Kind> kinds) {
  return std::any_of(entries.begin(), entries.end(), [&](const auto& entry) {
    return std::find(kinds.begin(), kinds.end(), entry.slot.kind) != kinds.end();
  });
}

}  // namespace

bool names_own_positions(const Graph& graph) {
  using Kind = Slot::Kind;
  if (any_of(graph.inputs(), {Kind::Saved})) return false;
  const bool has_gradients =
      any_of(graph.inputs(), {Kind::Tangent}) || any_of(graph.outputs(), {Kind::GradOf});
  const bool has_results = any_of(graph.outputs(), {Kind::Output, Kind::MutatedInput,
                                                    Kind::IntermediateBase, Kind::AccumulatedGrad});
  return has_results || !has_gradients;
}

bool has_tangents(const Graph& graph) {
  return any_of(graph.inputs(), {Slot::Kind::Tangent});
}

}  // namespace ahead
