#include "passes/choose_layouts.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <vector>

#include "ir/copy.h"
#include "ir/tensor_meta.h"
#include "ops/facts/aliasing.h"
#include "passes/layout_flow.h"

namespace ahead::passes {
namespace {

/// What calling a copy costs, in bytes.
constexpr double copy_call = 4096;

constexpr uint16_t tags_of_copies =
    static_cast<uint16_t>(Tag::NoGrad) | static_cast<uint16_t>(Tag::Autocast) |
    static_cast<uint16_t>(Tag::MustBeInForward) | static_cast<uint16_t>(Tag::MustBeInBackward) |
    static_cast<uint16_t>(Tag::MustRecompute) | static_cast<uint16_t>(Tag::PreferRecompute);

Dims channels_last_strides(const Dims& sizes) {
  Dims strides(4, 1);
  strides[3] = sizes[1];
  strides[2] = strides[3] * sizes[3];
  strides[0] = strides[2] * sizes[2];
  return strides;
}

/// Whether both layouts are the same but for dimensions of one element, of whose strides operators
/// make what they like.
bool is_thin(const TensorMeta& meta) {
  return meta.sizes[1] == 1 || (meta.sizes[2] == 1 && meta.sizes[3] == 1);
}

bool repeats_elements(const TensorMeta& meta) {
  for (size_t i = 0; i < meta.sizes.size(); ++i) {
    if (meta.strides[i] == 0 && meta.sizes[i] != 1) return true;
  }
  return false;
}

/// Whether others may see that the value shares memory with a result.
bool is_seen_as_view(const Value& value) {
  const auto is_view = [](const Node* user) { return ops::is_view(*user); };
  return value.output_uses() != 0 &&
         (is_view(value.producer()) ||
          std::any_of(value.users().begin(), value.users().end(), is_view));
}

/// Decides for chains: values that are connected by operators which pass layouts on.
class LayoutChooser {
 public:
  LayoutChooser(Graph& graph, const LayoutPreferences& preferences)
      : graph_(graph), preferences_(preferences), chain_of_(graph.value_capacity(), none) {
    for (const ChannelsLastGain& gain : preferences.channels_last) {
      if (const Operator* op = Operator::find(gain.op)) gains_.emplace(op, &gain);
    }
  }

  size_t run() {
    find_flows();
    gain_.resize(chains_.size());
    for (const auto& [node, flow] : flows_) weigh(*node, flow);
    weigh_leaving();
    for (const auto& [node, flow] : flows_) {
      if (is_chosen(flow)) lay_out(*node, flow);
    }
    for (Value* value : movable_) {
      if (is_chosen(chain(value))) move(*value);
    }
    return changes_;
  }

 private:
  static constexpr size_t none = static_cast<size_t>(-1);

  /// Values that are connected have one number.
  size_t chain(const Value* value) const {
    if (value->id() >= chain_of_.size()) return none;
    size_t chain = chain_of_[value->id()];
    while (chain != none && chains_[chain] != chain) chain = chains_[chain];
    return chain;
  }
  size_t chain(const LayoutFlow& flow) const {
    for (const auto* values : {&flow.operands, &flow.results}) {
      for (const Value* value : *values) {
        if (chain(value) != none) return chain(value);
      }
    }
    return none;
  }
  bool is_chosen(size_t chain) const { return chain != none && gain_[chain] > 0; }
  bool is_chosen(const LayoutFlow& flow) const { return is_chosen(chain(flow)); }

  static bool may_move(const Value& value) {
    return value.meta.device.is_cpu() && value.meta.is_contiguous() && !is_seen_as_view(value);
  }

