#include "ir/sizes/graph_numbers.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <string>

#include "base/same_bits.h"
#include "ir/constants.h"
#include "ir/sizes/expression_node.h"
#include "ir/sizes/layout.h"
#include "ir/sizes/sized_constants.h"

namespace ahead {
namespace {

/// The operator that checks sizes which values decide.
bool is_size_check(const Operator& op) {
  static const Operator* const check = Operator::find("ahead.expect_sizes");
  return &op == check;
}

/// Whether values decide how large this is.
bool is_sized_by_values(const Value& value) {
  const auto users = value.users();
  return std::any_of(users.begin(), users.end(),
                     [](const Node* user) { return is_size_check(user->op()); });
}

/// Whether an operator may be given a size, or a number that follows from sizes, at this position.
/// Dimensions, kernel sizes and types are integers, too, but choose what is computed; so do
/// probabilities and what operators of Ahead's own are given.
bool takes_sizes(const Operator& op, size_t position) {
  const bool is_own = op.name().starts_with("ahead.") && !is_size_check(op);
  if (!op.in_dispatcher() || is_own) return false;
  const c10::Type* type = &without_optional(*op.schema().arguments()[position].real_type());
  if (const auto* list = type->castRaw<c10::ListType>())
    type = &without_optional(*list->getElementType());
  switch (type->kind()) {
    case c10::TypeKind::SymIntType:
    case c10::TypeKind::NumberType:
    case c10::TypeKind::TensorType:  // a wrapped number
      return true;
    default:
      return false;
  }
}

/// Calls visit(Dim&) for the sizes, strides and offset of a tensor, in this order.
template <class Meta, class Visit>
void for_each_dim(Meta& meta, Visit&& visit) {
  for (auto& size : meta.sizes) visit(size);
  for (auto& stride : meta.strides) visit(stride);
  visit(meta.offset);
}

/// Calls visit(value, is_float) for each number in a constant.
template <class Visit>
void for_each_number(const c10::IValue& constant, Visit&& visit) {
  if (constant.isInt()) {
    visit(constant.toInt(), false);
  } else if (constant.isDouble()) {
    visit(bits_of(constant.toDouble()), true);
  } else if (constant.isIntList()) {
    for (const int64_t number : constant.toIntVector()) visit(number, false);
  }
}

template <class Visit>
void for_each_number(const Operator& op, size_t position, const Argument& argument, Visit&& visit) {
  if (argument.is_constant() && takes_sizes(op, position))
    for_each_number(argument.constant(), visit);
}

/// Whether two constants are equal; with numbers that are allowed to differ, whether they are but
/// for these.
bool are_alike(const c10::IValue& a, const c10::IValue& b, bool numbers_may_differ) {
  if (a.tagKind() != b.tagKind()) return false;
  if (a.isInt()) return numbers_may_differ || a.toInt() == b.toInt();
  if (a.isDouble()) return numbers_may_differ || same_bits(a.toDouble(), b.toDouble());
  if (a.isNone()) return true;
  if (a.isBool()) return a.toBool() == b.toBool();
  if (a.isIntList()) {
    const c10::List<int64_t> x = a.toIntList(), y = b.toIntList();
    return numbers_may_differ ? x.size() == y.size() : x == y;
  }
  if (a.isGenerator() || a.isObject()) return a.is(b) || object_in(a) == object_in(b);
  std::string of_a, of_b;
  append_constant(of_a, a, nullptr);
  append_constant(of_b, b, nullptr);
  return of_a == of_b;
}

bool are_alike(const TensorMeta& a, const TensorMeta& b) {
  return a.dtype == b.dtype && a.device == b.device && a.requires_grad == b.requires_grad &&
         a.sizes.size() == b.sizes.size();
}

/// Compares two graphs from their inputs to their outputs.
class Comparison {
 public:
  Comparison(const Graph& a, const Graph& b) : a_(a), b_(b), in_b_(a.value_capacity(), nullptr) {}

  bool run() {
    return a_.inputs().size() == b_.inputs().size() && a_.num_nodes() == b_.num_nodes() &&
           a_.outputs().size() == b_.outputs().size() && compare_inputs() && compare_nodes() &&
           compare_outputs();
  }

