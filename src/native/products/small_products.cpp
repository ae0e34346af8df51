#include "native/products/small_products.h"

#include <unordered_map>

#include "native/lower/small_product.h"
#include "native/products/transposed.h"
#include "native/writes.h"

namespace ahead::native {
namespace {

int64_t stride(const Value& value, size_t dim) {
  return at::IntArrayRef(value.meta.strides)[dim];
}

class Preparation {
 public:
  explicit Preparation(Graph& graph) : graph_(graph), writes_(graph) {}

  size_t run() {
    static const Operator *const mm = Operator::find("aten.mm"),
                               *const addmm = Operator::find("aten.addmm");
    size_t prepared = 0;
    for (Node* node = graph_.first(); node != nullptr;) {
      Node* const next = node->next();
      if ((&node->op() == mm || &node->op() == addmm) && node->result() != nullptr)
        prepared += prepare(node);
      node = next;
    }
    return prepared;
  }

 private:
  bool prepare(Node* node) {
    const auto small = small_product(*node);
    if (!small) return false;
    const bool is_addmm = node->args().size() > 2;
    const size_t left = is_addmm ? 1 : 0;
    // In 16 bits the product would be rounded before the sum.
    const bool is_wide = c10::elementSize(node->result()->meta.dtype) >= sizeof(float);
    if (is_addmm && small->which != SmallProduct::Short::Inner && !is_wide) return false;
    using Short = SmallProduct::Short;
    switch (small->which) {
      case Short::Inner:
        if (stride(*node->args()[left + 1].value(), 1) != 1) copy_rows(*node, left + 1);
        return true;
      case Short::Columns:
        if (is_addmm) node = without_addend(node);
        if (stride(*node->args()[0].value(), 1) == 1 && stride(*node->args()[1].value(), 0) != 1)
          copy_columns(*node, 1);
        return true;
      case Short::Rows:
        if (is_addmm) node = without_addend(node);
        if (small->columns == 1 && stride(*node->args()[1].value(), 0) != 1) copy_rows(*node, 1);
        if (stride(*node->args()[1].value(), 0) == 1 && stride(*node->args()[0].value(), 1) != 1)
          copy_rows(*node, 0);
        return true;
    }
    return false;
  }

  /// `added + left · right`, as two operators. Returns the product.
  Node* without_addend(Node* node) {
    static const Operator &mm = *Operator::find("aten.mm"),
                          &add = *Operator::find("aten.add.Tensor");
    Node* product = graph_.add_node(mm, {node->args()[1], node->args()[2]}, node);
    product->belong_to(*node);
    TensorMeta meta = node->result()->meta;
    Value* value = graph_.add_return(product, meta);
    Node* sum = graph_.add_node(add, {value, node->args()[0], int64_t{1}}, node);
    sum->belong_to(*node);
    graph_.replace_uses(node->result(), graph_.add_return(sum, std::move(meta)));
    graph_.erase(node);
    return product;
  }

  /// Lets the rows of an operand lie in memory one after the other.
  void copy_rows(Node& node, size_t argument) {
    graph_.set_argument(&node, argument, copied(node.args()[argument].value(), node));
  }

  void copy_columns(Node& node, size_t argument) {
    Value* rows = transposed(graph_, node.args()[argument].value(), &node);
    graph_.set_argument(&node, argument, transposed(graph_, copied(rows, node), &node));
  }

  Value* copied(Value* matrix, Node& before) {
    static const Operator& clone = *Operator::find("aten.clone");
    if (matrix->meta.is_contiguous()) return matrix;
    Value* own = nullptr;
    Value*& copy = writes_.may_ever_change(matrix) ? own : copies_[matrix];
    if (copy == nullptr) {
      const auto format = static_cast<int64_t>(at::MemoryFormat::Contiguous);
      Node* node = graph_.add_node(clone, {matrix, c10::IValue(format)}, &before);
      node->belong_to(before);
      const TensorMeta& meta = matrix->meta;
      copy = graph_.add_return(node, TensorMeta::contiguous(meta.sizes, meta.dtype, meta.device));
    }
    return copy;
  }

  Graph& graph_;
  const Writes writes_;
  std::unordered_map<const Value*, Value*> copies_;
};

}  // namespace

size_t prepare_small_products(Graph& graph) {
  return Preparation(graph).run();
}

}  // namespace ahead::native
