#include <ATen/ScalarOps.h>
#include <ATen/core/function_schema.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/TensorOptions.h>

#include <memory>
#include <unordered_map>

#include "ahead/errors.h"
#include "ahead/passes.h"
#include "ahead/trace.h"
#include "ir/constants.h"
#include "ir/copy.h"
#include "ir/layout_copy.h"
#include "ir/sizes/sized_constants.h"
#include "ops/facts/aliasing.h"
#include "passes/merging.h"

namespace ahead::passes {
namespace {

/// A tensor to trace with: it has metadata, but no data.
at::Tensor tensor_without_data(const TensorMeta& meta) {
  c10::Storage storage(c10::Storage::use_byte_size_t(), /*size_bytes=*/0,
                       c10::DataPtr(nullptr, meta.device));
  auto impl = c10::make_intrusive<c10::TensorImpl>(
      std::move(storage),
      c10::DispatchKeySet(c10::computeDispatchKey(meta.dtype, std::nullopt, meta.device)),
      c10::scalarTypeToTypeMeta(meta.dtype));
  impl->set_sizes_and_strides(meta.sizes, meta.strides, meta.offset.fixed());
  return at::Tensor(std::move(impl));
}

/// Whether the call depends on sizes that change. What its decomposition would decide by them
/// nobody could be told, so such a call stays as it is.
bool is_of_sizes(const Node& node) {
  bool is_fixed = true;
  node.for_each_operand([&](const Value* value) { is_fixed = is_fixed && value->meta.is_fixed(); });
  for (const Value* result : node.results())
    is_fixed = is_fixed && (result == nullptr || result->meta.is_fixed());
  for (const Argument& argument : node.args())
    is_fixed = is_fixed && !(argument.is_constant() && has_sizes(argument.constant()));
  return !is_fixed;
}

/// The arguments of a call with other tensors in the place of its values.
class CallArguments {
 public:
  explicit CallArguments(const Node& node) : node_(node) {
    node.for_each_operand([&](Value* value) { values_.push_back(value); });
  }

  /// The values in order, one entry for each time the node takes one.
  const std::vector<Value*>& values() const { return values_; }

  std::vector<c10::IValue> with(const std::vector<at::Tensor>& tensors) const {
    const auto& schema = node_.op().schema().arguments();
    auto next = tensors.begin();
    std::vector<c10::IValue> arguments;
    for (size_t i = 0; i < schema.size(); ++i)
      arguments.push_back(convert(node_.args()[i], *schema[i].type(), next));
    return arguments;
  }

 private:
  using Tensors = std::vector<at::Tensor>::const_iterator;

  static c10::IValue convert(const Argument& argument, const c10::Type& type, Tensors& next) {
    if (argument.is_value()) return *next++;
    if (argument.is_constant()) return convert_constant(argument.constant(), type);
    c10::List<at::Tensor> tensors;
    c10::List<std::optional<at::Tensor>> optionals;
    for (const Argument& element : argument.list()) {
      const c10::IValue tensor = convert(element, *c10::TensorType::get(), next);
      tensors.push_back(tensor.toTensor());
      const bool defined = tensors.get(tensors.size() - 1).defined();
      optionals.push_back(defined ? std::optional(tensor.toTensor()) : std::nullopt);
    }
    const c10::Type& element = *without_optional(type).containedType(0);
    if (element.kind() == c10::TypeKind::OptionalType) return optionals;
    return tensors;
  }

  static c10::IValue convert_constant(const c10::IValue& constant, const c10::Type& type) {
    if (!is_tensor_type(type)) return constant;
    if (constant.isNone())
      return type.kind() == c10::TypeKind::TensorType ? at::Tensor() : constant;
    at::Tensor number = c10::scalar_to_tensor(constant.toScalar());
    number.unsafeGetTensorImpl()->set_wrapped_number(true);
    return number;
  }

  const Node& node_;
  std::vector<Value*> values_;
};

/// Replaces one node.
class Replacement {
 public:
  Replacement(Graph& graph, Node& node, const Decomposition& decomposition)
      : graph_(graph), node_(node), arguments_(node) {
    std::vector<at::Tensor> inputs;
    for (const Value* value : arguments_.values())
      inputs.push_back(tensor_without_data(value->meta));
    body_ =
        trace([&](const std::vector<at::Tensor>& in) { return decomposition(arguments_.with(in)); },
              inputs, {.allow_real_kernels = true, .allow_escapes = false});
    check();
  }

  /// Adds the nodes of the decomposition before the node and lets its users take their results.
  void run() {
    std::vector<Value*> operands = arguments_.values();
    for (size_t i = operands.size(); i < body_.inputs().size(); ++i)
      operands.push_back(add_captured(body_.inputs()[i]));
    const Node* before = node_.prev();
    std::vector<Value*> results = inline_graph(graph_, body_, operands, &node_);
    Node* copy = before == nullptr ? graph_.first() : before->next();
    for (; copy != &node_; copy = copy->next()) take_over(*copy);
    for (size_t i = 0; i < results.size(); ++i) {
      if (node_.result(i) != nullptr) graph_.replace_uses(node_.result(i), fitted(i, results[i]));
    }
  }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    throw UserError("decompose", node_.op().name() + ": " + problem);
  }

