#include "native/products/merge_products.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include "ahead/passes.h"
#include "native/products/transposed.h"
#include "native/views.h"
#include "native/writes.h"
#include "ops/facts/aliasing.h"
#include "ops/facts/facts.h"

namespace ahead::native {
namespace {

/// Fewer products are not worth the copies of their operands.
constexpr size_t fewest_products = 4;
/// What lives longer because of a merger may take so many bytes, and about so many times as much as
/// the matrix that all products share.
constexpr int64_t most_bytes = int64_t{32} << 20;
constexpr int64_t most_times = 2;

const Operator& op(const char* name) {
  return *Operator::find(name);
}

bool is_matrix(const Value& value) {
  const TensorMeta& meta = value.meta;
  return meta.device.is_cpu() && meta.is_fixed() && meta.sizes.size() == 2 &&
         (meta.dtype == at::kFloat || meta.dtype == at::kDouble);
}

bool is_used_once(const Value& value) {
  return value.users().size() == 1 && value.output_uses() == 0;
}

class Merging {
 public:
  explicit Merging(Graph& graph) : graph_(graph), writes_(graph) {
    for (Node& node : graph.nodes()) positions_.emplace(&node, positions_.size());
  }

  size_t run() {
    for (Node* node = graph_.last(); node != nullptr; node = node->prev()) {
      if (is_last_of_sum(*node)) find_sum(*node);
    }
    choose_directions();
    for (const Sum& sum : sums_) merge_sum(sum);
    merge_with_one_right_operand();
    if (merged_ != 0) passes::eliminate_dead_code(graph_);
    return merged_;
  }

 private:
  static bool is_plain_sum(const Node& node) {
    static const Operator* const add = &op("aten.add.Tensor");
    const std::vector<Argument>& args = node.args();
    return &node.op() == add && args[0].is_value() && args[1].is_value() &&
           args[2].constant().toScalar().equal(1) && is_matrix(*node.result()) &&
           args[0].value()->meta.sizes == node.result()->meta.sizes &&
           args[1].value()->meta.sizes == node.result()->meta.sizes;
  }

  /// Whether it is none of those that a merger added.
  bool was_there(const Node& node) const { return positions_.count(&node) != 0; }

  bool is_product(const Node& node) const {
    static const Operator* const mm = &op("aten.mm");
    return &node.op() == mm && was_there(node) && is_matrix(*node.result()) &&
           is_matrix(*node.args()[0].value()) && is_matrix(*node.args()[1].value());
  }

  bool is_last_of_sum(const Node& node) const {
    if (!was_there(node) || !is_plain_sum(node)) return false;
    const bool goes_on = is_used_once(*node.result()) && is_plain_sum(*node.result()->users()[0]);
    return !goes_on;
  }

  /// What is added up, products apart from the rest.
  void find_addends(const Value* value, std::vector<const Node*>& products,
                    std::vector<Value*>& others) const {
    const Node* node = value->producer();
    if (node != nullptr && is_used_once(*value)) {
      if (is_plain_sum(*node)) {
        find_addends(node->args()[0].value(), products, others);
        return find_addends(node->args()[1].value(), products, others);
      }
      if (is_product(*node)) return products.push_back(node);
    }
    others.push_back(const_cast<Value*>(value));
  }

  Value* add(const Operator& op, std::vector<Argument> args, TensorMeta meta, Node* before) {
    Node* node = graph_.add_node(op, std::move(args), before);
    node->belong_to(*before);
    meta.requires_grad = false;
    return graph_.add_return(node, std::move(meta));
  }

  TensorMeta matrix_like(const Value& value, int64_t rows, int64_t columns) const {
    return TensorMeta::contiguous({rows, columns}, value.meta.dtype);
  }

  /// Whether matrices lie one below the other in the memory of one tensor.
  static bool follow_one_another(const std::vector<Value*>& parts, bool are_transposed) {
    const Value* const whole = owner_of(parts[0]);
    if (!whole->meta.is_fixed() || !whole->meta.is_contiguous()) return false;
    std::optional<Dim> next;
    for (const Value* part : parts) {
      TensorMeta meta = part->meta;
      if (are_transposed) {
        std::swap(meta.sizes[0], meta.sizes[1]);
        std::swap(meta.strides[0], meta.strides[1]);
      }
      const bool follows = owner_of(part) == whole && meta.dtype == whole->meta.dtype &&
                           meta.is_contiguous() && (!next || *next == meta.offset);
      if (!follows) return false;
      next = meta.offset + meta.numel();
    }
    return true;
  }

