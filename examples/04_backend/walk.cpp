#include "walk.h"

#include <ATen/ScalarOps.h>
#include <torch/torch.h>

#include <map>

namespace {

using ahead::Argument;
using ahead::Graph;
using ahead::Node;
using ahead::Value;
using at::Tensor;
using Values = std::vector<Tensor>;

/// An argument as the operator takes it; values are looked up by their number.
c10::IValue evaluate(const Argument& argument, const c10::Type& type, const Values& values) {
  if (argument.is_value()) return values[argument.value()->id()];
  if (argument.is_list()) {
    c10::List<Tensor> list;
    for (const Argument& element : argument.list()) {
      list.push_back(evaluate(element, *c10::TensorType::get(), values).toTensor());
    }
    return list;
  }
  const c10::IValue& constant = argument.constant();
  if (type.kind() != c10::TypeKind::TensorType) return constant;
  if (constant.isNone()) return Tensor();
  Tensor number = c10::scalar_to_tensor(constant.toScalar());  // the 2 of x * 2
  number.unsafeGetTensorImpl()->set_wrapped_number(true);
  return number;
}

void run_node(const Node& node, Values& values) {
  TORCH_CHECK(node.op().in_dispatcher(), "walk: there are no sub-graphs here.");
  torch::jit::Stack stack;
  Values written;  // a copy_ to an argument of the program has its new contents as a result
  for (size_t i = 0; i < node.args().size(); ++i) {
    const c10::Argument& declared = node.op().schema().arguments()[i];
    stack.push_back(evaluate(node.args()[i], *declared.type(), values));
    const c10::AliasInfo* aliases = declared.alias_info();
    if (aliases != nullptr && aliases->isWrite()) written.push_back(stack.back().toTensor());
  }
  node.op().handle().callBoxed(stack);
  Values returned;
  for (const c10::IValue& value : stack) {
    if (value.isTensorList()) {
      for (const Tensor& tensor : value.toTensorVector()) returned.push_back(tensor);
    } else {
      returned.push_back(value.isTensor() ? value.toTensor() : Tensor());
    }
  }
  returned.insert(returned.end(), written.begin(), written.end());
  TORCH_CHECK(returned.size() == node.results().size(), node.op().name(), ": other results");
  for (size_t i = 0; i < returned.size(); ++i) {
    if (const Value* result = node.results()[i]) values[result->id()] = returned[i];
  }
}

}  // namespace

ahead::aot::Executable walk(const Graph& graph, const std::vector<ahead::TensorMeta>&) {
  std::map<std::string, int> counts;
  for (const Node& node : graph.nodes()) ++counts[node.op().name()];
  std::printf("       compiling %zu nodes:", graph.num_nodes());
  for (const auto& [name, count] : counts) std::printf(" %s x%d", name.c_str(), count);
  std::printf("\n");

  auto program = std::make_shared<const Graph>(graph);
  return [program](std::vector<Tensor>&& args) {
    Values values(program->value_capacity());
    for (size_t i = 0; i < args.size(); ++i) {
      values[program->inputs()[i].value->id()] = std::move(args[i]);
    }
    for (const Node& node : program->nodes()) run_node(node, values);
    std::vector<Tensor> results;
    for (const Graph::Output& output : program->outputs()) {
      results.push_back(output.value == nullptr ? Tensor() : values[output.value->id()]);
    }
    return results;
  };
}
