#include "native/slices/slices.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "ahead/passes.h"
#include "ir/copy.h"
#include "native/fuse/order.h"
#include "native/slices/node_cuts.h"
#include "native/views.h"
#include "ops/facts/large_products.h"

namespace ahead::native {
namespace {

/// What a slice of a large tensor may take, if one matrix is not more.
constexpr int64_t slice_bytes = int64_t{1} << 20;

/// The largest number of matrices that divides every list of them and is not too large.
int64_t find_step(int64_t common, int64_t matrix_bytes) {
  int64_t step = 1;
  for (int64_t divisor = 2; divisor <= common; ++divisor) {
    if (common % divisor == 0 && divisor * matrix_bytes <= slice_bytes) step = divisor;
  }
  return step;
}

/// The nodes around one large product.
class Region {
 public:
  explicit Region(const Node& seed) : numel_(seed.result()->meta.numel().fixed()) {
    batch_ = seed.result()->meta.sizes[0].fixed();
    multiplications_ = numel_ / batch_ * seed.args()[0].value()->meta.sizes[2].fixed();
    is_sound_ = add(seed);
    while (is_sound_ && !open_.empty()) {
      const Node& node = *open_.back();
      open_.pop_back();
      is_sound_ = grow(node);
    }
  }

  bool is_sound() const { return is_sound_; }
  int64_t batch() const { return batch_; }
  /// What one matrix of the product takes that the region is around.
  int64_t multiplications() const { return multiplications_; }
  bool holds(const Node* node) const { return cuts_.count(node) != 0; }
  const NodeCuts& cuts(const Node& node) const { return cuts_.at(&node); }
  int64_t step(int64_t matrix_bytes) const {
    int64_t common = batch_;
    for (const auto& [node, cuts] : cuts_) common = std::gcd(common, cuts.common);
    return find_step(common, matrix_bytes);
  }

  /// Whether nothing else has to run between its nodes, which are in the order of the graph.
  bool is_closed(const Graph& graph) const {
    std::unordered_set<const Node*> later;  // others that wait for nodes of the region
    for (const Node& node : graph.nodes()) {
      bool waits = false, waits_for_other = false;
      node.for_each_operand([&](const Value* value) {
        const Node* maker = value->producer();
        waits = waits || holds(maker) || later.count(maker) != 0;
        waits_for_other = waits_for_other || later.count(maker) != 0;
      });
      if (!holds(&node) && waits) later.insert(&node);
      if (holds(&node) && waits_for_other) return false;
    }
    return true;
  }

 private:
  bool is_large(const Value& value) const { return value.meta.numel() == numel_; }

  bool add(const Node& node) {
    if (holds(&node)) return true;
    auto cuts = cuts_of(node, batch_);
    if (!cuts) return false;
    cuts_.emplace(&node, std::move(*cuts));
    open_.push_back(&node);
    return true;
  }

  /// Takes in what reads the large results of a node, and what makes its large operands where that
  /// can be cut.
  bool grow(const Node& node) {
    for (const Value* result : node.results()) {
      if (result == nullptr || !is_large(*result)) continue;
      if (result->output_uses() != 0) return false;
      for (const Node* user : result->users()) {
        if (!add(*user)) return false;
      }
    }
    node.for_each_operand([&](const Value* value) {
      if (value->producer() != nullptr && is_large(*value)) add(*value->producer());
    });
    return true;
  }

  const int64_t numel_;
  int64_t batch_ = 0;
  int64_t multiplications_ = 0;
  bool is_sound_ = false;
  std::unordered_map<const Node*, NodeCuts> cuts_;
  std::vector<const Node*> open_;
};

/// Makes the sub-graph of a region, and what a slice of it is.
class RegionGraphs {
 public:
  RegionGraphs(const Graph& graph, const Region& region, SlicedCall& call)
      : region_(region),
        call_(call),
        in_whole_(graph.value_capacity()),
        in_slice_(graph.value_capacity()) {}