  void find_flows() {
    for (Node& node : graph_.nodes()) {
      if (const auto first = first_channel(node)) {
        add_slice(node, *first);
        continue;
      }
      std::optional<LayoutFlow> flow = layout_flow(node);
      if (!flow) continue;
      auto& results = flow->results;
      const auto thin = std::stable_partition(results.begin(), results.end(),
                                              [](const Value* v) { return !is_thin(v->meta); });
      flow->asides.insert(flow->asides.end(), thin, results.end());
      results.erase(thin, results.end());
      if (!std::all_of(results.begin(), results.end(), [](Value* v) { return may_move(*v); }))
        continue;
      for (Value* result : results) {
        chain_of_[result->id()] = chains_.size();
        chains_.push_back(chains_.size());
        movable_.push_back(result);
      }
      const size_t own = chain(*flow);
      if (own == none) continue;
      for (const auto* values : {&flow->operands, &flow->results}) {
        for (const Value* value : *values) {
          if (chain(value) != none) chains_[chain(value)] = own;
        }
      }
      add_flow(node, std::move(*flow));
    }
  }

  void add_flow(Node& node, LayoutFlow flow) {
    flow_of_.emplace(&node, flows_.size());
    flows_.emplace_back(&node, std::move(flow));
  }

  /// Some of the channels of a value that may move follow it, unless another view looks at them.
  void add_slice(Node& node, int64_t first) {
    Value *const source = node.args()[0].value(), *const result = node.result();
    const auto takes_images = [](const Node* user) {
      return !ops::is_view(*user) && layout_flow(*user).has_value();
    };
    const auto& users = result->users();
    if (chain(source) == none || slices_.count(source) != 0 || result->output_uses() != 0 ||
        result->meta.strides != source->meta.strides ||
        !std::all_of(users.begin(), users.end(), takes_images))
      return;
    chain_of_[result->id()] = chain(source);
    movable_.push_back(result);
    slices_.emplace(result, Slice{source, first});
    add_flow(node, {{source}, {result}, {}});
  }

  /// The layout of a value that has moved.
  void set_layout(Value& value) {
    const auto slice = slices_.find(&value);
    const TensorMeta& whole = slice == slices_.end() ? value.meta : slice->second.source->meta;
    value.meta.strides = channels_last_strides(whole.sizes);
    if (slice != slices_.end()) value.meta.offset = whole.offset + slice->second.first;
  }

  double bytes(const Value& value) const {
    return static_cast<double>(value.meta.numel().at(graph_.example_sizes())) *
           static_cast<double>(c10::elementSize(value.meta.dtype));
  }

  /// What does not lie as the chain is to, and cannot be made so. Operators look at strides to
  /// choose a layout, even where one element has them.
  bool has_to_be_copied(const Value& operand) const {
    return chain(&operand) == none && !repeats_elements(operand.meta) &&
           operand.meta.strides != channels_last_strides(operand.meta.sizes);
  }

  void weigh(const Node& node, const LayoutFlow& flow) {
    double& gain = gain_[chain(flow)];
    const auto known = gains_.find(&node.op());
    const at::ScalarType dtype = flow.operands.front()->meta.dtype;
    // Of double precision are slow kernels in either layout.
    if (known != gains_.end() && dtype != at::kDouble) {
      double images = 0, all = 0;
      for (const Value* value : flow.operands) images += bytes(*value);
      for (const Value* value : flow.results) images += bytes(*value);
      node.for_each_operand([&](const Value* value) { all += bytes(*value); });
      for (const Value* value : flow.operands) all -= bytes(*value);
      for (const Value* value : flow.asides) all += bytes(*value);
      gain += known->second->images * images + known->second->weights * all;
    }
    for (const Value* operand : flow.operands) {
      if (!has_to_be_copied(*operand)) continue;
      auto& takers = copied_for_[operand];
      if (std::find(takers.begin(), takers.end(), chain(flow)) != takers.end()) continue;
      takers.push_back(chain(flow));
      gain -= copy_call + preferences_.copy_in * bytes(*operand);
    }
    for (const Value* value : flow.asides)
      gain -= copy_call + preferences_.copy_out * bytes(*value);
  }

  /// Whether a user takes the value as it lies in the chain.
  bool follows(const Node& user, const Value& value) const {
    const auto flow = flow_of_.find(&user);
    if (flow != flow_of_.end()) {
      const auto& operands = flows_[flow->second].second.operands;
      if (std::find(operands.begin(), operands.end(), &value) != operands.end()) return true;
    }
    return takes_any_layout(user, value);
  }

