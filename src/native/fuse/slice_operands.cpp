#include "native/fuse/slice_operands.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "ahead/passes.h"
#include "native/lower/rule.h"
#include "native/views.h"
#include "native/writes.h"

namespace ahead::native {
namespace {

/// One slice of a tensor: from `begin` to `end` along `dim`, which a `select` takes away.
struct Slice {
  bool is_select;
  int64_t dim, begin, end;
};

int64_t size_at(const Value& value, int64_t dim) {
  return at::IntArrayRef(value.meta.sizes)[static_cast<size_t>(dim)];
}

int64_t rank_of(const Value& value) {
  return static_cast<int64_t>(value.meta.sizes.size());
}

std::optional<int64_t> whole_number(const Node& node, size_t argument) {
  const Argument& given = node.args()[argument];
  if (!given.is_constant() || !given.constant().isInt()) return std::nullopt;
  return given.constant().toInt();
}

std::optional<Slice> slice_of(const Node& node) {
  static const Operator *const select = Operator::find("aten.select.int"),
                               *const slice = Operator::find("aten.slice.Tensor");
  const bool is_select = &node.op() == select;
  if (!is_select && &node.op() != slice) return std::nullopt;
  const Value& source = *node.args()[0].value();
  if (!source.meta.is_fixed()) return std::nullopt;
  const auto dim = whole_number(node, 1), begin = whole_number(node, 2);
  if (!dim || !begin) return std::nullopt;
  Slice found{is_select, *dim < 0 ? *dim + rank_of(source) : *dim, *begin, *begin + 1};
  const int64_t size = size_at(source, found.dim);
  if (found.begin < 0) found.begin += size;
  if (is_select) {
    found.end = found.begin + 1;
    return found;
  }
  const auto step = whole_number(node, 4);
  if (!step || *step != 1) return std::nullopt;
  found.begin = std::clamp<int64_t>(found.begin, 0, size);
  found.end = found.begin + size_at(*node.result(), found.dim);
  return found;
}

/// Whether each element of the only result is computed of one element of each operand.
bool is_pointwise(const Node& node) {
  const auto work = work_of(node);
  return work && node.results().size() == 1 && work->row_dims == 0 && work->picked == 0 &&
         work->reduced(0) == 0;
}

class Slicing {
 public:
  explicit Slicing(Graph& graph) : graph_(graph), writes_(graph) {
    for (Node& node : graph.nodes()) positions_.emplace(&node, positions_.size());
  }

  NodeSet run() {
    for (Node* node = graph_.last(); node != nullptr; node = node->prev()) {
      if (positions_.count(node) == 0 || node->results().size() != 1) continue;
      if (node->result() == nullptr || !node->result()->meta.is_fixed()) continue;
      const std::vector<Node*> slices = slices_of(*node->result());
      if (slices.empty() || !is_pointwise(*node)) continue;
      const auto region = find_region(*node);
      if (!region) continue;
      for (Node* slice : slices) compute(*region, *slice);
    }
    if (!computed_.empty()) passes::eliminate_dead_code(graph_);
    return std::move(computed_);
  }

 private:
  /// The slices that are all that is read of a value, if they have no elements in common, lie
  /// without gaps and are read in loops.
  std::vector<Node*> slices_of(const Value& value) const {
    if (value.output_uses() != 0 || writes_.may_ever_change(&value)) return {};
    std::vector<std::pair<int64_t, int64_t>> parts;
    std::vector<Node*> slices;
    std::optional<int64_t> dim;
    for (Node* user : value.users()) {
      const auto slice = slice_of(*user);
      if (!slice || (dim && *dim != slice->dim)) return {};
      dim = slice->dim;
      TensorMeta meta = user->result()->meta;
      meta.offset = 0;
      if (!meta.is_contiguous() || !is_read_in_loops(*user->result())) return {};
      parts.emplace_back(slice->begin, slice->end);
      slices.push_back(user);
    }
    std::sort(parts.begin(), parts.end());
    for (size_t i = 1; i < parts.size(); ++i) {
      if (parts[i].first < parts[i - 1].second) return {};
    }
    return slices;
  }

  /// Whether all who read a value can compute it in their loops.
  static bool is_read_in_loops(const Value& value) {
    return value.output_uses() == 0 && !value.users().empty() &&
           std::all_of(value.users().begin(), value.users().end(), [&](const Node* user) {
             const auto work = work_of(*user);
             int64_t count = 1;
             if (work) {
               for (const int64_t size : work->space) count *= size;
             }
             return work && work->picked == 0 && value.meta.numel() == Dim(count);
           });
  }

  /// The nodes of which only the slices of a result are wanted, in order, the last of which makes
  /// it; nothing if more of what they read would have to be written to memory than was.
  std::optional<std::vector<const Node*>> find_region(const Node& last) const {
    const Dims& sizes = last.result()->meta.sizes;
    NodeSet inside = {&last};
    std::vector<const Node*> region = {&last};
    // Whoever is read by one of them stands before it.
    for (size_t i = 0; i < region.size(); ++i) {
      region[i]->for_each_operand([&](const Value* value) {
        const Node* maker = value->producer();
        if (maker == nullptr || inside.count(maker) != 0 || value->meta.sizes != sizes) return;
        if (positions_.count(maker) == 0 || !value->meta.is_contiguous()) return;
        if (value->output_uses() != 0 || writes_.may_ever_change(value)) return;
        const bool is_only_here =
            std::all_of(value->users().begin(), value->users().end(),
                        [&](const Node* user) { return inside.count(user) != 0; });
        if (!is_only_here || !is_pointwise(*maker)) return;
        inside.insert(maker);
        region.push_back(maker);
      });
    }
    std::unordered_set<const Value*> leaves;
    bool stays = true;
    size_t made_in_loops = 0;
    for (const Node* node : region) {
      node->for_each_operand([&](const Value* value) {
        if (value->producer() != nullptr && inside.count(value->producer()) != 0) return;
        if (!leaves.insert(value).second) return;
        stays = stays && !writes_.may_ever_change(value);
        const Node* maker = owner_of(value)->producer();
        const bool is_large = value->meta.sizes == sizes && maker != nullptr;
        made_in_loops += is_large && work_of(*maker).has_value() ? 1 : 0;
      });
    }
    if (!stays || made_in_loops > 1) return std::nullopt;
    std::sort(region.begin(), region.end(), [&](const Node* one, const Node* other) {
      return positions_.at(one) < positions_.at(other);
    });
    return region;
  }