 private:
  bool compare_inputs() {
    for (size_t i = 0; i < a_.inputs().size(); ++i) {
      if (!(a_.inputs()[i].slot == b_.inputs()[i].slot)) return false;
      if (!define(a_.inputs()[i].value, b_.inputs()[i].value)) return false;
    }
    return true;
  }

  bool compare_nodes() {
    auto of_b = b_.nodes().begin();
    for (const Node& node : a_.nodes()) {
      if (!compare(node, *of_b)) return false;
      ++of_b;
    }
    return true;
  }

  bool compare_outputs() const {
    for (size_t i = 0; i < a_.outputs().size(); ++i) {
      const Graph::Output &a = a_.outputs()[i], &b = b_.outputs()[i];
      if (!(a.slot == b.slot) || a.requires_grad != b.requires_grad) return false;
      if (a.value == nullptr ? b.value != nullptr : in_b_[a.value->id()] != b.value) return false;
    }
    return true;
  }

  bool compare(const Node& a, const Node& b) {
    if (&a.op() != &b.op() || a.phase != b.phase || a.tags() != b.tags() ||
        a.sequence != b.sequence || a.args().size() != b.args().size() ||
        a.return_lengths() != b.return_lengths())
      return false;
    for (size_t i = 0; i < a.args().size(); ++i) {
      if (!compare(a.args()[i], b.args()[i], takes_sizes(a.op(), i))) return false;
    }
    for (size_t i = 0; i < a.results().size(); ++i) {
      if (!define(a.results()[i], b.results()[i])) return false;
    }
    return true;
  }

  bool compare(const Argument& a, const Argument& b, bool numbers_may_differ) const {
    if (a.is_value()) return b.is_value() && in_b_[a.value()->id()] == b.value();
    if (a.is_constant())
      return b.is_constant() && are_alike(a.constant(), b.constant(), numbers_may_differ);
    if (a.is_graph()) return b.is_graph() && a.graph()->hash() == b.graph()->hash();
    if (!b.is_list() || a.list().size() != b.list().size()) return false;
    for (size_t i = 0; i < a.list().size(); ++i) {
      if (!compare(a.list()[i], b.list()[i], /*numbers_may_differ=*/false)) return false;
    }
    return true;
  }

  bool define(const Value* a, const Value* b) {
    if (a == nullptr || b == nullptr) return a == b;
    in_b_[a->id()] = b;
    return are_alike(a->meta, b->meta);
  }

  const Graph &a_, &b_;
  std::vector<const Value*> in_b_;  ///< by the value of `a_`
};

/// Puts expressions in place of the numbers of a graph.
class Rewriting {
 public:
  Rewriting(Graph& graph, const std::vector<GraphNumber>& numbers)
      : graph_(graph), numbers_(numbers) {}

  void run() {
    for (const Graph::Input& input : graph_.inputs()) rewrite(input.value);
    for (Node& node : graph_.nodes()) {
      for (size_t i = 0; i < node.args().size(); ++i) rewrite(node, i);
      for (Value* result : node.results()) rewrite(result);
    }
  }

 private:
  void rewrite(Value* value) {
    if (value != nullptr) for_each_dim(value->meta, [&](Dim& dim) { dim = take().dim; });
  }

  void rewrite(Node& node, size_t position) {
    std::vector<GraphNumber> now;
    bool is_fixed = true;
    for_each_number(node.op(), position, node.args()[position], [&](int64_t, bool) {
      now.push_back(take());
      is_fixed = is_fixed && now.back().is_fixed();
    });
    if (!is_fixed) graph_.set_argument(&node, position, constant_of(node, position, now));
  }

  const GraphNumber& take() { return numbers_[next_++]; }

  static c10::IValue constant_of(const Node& node, size_t position,
                                 const std::vector<GraphNumber>& numbers) {
    const c10::IValue& before = node.args()[position].constant();
    if (before.isDouble()) return FloatNode::make(float_of(numbers[0]), nullptr);
    if (before.isInt()) return to_sym_int(numbers[0].dim, nullptr);
    Dims dims;
    for (const GraphNumber& number : numbers) dims.push_back(number.dim);
    return to_constant(dims);
  }

