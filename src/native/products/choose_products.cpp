#include "native/products/choose_products.h"

#include <ATen/Context.h>
#include <ATen/Version.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "native/products/transposed.h"

namespace ahead::native {
namespace {

/// Below so many multiplications the calls of oneDNN take longer than what they save.
constexpr int64_t fewest_multiplications = int64_t{1} << 22;

bool is_intel() {
#if defined(__x86_64__)
  return __builtin_cpu_is("intel") != 0;
#else
  return false;
#endif
}

/// Whether the rows, or the columns, of a matrix lie in memory without gaps inside them.
bool is_dense_matrix(const TensorMeta& meta) {
  if (meta.dtype != at::kFloat || !meta.device.is_cpu() || !meta.is_fixed()) return false;
  if (meta.sizes.size() != 2) return false;
  const at::IntArrayRef sizes = meta.sizes, strides = meta.strides;
  return (strides[1] == 1 && strides[0] >= sizes[1]) || (strides[0] == 1 && strides[1] >= sizes[0]);
}

/// A product `left · right`, plus a vector for each row if there is one.
struct Product {
  Value* left;
  Value* right;
  Value* added;
};

bool is_one(const Argument& argument) {
  return argument.is_constant() && argument.constant().isScalar() &&
         argument.constant().toScalar().equal(1);
}

std::optional<Product> product_of(const Node& node) {
  static const Operator* const mm = Operator::find("aten.mm");
  static const Operator* const addmm = Operator::find("aten.addmm");
  const std::vector<Argument>& args = node.args();
  if (&node.op() == mm) return Product{args[0].value(), args[1].value(), nullptr};
  if (&node.op() != addmm || !is_one(args[3]) || !is_one(args[4])) return std::nullopt;
  const TensorMeta& added = args[0].value()->meta;
  const bool is_row = added.sizes.size() == 1 && added.sizes[0] == node.result()->meta.sizes[1] &&
                      added.is_contiguous();
  if (!is_row) return std::nullopt;
  return Product{args[1].value(), args[2].value(), args[0].value()};
}

/// A batch of one matrix, which is one as a view.
bool is_single(const Value& value) {
  return value.meta.is_fixed() && value.meta.sizes.size() == 3 && value.meta.sizes[0].fixed() == 1;
}

Value* only_matrix(Graph& graph, Value* batch, Node& before) {
  static const Operator& select = *Operator::find("aten.select.int");
  Node* node = graph.add_node(select, {batch, int64_t{0}, int64_t{0}}, &before);
  node->belong_to(before);
  TensorMeta meta = batch->meta;
  meta.sizes.erase(meta.sizes.begin());
  meta.strides.erase(meta.strides.begin());
  meta.requires_grad = false;
  return graph.add_return(node, std::move(meta));
}

/// Lets a product of batches of one matrix be one of matrices. Returns the node, or the new one.
Node* without_batch(Graph& graph, Node* node) {
  static const Operator *const bmm = Operator::find("aten.bmm"),
                               *const mm = Operator::find("aten.mm"),
                               *const unsqueeze = Operator::find("aten.unsqueeze");
  if (&node->op() != bmm) return node;
  Value *const left = node->args()[0].value(), *const right = node->args()[1].value();
  const TensorMeta& meta = node->result()->meta;
  if (!is_single(*left) || !is_single(*right) || !left->meta.is_contiguous() ||
      !meta.is_contiguous() || meta.dtype != at::kFloat || !meta.device.is_cpu() ||
      meta.numel().fixed() * left->meta.sizes[2].fixed() < fewest_in_batches)
    return node;
  Node* product = graph.add_node(
      *mm, {only_matrix(graph, left, *node), only_matrix(graph, right, *node)}, node);
  product->belong_to(*node);
  const at::IntArrayRef sizes = meta.sizes;
  Value* matrix = graph.add_return(
      product, TensorMeta::contiguous({sizes[1], sizes[2]}, meta.dtype, meta.device));
  Node* batch = graph.add_node(*unsqueeze, {matrix, int64_t{0}}, node);
  batch->belong_to(*node);
  graph.replace_uses(node->result(), graph.add_return(batch, meta));
  graph.erase(node);
  return product;
}

bool is_worth_it(const Product& product, const TensorMeta& result, int64_t fewest) {
  if (!is_dense_matrix(product.left->meta) || !is_dense_matrix(product.right->meta)) return false;
  if (!is_dense_matrix(result) || !result.is_contiguous()) return false;
  const int64_t inner = product.right->meta.sizes[0].fixed();
  return result.numel().fixed() * inner >= fewest;
}

/// The matrix row by row, which is what oneDNN's operator makes of it anyway, while its result is
/// there already; the matrix itself may be gone by then.
Value* row_by_row(Graph& graph, Value* matrix, Node& before) {
  static const Operator& clone = *Operator::find("aten.clone");
  if (matrix->meta.is_contiguous()) return matrix;
  const auto format = static_cast<int64_t>(at::MemoryFormat::Contiguous);
  Node* copy = graph.add_node(clone, {matrix, c10::IValue(format)}, &before);
  copy->belong_to(before);
  const TensorMeta& meta = matrix->meta;
  return graph.add_return(copy, TensorMeta::contiguous(meta.sizes, meta.dtype, meta.device));
}

void replace(Graph& graph, Node& node, const Product& product, const Operator& linear) {
  Argument added = product.added == nullptr ? Argument(c10::IValue()) : Argument(product.added);
  std::vector<Argument> args = {row_by_row(graph, product.left, node),
                                transposed(graph, product.right, &node),
                                std::move(added),
                                c10::IValue("none"),
                                c10::IValue(c10::List<std::optional<at::Scalar>>()),
                                c10::IValue("")};
  Node* call = graph.add_node(linear, std::move(args), &node);
  call->belong_to(node);
  graph.replace_uses(node.result(), graph.add_return(call, node.result()->meta));
  graph.erase(&node);
}

}  // namespace

Multiplier fastest_multiplier() {
  static const bool is_one_dnn = !is_intel() && at::get_cpu_capability() == "AVX512" &&
                                 Operator::find("mkldnn._linear_pointwise") != nullptr;
  return is_one_dnn && at::globalContext().userEnabledMkldnn() ? Multiplier::OneDnn
                                                               : Multiplier::ATen;
}

size_t choose_products(Graph& graph, Multiplier multiplier) {
  if (multiplier == Multiplier::ATen) return 0;
  const Operator& linear = *Operator::find("mkldnn._linear_pointwise");
  size_t chosen = 0;
  for (Node* node = graph.first(); node != nullptr;) {
    Node* const next = node->next();
    Node* const single = without_batch(graph, node);
    const auto product = product_of(*single);
    const int64_t fewest = single == node ? fewest_multiplications : fewest_in_batches;
    if (product && is_worth_it(*product, single->result()->meta, fewest)) {
      replace(graph, *single, *product, linear);
      ++chosen;
    }
    node = next;
  }
  return chosen;
}

}  // namespace ahead::native