  void add(const Node& node) {
    const NodeCuts& cuts = region_.cuts(node);
    for (size_t i = 0; i < node.args().size(); ++i) {
      if (node.args()[i].is_value()) add_input(node.args()[i].value(), cuts.arguments[i]);
    }
    copy_node(*whole_, node, in_whole_);
    std::vector<Argument> args;
    for (const Argument& argument : node.args()) args.push_back(map_argument(argument, in_slice_));
    TensorMeta meta = slice_of(*node.result(), cuts.result);
    if (meta.is_contiguous() || node.result()->meta.is_contiguous())
      meta = TensorMeta::contiguous(meta.sizes, meta.dtype, meta.device);
    if (cuts.takes_sizes) args[1] = c10::IValue(at::IntArrayRef(meta.sizes).vec());
    Node* made = call_.slice.add_node(node.op(), std::move(args));
    made->belong_to(node);
    in_slice_[node.result()->id()] = call_.slice.add_return(made, std::move(meta));
    const bool is_needed = std::any_of(node.result()->users().begin(), node.result()->users().end(),
                                       [&](const Node* user) { return !region_.holds(user); });
    if (is_needed || node.result()->output_uses() != 0) add_output(node.result(), cuts.result);
  }

  bool is_sound() const { return is_sound_; }
  std::shared_ptr<const Graph> whole() const { return whole_; }
  const std::vector<const Value*>& operands() const { return operands_; }
  const std::vector<const Value*>& results() const { return results_; }

 private:
  TensorMeta slice_of(const Value& value, const Cut& cut) const {
    TensorMeta meta = value.meta;
    meta.offset = 0;
    for (const SlicedDim& dim : cut)
      meta.sizes[static_cast<size_t>(dim.dim)] = dim.is_last ? call_.step : 1;
    return meta;
  }

  /// Two nodes may see a value in two ways, which is left alone.
  void add_input(const Value* value, const Cut& cut) {
    if (region_.holds(value->producer())) {
      is_sound_ &= region_.cuts(*value->producer()).result == cut;
      return;
    }
    const auto known = std::find(operands_.begin(), operands_.end(), value);
    if (known != operands_.end()) {
      is_sound_ &= call_.inputs[static_cast<size_t>(known - operands_.begin())] == cut;
      return;
    }
    const Slot slot = {Slot::Kind::Primal, static_cast<int32_t>(operands_.size())};
    in_whole_[value->id()] = whole_->add_input(slot, value->meta);
    in_slice_[value->id()] = call_.slice.add_input(slot, slice_of(*value, cut));
    operands_.push_back(value);
    call_.inputs.push_back(cut);
  }

  void add_output(const Value* value, const Cut& cut) {
    whole_->add_output(in_whole_[value->id()],
                       {Slot::Kind::Output, static_cast<int32_t>(results_.size())});
    results_.push_back(value);
    SlicedResult result{cut};
    Value* const of_slice = in_slice_[value->id()];
    if (is_product_for_others(*value)) {
      result.is_product = true;
      for (size_t i = 0; i < 2; ++i) {
        Value* operand = of_slice->producer()->args()[i].value();
        result.is_transposed[i] = is_transpose(*operand);
        return_from_slice(result.is_transposed[i] ? operand->producer()->args()[0].value()
                                                  : operand);
      }
    } else {
      return_from_slice(of_slice);
    }
    call_.outputs.push_back(result);
  }

  void return_from_slice(Value* value) {
    call_.slice.add_output(
        value, {Slot::Kind::Output, static_cast<int32_t>(call_.slice.outputs().size())});
  }

  /// Whether it is a product of matrices that nothing in the region reads.
  bool is_product_for_others(const Value& value) const {
    static const Operator* const bmm = Operator::find("aten.bmm");
    return &value.producer()->op() == bmm && value.meta.is_contiguous() &&
           std::none_of(value.users().begin(), value.users().end(),
                        [&](const Node* user) { return region_.holds(user); });
  }

  /// Whether it is the transposes of matrices.
  static bool is_transpose(const Value& value) {
    static const Operator* const transpose = Operator::find("aten.transpose.int");
    const Node* node = value.producer();
    if (node == nullptr || &node->op() != transpose) return false;
    const int64_t one = node->args()[1].constant().toInt(),
                  other = node->args()[2].constant().toInt();
    return value.meta.sizes.size() == 3 && one != other && one % 3 != 0 && other % 3 != 0;
  }

  const Region& region_;
  SlicedCall& call_;
  std::shared_ptr<Graph> whole_ = std::make_shared<Graph>();
  ValueMap in_whole_, in_slice_;
  std::vector<const Value*> operands_, results_;
  bool is_sound_ = true;
};

class Slicing {
 public:
  Slicing(const Graph& graph, Multiplier multiplier)
      : graph_(graph), multiplier_(multiplier), order_(graph), map_(graph.value_capacity()) {}