  /// The part of a tensor that consists of these matrices, which follow one another in it.
  Value* rows_of_owner(const std::vector<Value*>& parts, int64_t rows, Node* before) {
    auto* const whole = const_cast<Value*>(owner_of(parts[0]));
    const int64_t columns = parts[0]->meta.sizes[1].fixed(), count = whole->meta.numel().fixed();
    const int64_t first = (parts[0]->meta.offset - whole->meta.offset).fixed();
    if (columns == 0 || first % columns != 0 || count % columns != 0) return nullptr;
    TensorMeta meta = matrix_like(*whole, count / columns, columns);
    meta.offset = whole->meta.offset;
    Value* all = whole;
    if (whole->meta.sizes != meta.sizes) {
      const std::vector<int64_t> sizes = {count / columns, columns};
      all = add(op("aten.view"), {whole, c10::IValue(sizes)}, meta, before);
    }
    if (rows == count / columns) return all;
    meta.sizes[0] = rows;
    meta.offset = parts[0]->meta.offset;
    const int64_t row = first / columns;
    return add(op("aten.slice.Tensor"), {all, int64_t{0}, row, row + rows, int64_t{1}}, meta,
               before);
  }

  /// The matrices one below the other: where they lie so, or a copy of them.
  Value* below_each_other(const std::vector<Value*>& parts, Node* before) {
    int64_t rows = 0;
    Argument::List list;
    for (Value* part : parts) {
      rows += part->meta.sizes[0].fixed();
      list.emplace_back(part);
    }
    if (follow_one_another(parts, false)) {
      if (Value* found = rows_of_owner(parts, rows, before)) return found;
    }
    const auto known = copies_.find(parts);
    if (known != copies_.end() && known->second.position <= positions_.at(before))
      return known->second.value;
    const int64_t columns = parts[0]->meta.sizes[1].fixed();
    Value* copy = add(op("aten.cat"), {Argument(std::move(list)), int64_t{0}},
                      matrix_like(*parts[0], rows, columns), before);
    if (known != copies_.end()) {
      graph_.replace_uses(known->second.value, copy);
      graph_.erase(known->second.value->producer());
    }
    const bool stays = std::none_of(parts.begin(), parts.end(), [&](const Value* part) {
      return writes_.may_ever_change(part);
    });
    if (stays) copies_[parts] = {copy, positions_.at(before)};
    return copy;
  }

  /// A sum of products, and how these are divided.
  struct Sum {
    Node* last;
    std::vector<Value*> others;
    std::vector<std::vector<const Node*>> runs;
  };

  void find_sum(Node& last) {
    std::vector<const Node*> products;
    std::vector<Value*> others;
    find_addends(last.args()[0].value(), products, others);
    find_addends(last.args()[1].value(), products, others);
    std::sort(products.begin(), products.end(), [&](const Node* one, const Node* other) {
      return positions_.at(one) < positions_.at(other);
    });
    const auto bytes = [](const Node& product) {
      return bytes_of(*product.args()[0].value()) + bytes_of(*product.args()[1].value());
    };
    auto runs = runs_of(products, bytes_of(*last.result()), bytes);
    if (!runs.empty() && !changes_before(products, others, last))
      sums_.push_back({&last, std::move(others), std::move(runs)});
  }

  static std::vector<Value*> operands(const std::vector<const Node*>& run, size_t index) {
    std::vector<Value*> values;
    for (const Node* product : run) values.push_back(product->args()[index].value());
    return values;
  }

  /// Turns runs whose operands lie in memory the other way round, as those of a backward through
  /// time do, and others with the same operands, which are copied once for both.
  void choose_directions() {
    std::set<std::vector<Value*>> turned;
    const auto turn = [&](std::vector<const Node*>& run) {
      for (const size_t side : {0u, 1u}) turned.insert(operands(run, side));
      std::reverse(run.begin(), run.end());
    };
    for (Sum& sum : sums_) {
      for (std::vector<const Node*>& run : sum.runs) {
        const std::vector<const Node*> reversed(run.rbegin(), run.rend());
        if (follow_one_another(operands(reversed, 0), true) ||
            follow_one_another(operands(reversed, 1), false))
          turn(run);
      }
    }
    for (Sum& sum : sums_) {
      for (std::vector<const Node*>& run : sum.runs) {
        if (turned.count(operands(run, 0)) + turned.count(operands(run, 1)) != 0)
          std::reverse(run.begin(), run.end());
      }
    }
  }

