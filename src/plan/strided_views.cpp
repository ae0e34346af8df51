#include "plan/strided_views.h"

#include <algorithm>
#include <unordered_set>

#include "ahead/errors.h"
#include "ops/facts/node_facts.h"

namespace ahead::compiling {
namespace {

/// Calls use(place) for the place in memory of each element.
template <class Use>
void for_each_place(const TensorMeta& meta, const Use& use, size_t dim = 0, int64_t place = 0) {
  if (dim == 0) place = meta.offset.fixed();
  if (dim == meta.sizes.size()) return use(place);
  for (int64_t i = 0; i < meta.sizes[dim].fixed(); ++i)
    for_each_place(meta, use, dim + 1, place + i * meta.strides[dim].fixed());
}

/// Whether a view has elements that its root has not: behind it, or in its gaps.
bool reaches_beyond(const TensorMeta& view, const TensorMeta& root) {
  std::unordered_set<int64_t> places;
  for_each_place(root, [&](int64_t place) { places.insert(place); });
  bool beyond = false;
  for_each_place(view, [&](int64_t place) { beyond |= places.count(place) == 0; });
  return beyond;
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
    if (is_written && reaches_beyond(node.result()->meta, root->meta))
      throw Unsupported("compile",
                        "as_strided: a view that reaches beyond an argument, which is a view "
                        "itself, has a gradient and is written to. Pass the tensor that has all of "
                        "the memory.");
  }
}

}  // namespace ahead::compiling
