#include <c10/core/Scalar.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <unordered_map>

#include "ahead/passes.h"
#include "ir/tensor_meta.h"
#include "ops/shapes/make.h"
#include "ops/shapes/pointwise.h"
#include "passes/merging.h"

namespace ahead::passes {
namespace {

/// Operators that fill a tensor with one number: which argument is the number, or the number.
struct Filler {
  const char* name;
  int argument;
  int64_t number;
};
constexpr Filler fillers[] = {
    {"aten.full", 1, 0},          {"aten.full_like", 1, 0},   {"aten.new_full", 2, 0},
    {"aten.ones", -1, 1},         {"aten.ones_like", -1, 1},  {"aten.new_ones", -1, 1},
    {"aten.zeros", -1, 0},        {"aten.zeros_like", -1, 0}, {"aten.new_zeros", -1, 0},
    {"aten.scalar_tensor", 0, 0},
};

/// An operator on a tensor and a number, and the number for which it gives the tensor back.
struct Arithmetic {
  const char* name;
  bool commutes;
  bool has_factor;          ///< the argument after the number multiplies it
  double neutral;           ///< x op neutral is x
  bool neutral_for_floats;  ///< 0 in x + 0 is not: it turns -0.0 into 0.0
  bool divides;
};
constexpr Arithmetic arithmetic[] = {
    {"aten.add.Tensor", true, true, 0, false, false},
    {"aten.add.Scalar", true, true, 0, false, false},
    {"aten.sub.Tensor", false, true, 0, true, false},
    {"aten.sub.Scalar", false, true, 0, true, false},
    {"aten.mul.Tensor", true, false, 1, true, false},
    {"aten.mul.Scalar", true, false, 1, true, false},
    {"aten.div.Tensor", false, false, 1, true, true},
    {"aten.div.Scalar", false, false, 1, true, true},
};

template <class Row, size_t n>
const Row* find_row(const Row (&table)[n], const Operator& op) {
  static const auto* rows = [&] {
    auto* map = new std::unordered_map<const Operator*, const Row*>;
    for (const Row& row : table) map->emplace(Operator::find(row.name), &row);
    return map;
  }();
  const auto found = rows->find(&op);
  return found == rows->end() ? nullptr : found->second;
}

bool is_number(const Argument& argument) {
  return argument.is_constant() && (argument.constant().isInt() || argument.constant().isDouble());
}

bool is_one(const Argument& argument) {
  return is_number(argument) && argument.constant().toScalar().toDouble() == 1;
}

template <class T>
bool fits(double number) {
  return static_cast<double>(static_cast<T>(number)) == number;
}

/// Whether the dtype holds the number exactly.
bool holds(at::ScalarType dtype, const at::Scalar& number) {
  constexpr double largest_exact_integer = 9007199254740992;
  const double value = number.toDouble();
  if (c10::isIntegralType(dtype, /*includeBool=*/false)) {
    return number.isIntegral(false) && dtype == at::kLong &&
           std::abs(value) < largest_exact_integer;
  }
  switch (dtype) {
    case at::kDouble:
      return !number.isIntegral(false) || std::abs(value) < largest_exact_integer;
    case at::kFloat:
      return fits<float>(value);
    case at::kHalf:
      return fits<at::Half>(value);
    case at::kBFloat16:
      return fits<at::BFloat16>(value);
    default:
      return false;
  }
}

/// Whether strides leave no doubt in which order the dimensions lie, for all sizes.
bool lies_row_by_row(const TensorMeta& tensor) {
  const bool is_any_one =
      std::find(tensor.sizes.begin(), tensor.sizes.end(), Dim(1)) != tensor.sizes.end();
  return !is_any_one && tensor.numel() != 0 && tensor.strides == contiguous_strides(tensor.sizes);
}

/// Whether the result of an operator on a tensor and a number has the tensor's strides. Empty
/// tensors and dimensions of size 1 may get other strides than with a second tensor.
bool lies_alike_with_number(const TensorMeta& tensor) {
  if (!tensor.is_fixed()) return lies_row_by_row(tensor);
  const at::Tensor first = ops::shapes::make_strided(tensor.sizes, tensor.strides, tensor.dtype);
  const at::Tensor number = ops::shapes::make({}, tensor.dtype);
  const at::Tensor result =
      ops::shapes::lay_out({std::cref(first), std::cref(number)}, tensor.dtype);
  return result.strides() == tensor.strides;
}

/// The number with which a filler fills its result, where that is known.
std::optional<at::Scalar> filled_with(const Node& node, const Filler& filler) {
  if (filler.argument < 0) return at::Scalar(filler.number);
  const Argument& number = node.args()[static_cast<size_t>(filler.argument)];
  return is_number(number) ? std::optional(number.constant().toScalar()) : std::nullopt;
}

/// Fills tensors like others without these, so that nothing is computed for its shape only.
size_t forget_models(Graph& graph) {
  static const Operator& full = *Operator::find("aten.full");
  size_t changes = 0;
  for (Node* node = graph.first(); node != nullptr;) {
    Node* const next = node->next();
    const Filler* filler = find_row(fillers, node->op());
    const bool has_model = filler != nullptr && node->args()[0].is_value();
    const auto number = has_model ? filled_with(*node, *filler) : std::nullopt;
    const TensorMeta* meta = number ? &node->result()->meta : nullptr;
    // Strides of dimensions of size 1 show in what is computed of it.
    if (meta != nullptr && meta->is_fixed() && meta->strides == contiguous_strides(meta->sizes)) {
      const at::IntArrayRef sizes = meta->sizes;
      Node* filled = graph.add_node(
          full,
          {c10::IValue(sizes.vec()), c10::IValue(*number), static_cast<int64_t>(meta->dtype),
           c10::IValue(), c10::IValue(meta->device), c10::IValue()},
          node);
      filled->belong_to(*node);
      filled->set_tags(node->tags());
      graph.replace_uses(node->result(), graph.add_return(filled, *meta));
      graph.erase(node);
      ++changes;
    }
    node = next;
  }
  return changes;
}

class Folder {
 public:
  explicit Folder(Graph& graph) : graph_(graph), merger_(graph), numbers_(graph.value_capacity()) {}