  /// Nothing if there is nothing to slice.
  std::optional<SlicedGraph> run() {
    for (const Node& node : graph_.nodes()) {
      if (ops::is_large_product(node) && region_of(&node) < 0) add_region(node);
    }
    if (regions_.empty() || !merge_groups()) return std::nullopt;
    for (const auto& [value, slot, captured] : graph_.inputs())
      map_[value->id()] = sliced_.graph.add_input(slot, value->meta, captured);
    sliced_.graph.set_example_sizes(graph_.example_sizes());
    for (const int32_t group : order_.sorted()) {
      const Node& node = order_.node(static_cast<size_t>(order_.nodes_in(group).front()));
      const int64_t region = region_of(&node);
      if (region < 0) {
        copy_node(sliced_.graph, node, map_);
      } else if (!add_call(regions_[static_cast<size_t>(region)], group)) {
        return std::nullopt;
      }
    }
    for (const Graph::Output& output : graph_.outputs()) {
      sliced_.graph.add_output(output.value == nullptr ? nullptr : map_[output.value->id()],
                               output.slot, output.requires_grad);
    }
    return std::move(sliced_);
  }

 private:
  int64_t region_of(const Node* node) const {
    for (size_t i = 0; i < regions_.size(); ++i) {
      if (regions_[i].holds(node)) return static_cast<int64_t>(i);
    }
    return -1;
  }

  void add_region(const Node& seed) {
    Region region(seed);
    if (!region.is_sound() || !region.is_closed(graph_)) return;
    for (const Node& node : graph_.nodes()) {
      if (region.holds(&node) && region_of(&node) >= 0) return;
    }
    const int64_t matrix_bytes = bytes_of(seed.result()->meta) / region.batch();
    if (region.step(matrix_bytes) == region.batch()) return;
    regions_.push_back(std::move(region));
  }

  bool merge_groups() {
    std::vector<int32_t> first(regions_.size(), -1);
    for (size_t i = 0; i < order_.num_nodes(); ++i) {
      const int64_t region = region_of(&order_.node(i));
      if (region < 0) continue;
      int32_t& start = first[static_cast<size_t>(region)];
      const auto node = static_cast<int32_t>(i);
      if (start < 0) {
        start = node;
        continue;
      }
      if (!order_.may_merge(order_.group(start), node)) return false;
      order_.merge(order_.group(start), node);
    }
    return true;
  }

  bool add_call(const Region& region, int32_t group) {
    SlicedCall call;
    call.batch = region.batch();
    const std::vector<int32_t>& nodes = order_.nodes_in(group);
    int64_t matrix_bytes = 0;
    for (const int32_t index : nodes) {
      const Value& result = *order_.node(static_cast<size_t>(index)).result();
      matrix_bytes = std::max(matrix_bytes, bytes_of(result.meta) / call.batch);
    }
    const bool is_for_one_dnn =
        multiplier_ == Multiplier::OneDnn && region.multiplications() >= fewest_in_batches;
    call.step = is_for_one_dnn ? 1 : region.step(matrix_bytes);
    call.multiplier = multiplier_;
    RegionGraphs graphs(graph_, region, call);
    for (const int32_t index : nodes) graphs.add(order_.node(static_cast<size_t>(index)));
    if (!graphs.is_sound()) return false;
    passes::eliminate_dead_code(call.slice);
    call.whole = graphs.whole();
    std::vector<Argument> args = {Argument(call.whole)};
    for (const Value* operand : graphs.operands()) args.emplace_back(map_[operand->id()]);
    Node* node = sliced_.graph.add_node(Operator::call_graph(), std::move(args));
    node->belong_to(order_.node(static_cast<size_t>(nodes.back())));
    for (const Value* result : graphs.results())
      map_[result->id()] = sliced_.graph.add_return(node, result->meta);
    sliced_.calls.push_back(std::move(call));
    return true;
  }

  const Graph& graph_;
  const Multiplier multiplier_;
  Order order_;
  std::vector<Region> regions_;
  ValueMap map_;  ///< where values of the graph are in the sliced one
  SlicedGraph sliced_;
};

}  // namespace

SlicedGraph slice_batches(const Graph& graph, Multiplier multiplier) {
  bool has_any = false;
  for (const Node& node : graph.nodes()) has_any |= ops::is_large_product(node);
  std::optional<SlicedGraph> sliced;
  if (has_any) sliced = Slicing(graph, multiplier).run();
  return sliced ? std::move(*sliced) : SlicedGraph{Graph(graph), {}};
}

}  // namespace ahead::native
