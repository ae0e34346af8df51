#include "plan/strided_views.h"

#include <algorithm>
#include <utility>

#include "ahead/errors.h"
#include "ops/facts/node_facts.h"

namespace ahead::compiling {
namespace {

/// The places of the first and the last element in memory.
std::pair<int64_t, int64_t> reach_of(const TensorMeta& meta) {
  int64_t last = meta.offset.fixed();
  for (size_t i = 0; i < meta.sizes.size(); ++i)
    last += (meta.sizes[i].fixed() - 1) * meta.strides[i].fixed();
  return {meta.offset.fixed(), last};
}

bool is_known(const TensorMeta& meta) {
  return meta.is_fixed() && meta.numel().fixed() != 0;
}

/// The tensor whose contents, perhaps new ones by now, a value is a view of.
const Value* written_root(Value* value) {
  Value* root = ops::root_of(value);
  while (root->producer() != nullptr) {
    const std::string& name = root->producer()->op().name();
    if (name != "aten.copy" && name.find("_scatter") == std::string::npos) break;
    root = ops::root_of(root->producer()->args()[0].value());
  }
  return root;
}

}  // namespace

void check_strided_views(const Graph& graph, const std::vector<runtime::Epilogue::Write>& writes,
                         const std::vector<at::Tensor>& inputs) {
  static const Operator* const as_strided = Operator::find("aten.as_strided");
  if (writes.empty()) return;
  for (const Node& node : graph.nodes()) {
    if (&node.op() != as_strided || node.phase != Phase::Forward || node.has(Tag::NoGrad)) continue;
    const Value* root = written_root(node.args()[0].value());
    if (root->producer() != nullptr || !is_known(root->meta) || !is_known(node.result()->meta))
      continue;
    const auto index = static_cast<size_t>(root->index());
    if (index >= inputs.size() || !inputs[index].is_view() || !inputs[index].requires_grad())
      continue;
    const bool is_written =
        std::any_of(writes.begin(), writes.end(), [&](const runtime::Epilogue::Write& write) {
          return static_cast<size_t>(write.input) == index && write.changes_contents();
        });
    const auto [first, last] = reach_of(node.result()->meta);
    const auto [first_there, last_there] = reach_of(root->meta);
    if (is_written && (first < first_there || last > last_there))
      throw Unsupported("compile",
                        "as_strided: a view that reaches beyond an argument, which is a view "
                        "itself, has a gradient and is written to. Pass the tensor that has all of "
                        "the memory.");
  }
}

}  // namespace ahead::compiling