  /// Computes a slice of the last result of a region where it is read first.
  void compute(const std::vector<const Node*>& region, Node& node) {
    const Slice slice = *slice_of(node);
    Value* const wanted = node.result();
    Node* const before = *std::min_element(
        wanted->users().begin(), wanted->users().end(),
        [&](const Node* one, const Node* other) { return place_of(one) < place_of(other); });
    const Value& whole = *region.back()->result();
    std::unordered_map<const Value*, Value*> parts;
    for (const Node* each : region) {
      std::vector<Argument> args;
      for (const Argument& arg : each->args()) {
        if (!arg.is_value()) {
          args.push_back(arg);
          continue;
        }
        const auto made = parts.find(arg.value());
        args.emplace_back(made != parts.end() ? made->second
                                              : part_of(arg.value(), slice, whole, before));
      }
      TensorMeta meta = wanted->meta;
      meta.dtype = each->result()->meta.dtype;
      meta.requires_grad = false;
      Value* part = add(each->op(), std::move(args), std::move(meta), *each, before);
      part->producer()->set_tags(each->tags());
      computed_.insert(part->producer());
      parts.emplace(each->result(), part);
    }
    graph_.replace_uses(wanted, parts.at(&whole));
  }

  /// Where a node stands; one that was added, where it was added.
  size_t place_of(const Node* node) const {
    while (positions_.count(node) == 0) node = node->next();
    return positions_.at(node);
  }

  Value* add(const Operator& op, std::vector<Argument> args, TensorMeta meta, const Node& like,
             Node* before) {
    Node* node = graph_.add_node(op, std::move(args), before);
    node->belong_to(like);
    return graph_.add_return(node, std::move(meta));
  }

  /// What a slice of the whole reads of an operand that is broadcast to it.
  Value* part_of(Value* value, const Slice& slice, const Value& whole, Node* before) {
    const int64_t dim = slice.dim - (rank_of(whole) - rank_of(*value));
    if (dim < 0) return value;
    const bool is_repeated = size_at(*value, dim) == 1 && size_at(whole, slice.dim) != 1;
    if (is_repeated && !slice.is_select) return value;
    Slice own{slice.is_select, dim, is_repeated ? 0 : slice.begin, is_repeated ? 1 : slice.end};
    if (Value* part = operand_of(*value, own)) return part;
    const int64_t stride = at::IntArrayRef(value->meta.strides)[static_cast<size_t>(dim)];
    TensorMeta meta = value->meta;
    meta.requires_grad = false;
    meta.offset = meta.offset + Dim(stride * own.begin);
    std::vector<Argument> args = {value, own.dim, own.begin};
    if (own.is_select) {
      meta.sizes.erase(meta.sizes.begin() + dim);
      meta.strides.erase(meta.strides.begin() + dim);
    } else {
      meta.sizes[static_cast<size_t>(dim)] = own.end - own.begin;
      args.insert(args.end(), {own.end, int64_t{1}});
    }
    static const Operator &select = *Operator::find("aten.select.int"),
                          &cut = *Operator::find("aten.slice.Tensor");
    return add(own.is_select ? select : cut, std::move(args), std::move(meta), *before, before);
  }

  /// The operand of a `stack` or `cat` that the slice of its result is; null if it is none.
  static Value* operand_of(const Value& value, const Slice& slice) {
    static const Operator *const stack = Operator::find("aten.stack"),
                                 *const cat = Operator::find("aten.cat");
    const Node* node = value.producer();
    if (node == nullptr || (&node->op() != stack && &node->op() != cat)) return nullptr;
    const bool is_stack = &node->op() == stack;
    const auto dim = whole_number(*node, 1);
    if (!dim || is_stack != slice.is_select || !node->args()[0].is_list()) return nullptr;
    if ((*dim < 0 ? *dim + rank_of(value) : *dim) != slice.dim) return nullptr;
    int64_t at = 0;
    for (const Argument& element : node->args()[0].list()) {
      if (!element.is_value() || element.value()->meta.dtype != value.meta.dtype) return nullptr;
      Value* const part = element.value();
      if (!is_stack && rank_of(*part) != rank_of(value)) return nullptr;
      const int64_t end = at + (is_stack ? 1 : size_at(*part, slice.dim));
      if (at == slice.begin && end == slice.end) return part;
      at = end;
    }
    return nullptr;
  }

  Graph& graph_;
  const Writes writes_;
  std::unordered_map<const Node*, size_t> positions_;  ///< of the nodes that were there before
  NodeSet computed_;                                   ///< those that compute slices
};

}  // namespace

NodeSet slice_operands(Graph& graph) {
  return Slicing(graph).run();
}

}  // namespace ahead::native