  static FloatExpression float_of(const GraphNumber& number) {
    const SizeExpression size = number.dim.expression();
    if (number.as_float == GraphNumber::Float::Value) return FloatExpression::of(size);
    if (number.as_float == GraphNumber::Float::Reciprocal)
      return FloatExpression(1) / FloatExpression::of(size);
    std::vector<uint32_t> symbols;
    size.add_symbols(symbols);
    return FloatExpression::symbol(symbols.at(0));
  }

  Graph& graph_;
  const std::vector<GraphNumber>& numbers_;
  size_t next_ = 0;
};

/// The graph with other sizes, which it does not take any more. `dim_of` gives what stands for one
/// in metadata, `constant_of` for a constant that is made of some.
template <class DimOf, class ConstantOf>
Graph replace_sizes(const Graph& graph, DimOf&& dim_of, ConstantOf&& constant_of) {
  Graph replaced(graph);
  const auto replace = [&](Value* value) {
    if (value != nullptr) for_each_dim(value->meta, [&](Dim& dim) { dim = dim_of(dim); });
  };
  for (const Graph::Input& input : replaced.inputs()) replace(input.value);
  for (Node& node : replaced.nodes()) {
    for (size_t i = 0; i < node.args().size(); ++i) {
      const Argument& argument = node.args()[i];
      if (argument.is_constant() && has_sizes(argument.constant()))
        replaced.set_argument(&node, i, constant_of(argument.constant()));
    }
    for (Value* result : node.results()) replace(result);
  }
  const int64_t input = replaced.find_input({Slot::Kind::Sizes, 0});
  if (input >= 0) replaced.erase_input(static_cast<size_t>(input));
  replaced.set_example_sizes({});
  return replaced;
}

}  // namespace

GraphNumbers numbers_of(const Graph& graph) {
  GraphNumbers numbers;
  const auto add = [&](int64_t value, bool is_float, bool is_input_size, bool is_argument) {
    numbers.values.push_back(value);
    numbers.is_float.push_back(is_float);
    numbers.is_input_size.push_back(is_input_size);
    numbers.is_argument.push_back(is_argument);
  };
  const auto add_all = [&](const TensorMeta& meta, bool is_given) {
    size_t left = is_given ? meta.sizes.size() : 0;
    for_each_dim(meta, [&](const Dim& dim) {
      add(dim.fixed(), false, left != 0, false);
      if (left != 0) --left;
    });
  };
  for (const Graph::Input& input : graph.inputs()) add_all(input.value->meta, true);
  for (const Node& node : graph.nodes()) {
    for (size_t i = 0; i < node.args().size(); ++i) {
      for_each_number(node.op(), i, node.args()[i],
                      [&](int64_t value, bool is_float) { add(value, is_float, false, true); });
    }
    for (const Value* result : node.results()) {
      if (result != nullptr) add_all(result->meta, is_sized_by_values(*result));
    }
  }
  return numbers;
}

bool are_alike(const Graph& a, const Graph& b) {
  return Comparison(a, b).run();
}

Graph with_numbers(const Graph& graph, const std::vector<GraphNumber>& numbers,
                   const std::vector<int64_t>& example) {
  Graph sized(graph);
  Rewriting(sized, numbers).run();
  sized.add_input({Slot::Kind::Sizes, 0},
                  TensorMeta::contiguous({static_cast<int64_t>(example.size())}, at::kLong));
  sized.set_example_sizes(example);
  return sized;
}

Graph at_sizes(const Graph& graph, const std::vector<int64_t>& sizes) {
  return replace_sizes(
      graph, [&](Dim dim) { return Dim(dim.at(sizes)); },
      [&](const c10::IValue& constant) { return with_sizes(constant, sizes); });
}

Graph over_sizes(const Graph& graph, c10::ArrayRef<SizeExpression> sizes) {
  return replace_sizes(
      graph,
      [&](Dim dim) { return dim.is_fixed() ? dim : Dim::of(dim.expression().with_sizes(sizes)); },
      [&](const c10::IValue& constant) { return with_sizes(constant, sizes); });
}

}  // namespace ahead