  bool is_needed_as_it_was(const Value& value) const {
    return value.output_uses() != 0 ||
           std::any_of(value.users().begin(), value.users().end(),
                       [&](const Node* user) { return !follows(*user, value); });
  }

  void weigh_leaving() {
    for (const Value* value : movable_) {
      if (is_needed_as_it_was(*value))
        gain_[chain(value)] -= copy_call + preferences_.copy_out * bytes(*value);
    }
  }

  Value* copy_before(Value* value, at::MemoryFormat format, const Node& like, Node* before) {
    static const Operator* const clone = Operator::find("aten.clone");
    TensorMeta meta = value->meta;
    meta.offset = 0;
    meta.requires_grad = false;
    meta.strides = format == at::MemoryFormat::Contiguous ? contiguous_strides(meta.sizes)
                                                          : channels_last_strides(meta.sizes);
    Node* node = graph_.add_node(*clone, {value, static_cast<int64_t>(format)}, before);
    node->belong_to(like);
    node->set_tags(like.tags() & tags_of_copies);
    ++changes_;
    return graph_.add_return(node, std::move(meta));
  }

  void replace_operand(Node& node, Value* from, Value* to) {
    ValueMap map(graph_.value_capacity(), nullptr);
    node.for_each_operand([&](Value* value) { map[value->id()] = value; });
    map[from->id()] = to;
    for (size_t i = 0; i < node.args().size(); ++i) {
      bool takes = false;
      node.args()[i].for_each_value([&](const Value* value) { takes |= value == from; });
      if (takes) graph_.set_argument(&node, i, map_argument(node.args()[i], map));
    }
  }

  void lay_out(Node& node, const LayoutFlow& flow) {
    for (Value* operand : flow.operands) {
      if (!has_to_be_copied(*operand)) continue;
      Value*& copy = copies_[operand];
      if (copy == nullptr) copy = copy_before(operand, at::MemoryFormat::ChannelsLast, node, &node);
      replace_operand(node, operand, copy);
    }
    for (Value* value : flow.asides) {
      if (!value->meta.is_contiguous()) continue;
      Value* copy = copy_before(value, at::MemoryFormat::Contiguous, node, node.next());
      graph_.replace_uses(value, copy);
      graph_.set_argument(copy->producer(), 0, value);
      value->meta.strides = channels_last_strides(value->meta.sizes);
    }
  }

  void move(Value& value) {
    ++changes_;
    if (is_needed_as_it_was(value)) {
      Node& maker = *value.producer();
      const auto users = value.users();
      Value* copy = copy_before(&value, at::MemoryFormat::Contiguous, maker, maker.next());
      for (Node* user : users) {
        if (!follows(*user, value)) replace_operand(*user, &value, copy);
      }
      for (size_t i = 0; i < graph_.outputs().size(); ++i) {
        if (graph_.outputs()[i].value == &value) graph_.set_output(i, copy);
      }
    }
    set_layout(value);
  }

  struct Slice {
    const Value* source;
    int64_t first;  ///< of the channels
  };

  Graph& graph_;
  const LayoutPreferences& preferences_;
  std::unordered_map<const Operator*, const ChannelsLastGain*> gains_;
  std::vector<size_t> chain_of_;  ///< by Value::id(); none: its strides stay
  std::vector<size_t> chains_;    ///< by number: a chain that it has become part of, or itself
  std::vector<double> gain_;      ///< by chain
  std::vector<std::pair<Node*, LayoutFlow>> flows_;
  std::unordered_map<const Node*, size_t> flow_of_;
  std::vector<Value*> movable_;
  std::unordered_map<const Value*, Slice> slices_;
  std::unordered_map<const Value*, std::vector<size_t>> copied_for_;
  std::unordered_map<const Value*, Value*> copies_;
  size_t changes_ = 0;
};

}  // namespace

size_t choose_layouts(Graph& graph, const LayoutPreferences& preferences) {
  if (preferences.channels_last.empty()) return 0;
  return LayoutChooser(graph, preferences).run();
}

}  // namespace ahead::passes
