#include "compile/value_sizes.h"

#include <ATen/ops/tensor.h>

#include <algorithm>

#include "ir/slots.h"
#include "ops/facts/facts.h"
#include "ops/facts/node_facts.h"
#include "runtime/backends.h"
#include "runtime/call/call.h"
#include "runtime/compile_request.h"
#include "tensors/below_tracing.h"

namespace ahead::compiling {
namespace {

bool is_check(const Node& node) {
  static const Operator* const check = Operator::find("ahead.expect_sizes");
  return &node.op() == check;
}

/// Whether it may be run once more for little.
bool is_cheap(const Node& node) {
  return node.op().in_dispatcher() && !ops::is_random(node) && !ops::has_effect(node) &&
         ops::facts(node.op()).cost != ops::Cost::Compute;
}

/// Whether a tensor is as large as values say.
bool is_checked(const Value& value) {
  const auto& users = value.users();
  return std::any_of(users.begin(), users.end(), [](const Node* user) { return is_check(*user); });
}

/// Which values those are made of that decide; empty: to find out takes too much.
std::vector<bool> find_needed(const Graph& graph, const std::vector<Value*>& decided) {
  std::vector<bool> needed(graph.value_capacity());
  for (const Value* value : decided) needed[value->id()] = true;
  for (const Node* node = graph.last(); node != nullptr; node = node->prev()) {
    const auto is_needed = [&](const Value* result) {
      return result != nullptr && needed[result->id()];
    };
    if (std::none_of(node->results().begin(), node->results().end(), is_needed)) continue;
    bool depends = false;
    node->for_each_operand([&](const Value* value) {
      needed[value->id()] = true;
      depends |= is_checked(*value);
    });
    if (depends || !is_cheap(*node)) return {};
  }
  return needed;
}

}  // namespace

std::shared_ptr<const ValueSizes> ValueSizes::make(const Graph& general) {
  Graph graph(general);
  std::vector<Value*> decided;
  std::vector<Dims> expected;
  for (const Node& node : graph.nodes()) {
    if (!is_check(node)) continue;
    decided.push_back(node.args()[0].value());
    expected.push_back(decided.back()->meta.sizes);
  }
  const std::vector<bool> needed = find_needed(graph, decided);
  if (decided.empty() || needed.empty()) return nullptr;
  for (size_t i = 0; i < graph.outputs().size(); ++i) graph.set_output(i, nullptr);
  for (Node* node = graph.last(); node != nullptr;) {
    Node* before = node->prev();
    const auto is_needed = [&](const Value* result) {
      return result != nullptr && needed[result->id()];
    };
    if (std::none_of(node->results().begin(), node->results().end(), is_needed)) graph.erase(node);
    node = before;
  }
  for (size_t i = graph.inputs().size(); i-- > 0;) {
    if (graph.inputs()[i].slot.kind == Slot::Kind::Tangent) graph.erase_input(i);
  }
  while (!graph.outputs().empty()) graph.erase_output(graph.outputs().size() - 1);
  int32_t index = 0;
  for (Value* value : decided) graph.add_output(value, {Slot::Kind::Output, index++});
  return std::shared_ptr<const ValueSizes>(new ValueSizes(graph, std::move(expected)));
}

ValueSizes::ValueSizes(const Graph& deciding, std::vector<Dims> expected)
    : expected_(std::move(expected)),
      run_(runtime::find_backend("interpreter")(
          runtime::request_for(deciding, std::string(runtime::function_name) + ".value_sizes"))) {}

std::vector<int64_t> ValueSizes::expected(const std::vector<int64_t>& sizes) const {
  std::vector<int64_t> all;
  for (const Dims& dims : expected_) {
    const auto now = dims.at(sizes);
    all.insert(all.end(), now.begin(), now.end());
  }
  return all;
}

std::vector<int64_t> ValueSizes::find(const runtime::CallPlan& plan,
                                      const std::vector<at::Tensor>& arguments,
                                      const std::vector<int64_t>& sizes) const {
  const tracing::BelowTracing below;
  std::vector<at::Tensor> inputs = runtime::graph_inputs(*plan.prologue, arguments);
  inputs.push_back(at::tensor(sizes, at::kLong));
  std::vector<int64_t> all;
  for (const at::Tensor& decided : run_(std::move(inputs)))
    all.insert(all.end(), decided.sizes().begin(), decided.sizes().end());
  return all;
}

}  // namespace ahead::compiling