  /// a1·b1 + a2·b2 + … = [a1 a2 …] · [b1; b2; …]
  void merge_sum(const Sum& found) {
    Node& last = *found.last;
    Value* sum = nullptr;
    for (const std::vector<const Node*>& run : found.runs) {
      Value* product = merged_product(run, last.result()->meta);
      sum = sum == nullptr ? product
                           : add(op("aten.add.Tensor"), {sum, product, int64_t{1}},
                                 last.result()->meta, last_of(run));
      merged_ += run.size() - 1;
    }
    for (Value* other : found.others)
      sum = add(op("aten.add.Tensor"), {other, sum, int64_t{1}}, last.result()->meta, &last);
    graph_.replace_uses(last.result(), sum);
  }

  /// Whether what a sum is made of may be something else where it is done.
  bool changes_before(const std::vector<const Node*>& products, const std::vector<Value*>& others,
                      const Node& last) const {
    const auto changes = [&](const Value* value, const Node* read) {
      return writes_.may_change(value, positions_.at(read), positions_.at(&last));
    };
    return std::any_of(products.begin(), products.end(),
                       [&](const Node* product) {
                         return changes(product->args()[0].value(), product) ||
                                changes(product->args()[1].value(), product);
                       }) ||
           std::any_of(others.begin(), others.end(),
                       [&](const Value* other) { return writes_.may_ever_change(other); });
  }

  /// The one of a run that comes last in the graph.
  Node* last_of(const std::vector<const Node*>& run) const {
    const bool is_turned = positions_.at(run.front()) > positions_.at(run.back());
    return const_cast<Node*>(is_turned ? run.front() : run.back());
  }

  /// One product for several, once the operands of the last of them are there.
  Value* merged_product(const std::vector<const Node*>& run, const TensorMeta& meta) {
    Node* const last = last_of(run);
    std::vector<Value*> left, right;
    for (const Node* product : run) {
      left.push_back(transposed(graph_, product->args()[0].value(), last));
      right.push_back(product->args()[1].value());
    }
    Value* side_by_side = transposed(graph_, below_each_other(left, last), last);
    return add(op("aten.mm"), {side_by_side, below_each_other(right, last)}, meta, last);
  }

  /// Divides products, which are in the order of the graph, so that what lives longer until a run
  /// of them is over takes little beside the matrix that they share. Empty if that leaves too few
  /// in a run.
  template <class NodePtr, class Bytes>
  static std::vector<std::vector<NodePtr>> runs_of(const std::vector<NodePtr>& products,
                                                   int64_t shared, const Bytes& bytes) {
    int64_t all = 0;
    for (const NodePtr product : products) all += bytes(*product);
    const int64_t most = std::min(most_bytes, most_times * shared);
    const auto count = std::max<size_t>(1, static_cast<size_t>(all / std::max<int64_t>(most, 1)));
    if (products.size() < fewest_products * count) return {};
    std::vector<std::vector<NodePtr>> runs(count);
    for (size_t i = 0; i < products.size(); ++i)
      runs[i * count / products.size()].push_back(products[i]);
    return runs;
  }

  struct Family {
    const Operator* op;
    const Value* right;  ///< or what it is the transpose of
    bool is_transposed;
    const Value* added;
    bool operator<(const Family& other) const {
      return std::tie(op, right, is_transposed, added) <
             std::tie(other.op, other.right, other.is_transposed, other.added);
    }
  };

  void merge_with_one_right_operand() {
    static const Operator* const addmm = &op("aten.addmm");
    std::map<Family, std::vector<Node*>> families;
    std::vector<Family> order;
    for (Node& node : graph_.nodes()) {
      const bool is_added = &node.op() == addmm;
      if (!is_added && !is_product(node)) continue;
      const std::vector<Argument>& args = node.args();
      if (is_added &&
          (!is_matrix(*args[1].value()) || !is_matrix(*args[2].value()) ||
           args[0].value()->meta.sizes.size() != 1 || !args[3].constant().toScalar().equal(1) ||
           !args[4].constant().toScalar().equal(1)))
        continue;
      const Value* right = args[is_added ? 2 : 1].value();
      // Equal transposes of one matrix are one right operand, which the matrix itself is not.
      const bool is_transposed = is_transpose(*right);
      const Family family{&node.op(), is_transposed ? right->producer()->args()[0].value() : right,
                          is_transposed, is_added ? args[0].value() : nullptr};
      std::vector<Node*>& members = families[family];
      if (members.empty()) order.push_back(family);
      members.push_back(&node);
    }
    const auto bytes = [](const Node& product) {
      return bytes_of(*product.args()[left_of(product)].value()) + bytes_of(*product.result());
    };
    for (const Family& family : order) {
      const int64_t shared = bytes_of(*family.right);
      for (const std::vector<Node*>& run : runs_of(families[family], shared, bytes))
        merge_family(run);
    }
  }

