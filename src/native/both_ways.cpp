#include "native/both_ways.h"

#include <ATen/core/jit_type.h>

#include <exception>
#include <utility>

#include "ahead/interpret.h"

namespace ahead::native {
namespace {

/// Which dtypes others take the place of.
class Precision {
 public:
  explicit Precision(const Graph& graph) {
    const auto look = [&](const TensorMeta& meta) { has_double_ |= meta.dtype == at::kDouble; };
    for (const Graph::Input& input : graph.inputs()) look(input.value->meta);
    for (const Node& node : graph.nodes())
      for (const Value* result : node.results())
        if (result != nullptr) look(result->meta);
  }

  at::ScalarType of(at::ScalarType dtype) const {
    if (!at::isFloatingType(dtype)) return dtype;
    return has_double_ ? at::kFloat : at::kDouble;
  }

 private:
  bool has_double_ = false;
};

/// Whether an operator takes a dtype at this position.
bool takes_dtype(const Operator& op, size_t position) {
  c10::TypePtr type = op.schema().arguments()[position].real_type();
  if (type->kind() == c10::TypeKind::OptionalType)
    type = type->castRaw<c10::OptionalType>()->getElementType();
  return type->kind() == c10::TypeKind::ScalarTypeType;
}

/// The same graph over other dtypes.
Graph with_precision(Graph graph, const Precision& precision) {
  const auto change = [&](Value* value) {
    if (value != nullptr) value->meta.dtype = precision.of(value->meta.dtype);
  };
  for (const Graph::Input& input : graph.inputs()) change(input.value);
  for (Node& node : graph.nodes()) {
    for (Value* result : node.results()) change(result);
    for (size_t i = 0; i < node.args().size(); ++i) {
      const Argument& argument = node.args()[i];
      if (!argument.is_constant() || !argument.constant().isInt() || !takes_dtype(node.op(), i))
        continue;
      const auto dtype = static_cast<at::ScalarType>(argument.constant().toInt());
      graph.set_argument(&node, i, c10::IValue(static_cast<int64_t>(precision.of(dtype))));
    }
  }
  return graph;
}

class BothWays {
 public:
  BothWays(std::string graph, Group group, std::shared_ptr<const KernelCall> kernel,
           std::shared_ptr<GroupObserver> observer)
      : graph_(std::move(graph)),
        group_(std::move(group)),
        kernel_(std::move(kernel)),
        observer_(std::move(observer)),
        precision_(*group_.graph),
        aten_(*group_.graph),
        aten_otherwise_(with_precision(*group_.graph, precision_)) {}

  std::vector<at::Tensor> operator()(const std::vector<at::Tensor>& arguments) const {
    // The arguments stay, so that the interpreter writes to none of them.
    std::vector<at::Tensor> by_aten = aten_(std::vector<at::Tensor>(arguments));
    const std::vector<at::Tensor> by_kernel = (*kernel_)(std::vector<at::Tensor>(arguments));
    observer_->look_at({graph_, group_, arguments, by_kernel, by_aten, otherwise(arguments)});
    return by_aten;
  }

 private:
  std::vector<at::Tensor> otherwise(const std::vector<at::Tensor>& arguments) const {
    std::vector<at::Tensor> converted;
    for (const at::Tensor& argument : arguments)
      converted.push_back(argument.to(precision_.of(argument.scalar_type())));
    try {
      return aten_otherwise_(std::move(converted));
    } catch (const std::exception&) {
      return {};  // an operator that there is for one dtype only
    }
  }

  const std::string graph_;
  const Group group_;
  const std::shared_ptr<const KernelCall> kernel_;
  const std::shared_ptr<GroupObserver> observer_;
  const Precision precision_;
  const Interpreter aten_, aten_otherwise_;
};

}  // namespace

aot::Executable both_ways(std::string graph, Group group, std::shared_ptr<const KernelCall> kernel,
                          std::shared_ptr<GroupObserver> observer) {
  auto both = std::make_shared<const BothWays>(std::move(graph), std::move(group),
                                               std::move(kernel), std::move(observer));
  return [both](std::vector<at::Tensor>&& arguments) { return (*both)(arguments); };
}

}  // namespace ahead::native