  size_t run() {
    for (Node& node : graph_.nodes()) {
      learn(node);
      const Arithmetic* known = find_row(arithmetic, node.op());
      if (known == nullptr || node.result() == nullptr) continue;
      fold_operand(node, *known);
      drop_neutral(node, *known);
    }
    return changes_;
  }

 private:
  using Number = std::optional<at::Scalar>;

  /// Notes the number that all elements of the node's result are, where that is known.
  void learn(const Node& node) {
    if (const Filler* filler = find_row(fillers, node.op())) {
      numbers_[node.result()->id()] = filled_with(node, *filler);
    } else if (ops::is_layout_view(node)) {
      numbers_[node.result()->id()] = numbers_[node.args()[0].value()->id()];
    }
  }

  Number number_of(const Argument& argument) const {
    return argument.is_value() ? numbers_[argument.value()->id()] : std::nullopt;
  }

  /// Whether `kept` with a number does what it did with a tensor full of that number.
  static bool may_fold(const Node& node, const Argument& kept, const Argument& folded,
                       const at::Scalar& number) {
    if (!kept.is_value()) return false;
    const TensorMeta &a = kept.value()->meta, &b = folded.value()->meta, &r = node.result()->meta;
    return a.dtype == b.dtype && a.dtype == r.dtype && a.device == b.device && !a.sizes.empty() &&
           a.sizes == r.sizes && a.strides == r.strides && holds(a.dtype, number) &&
           lies_alike_with_number(a);
  }

  void fold_operand(Node& node, const Arithmetic& known) {
    if (known.has_factor && !is_one(node.args()[2])) return;
    // On a GPU, dividing by a number is multiplying by its inverse.
    if (known.divides && !node.result()->meta.device.is_cpu()) return;
    const Number second = number_of(node.args()[1]), first = number_of(node.args()[0]);
    if (second && may_fold(node, node.args()[0], node.args()[1], *second)) {
      set_number(node, *second);
    } else if (known.commutes && first && may_fold(node, node.args()[1], node.args()[0], *first)) {
      graph_.set_argument(&node, 0, node.args()[1]);
      set_number(node, *first);
    }
  }

  void set_number(Node& node, const at::Scalar& number) {
    const bool integer = c10::isIntegralType(node.result()->meta.dtype, false);
    graph_.set_argument(&node, 1,
                        integer ? Argument(number.toLong()) : Argument(number.toDouble()));
    ++changes_;
  }

  void drop_neutral(Node& node, const Arithmetic& known) {
    if (!node.args()[0].is_value() || !is_number(node.args()[1])) return;
    const at::ScalarType dtype = node.result()->meta.dtype;
    const bool integer = c10::isIntegralType(dtype, false);
    if (!integer && !(c10::isFloatingType(dtype) && known.neutral_for_floats)) return;
    const double number = node.args()[1].constant().toScalar().toDouble();
    // x - (-0.0) would turn -0.0 into 0.0.
    if (number != known.neutral || std::signbit(number)) return;
    if (known.has_factor && !is_one(node.args()[2])) return;
    if (!merger_.may_merge(node.result(), node.args()[0].value())) return;
    merger_.merge(node.result(), node.args()[0].value());
    graph_.erase(&node);
    ++changes_;
  }

  Graph& graph_;
  Merger merger_;
  std::vector<Number> numbers_;  ///< by Value::id()
  size_t changes_ = 0;
};

}  // namespace

size_t fold_constants(Graph& graph) {
  const size_t forgotten = forget_models(graph);
  return forgotten + Folder(graph).run();
}

}  // namespace ahead::passes