  static bool is_transpose(const Value& value) {
    static const Operator* const transpose = &op("aten.t");
    return value.producer() != nullptr && &value.producer()->op() == transpose;
  }

  static bool is_seen_outside(const Value& value) {
    if (value.output_uses() != 0) return true;
    return std::any_of(value.users().begin(), value.users().end(), [](const Node* user) {
      return ops::facts(user->op()).view != ops::ViewKind::None &&
             std::any_of(user->results().begin(), user->results().end(), [](const Value* view) {
               return view != nullptr && is_seen_outside(*view);
             });
    });
  }

  /// Whether the operands of a node may be something else where an earlier one is, or its result is
  /// written to.
  bool may_differ_at(const Node& earlier, const Node& node) const {
    bool differs = writes_.may_ever_change(node.result());
    node.for_each_operand([&](const Value* value) {
      differs |= writes_.may_change(value, positions_.at(&earlier), positions_.at(&node));
    });
    return differs;
  }

  static size_t left_of(const Node& node) { return node.args().size() == 2 ? 0 : 1; }

  /// Whether a value is there before a node runs, perhaps by views that may be made earlier.
  bool is_there_before(const Value* value, const Node& node) const {
    while (value->producer() != nullptr) {
      const auto known = positions_.find(value->producer());
      if (known == positions_.end()) return false;
      if (known->second < positions_.at(&node)) return true;
      if (!ops::is_layout_view(*value->producer())) return false;
      value = value->producer()->args()[0].value();
    }
    return true;
  }

  /// The value, or a copy of the views that make it, before a node.
  Value* hoisted(Value* value, Node& before) {
    if (value->producer() == nullptr) return value;
    if (positions_.at(value->producer()) < positions_.at(&before)) return value;
    const Node& view = *value->producer();
    std::vector<Argument> args = view.args();
    args[0] = hoisted(value->producer()->args()[0].value(), before);
    return add(view.op(), std::move(args), value->meta, &before);
  }

  /// a1·b, a2·b, … are the parts of [a1; a2; …] · b, if all operands are there before the first.
  void merge_family(const std::vector<Node*>& members) {
    Node& first = *members.front();
    for (const Node* member : members) {
      const Value* left = member->args()[left_of(*member)].value();
      const Value* result = member->result();
      if (!is_there_before(left, first) || !result->meta.is_contiguous()) return;
      if (is_seen_outside(*result)) return;  // results of a graph share no memory
      if (is_found_by_place(*result)) return;
      if (may_differ_at(first, *member)) return;
      if (left->meta.sizes[1] != members[0]->args()[left_of(first)].value()->meta.sizes[1]) return;
    }
    std::vector<Value*> left;
    for (const Node* member : members)
      left.push_back(hoisted(member->args()[left_of(*member)].value(), first));
    std::vector<Argument> args = first.args();
    Value* all = below_each_other(left, &first);
    args[left_of(first)] = all;
    const int64_t columns = first.result()->meta.sizes[1].fixed();
    Value* product = add(first.op(), std::move(args),
                         matrix_like(*first.result(), all->meta.sizes[0].fixed(), columns), &first);
    int64_t row = 0;
    for (Node* member : members) {
      TensorMeta meta = member->result()->meta;
      const int64_t end = row + meta.sizes[0].fixed();
      Value* part =
          add(op("aten.slice.Tensor"), {product, int64_t{0}, row, end, int64_t{1}}, meta, &first);
      graph_.replace_uses(member->result(), part);
      move_on(*part, row * columns);
      row = end;
    }
    merged_ += members.size() - 1;
  }

  Graph& graph_;
  const Writes writes_;
  std::unordered_map<const Node*, size_t> positions_;  ///< of the nodes that were there before
  std::vector<Sum> sums_;
  struct Copy {
    Value* value;
    size_t position;  ///< of the node that it was made for
  };
  std::map<std::vector<Value*>, Copy> copies_;  ///< of matrices, one below the other
  size_t merged_ = 0;
};

}  // namespace

size_t merge_products(Graph& graph) {
  return Merging(graph).run();
}

}  // namespace ahead::native