  void check() const {
    if (body_.outputs().size() != node_.results().size()) {
      fail("its decomposition returns " + std::to_string(body_.outputs().size()) +
           " tensors, the operator " + std::to_string(node_.results().size()) +
           ". It must not write to its arguments either.");
    }
    for (size_t i = 0; i < node_.results().size(); ++i) check_result(i);
  }

  void check_result(size_t index) const {
    const Graph::Output& output = body_.outputs()[index];
    const Value* expected = node_.result(index);
    if (output.slot.kind != Slot::Kind::Output) fail("its decomposition writes to its arguments.");
    if (expected == nullptr) return;
    if (output.value == nullptr)
      fail("result " + std::to_string(index) + " of its decomposition is undefined.");
    const TensorMeta &a = expected->meta, &b = output.value->meta;
    if (a.dtype == b.dtype && a.device == b.device && a.sizes == b.sizes) return;
    fail("result " + std::to_string(index) + " of its decomposition is " + b.str() +
         ", the operator's " + a.str() + ".");
  }

  Value* add_captured(const Graph::Input& input) {
    int32_t index = 0;
    for (const Graph::Input& known : graph_.inputs()) {
      if (known.slot.kind != Slot::Kind::Captured) continue;
      if (known.captured.is_same(input.captured)) return known.value;
      index = std::max(index, known.slot.index + 1);
    }
    return graph_.add_input({Slot::Kind::Captured, index}, input.value->meta, input.captured);
  }

  void take_over(Node& copy) const {
    copy.belong_to(node_);
    constexpr auto own = static_cast<uint16_t>(Tag::Random) | static_cast<uint16_t>(Tag::Effect);
    copy.set_tags(static_cast<uint16_t>((copy.tags() & own) | (node_.tags() & ~own)));
  }

  /// The result as the operator would have made it: laid out the same way, and new memory if the
  /// operator makes new memory.
  Value* fitted(size_t index, Value* result) {
    const TensorMeta& expected = node_.result(index)->meta;
    const bool fits = same_layout(expected, result->meta);
    if (fits && (ops::is_view(node_) || is_new_memory(index))) return result;
    Value* copy = add_layout_copy(graph_, result, expected, &node_);
    take_over(*copy->producer());
    return copy;
  }

  bool is_new_memory(size_t index) const {
    const ops::Aliasing aliasing(body_);
    const uint32_t group = aliasing.group(body_.outputs()[index].value);
    for (const Graph::Input& input : body_.inputs()) {
      if (aliasing.group(input.value) == group) return false;
    }
    for (size_t i = 0; i < index; ++i) {
      const Value* other = body_.outputs()[i].value;
      if (other != nullptr && aliasing.group(other) == group) return false;
    }
    return true;
  }

  Graph& graph_;
  Node& node_;
  const CallArguments arguments_;
  Graph body_;
};

/// The operators in whose decomposition a node stands, innermost first.
struct Inside {
  const Operator* op;
  std::shared_ptr<const Inside> outer;
};

class Decomposer {
 public:
  Decomposer(Graph& graph, const DecompositionTable& table) : graph_(graph), table_(table) {}

  size_t run() {
    size_t changes = 0;
    for (Node* node = graph_.first(); node != nullptr;) {
      const auto found = table_.find(node->op().name());
      if (found == table_.end() || !node->op().in_dispatcher() || is_inside_itself(*node) ||
          is_of_sizes(*node)) {
        node = node->next();
        continue;
      }
      node = replace(*node, found->second);
      ++changes;
    }
    return changes;
  }

 private:
  bool is_inside_itself(const Node& node) const {
    const auto found = inside_.find(&node);
    if (found == inside_.end()) return false;
    for (const Inside* inside = found->second.get(); inside != nullptr;
         inside = inside->outer.get()) {
      if (inside->op == &node.op()) return true;
    }
    return false;
  }

  /// Returns the first of the new nodes: they may have decompositions as well.
  Node* replace(Node& node, const Decomposition& decomposition) {
    Node* const before = node.prev();
    Replacement(graph_, node, decomposition).run();
    Node* const first = before == nullptr ? graph_.first() : before->next();
    const auto outer = inside_.find(&node);
    const auto inside = std::make_shared<const Inside>(
        Inside{&node.op(), outer == inside_.end() ? nullptr : outer->second});
    for (Node* copy = first; copy != &node; copy = copy->next()) inside_[copy] = inside;
    Node* const next = first == &node ? node.next() : first;
    graph_.erase(&node);
    return next;
  }

  Graph& graph_;
  const DecompositionTable& table_;
  std::unordered_map<const Node*, std::shared_ptr<const Inside>> inside_;
};

}  // namespace

size_t decompose(Graph& graph, const DecompositionTable& table) {
  return Decomposer(graph, table).run();
}

}  // namespace ahead::passes
