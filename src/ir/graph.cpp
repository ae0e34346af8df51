#include "ahead/graph.h"

#include <algorithm>
#include <utility>

#include "ahead/errors.h"
#include "ir/copy.h"
#include "ir/names.h"
#include "ir/slots.h"

namespace ahead {
namespace {

template <class Entries>
int64_t find_slot(const Entries& entries, Slot slot) {
  auto found =
      std::find_if(entries.begin(), entries.end(), [&](const auto& e) { return e.slot == slot; });
  return found == entries.end() ? -1 : found - entries.begin();
}

bool names(const Slot& slot, SlotFacts::Names what, size_t position) {
  return facts(slot.kind).index_names == what && slot.index == static_cast<int32_t>(position);
}

/// Refuses to erase a position that one of `entries` names.
template <class Entries>
void require_unnamed(const Entries& entries, SlotFacts::Names what, size_t position) {
  for (const auto& entry : entries) {
    if (!names(entry.slot, what, position)) continue;
    throw InternalError("ir", entry.slot.str() + ": what a slot names cannot be erased before it.");
  }
}

/// Adjusts the slots of `entries` that name a position behind `position`, which is erased.
template <class Entries>
void move_up(Entries& entries, SlotFacts::Names what, size_t position) {
  for (auto& entry : entries) {
    if (facts(entry.slot.kind).index_names != what) continue;
    if (entry.slot.index > static_cast<int32_t>(position)) --entry.slot.index;
  }
}

void require_values(const Operator& op, const Argument& argument) {
  argument.for_each_value([&](const Value* value) {
    if (value == nullptr) throw InternalError("ir", op.name() + ": an operand is a null value.");
  });
}

}  // namespace

Graph::Graph(const Graph& other) : example_sizes_(other.example_sizes_) {
  ValueMap copies(other.value_capacity(), nullptr);
  for (const Input& input : other.inputs_) {
    copies[input.value->id()] = add_input(input.slot, input.value->meta, input.captured);
  }
  for (const Node& node : other.nodes()) copy_node(*this, node, copies);
  for (const Output& output : other.outputs_) {
    add_output(output.value == nullptr ? nullptr : copies[output.value->id()], output.slot,
               output.requires_grad);
  }
}

Graph::Graph(Graph&& other) noexcept {
  swap(other);
}

Graph& Graph::operator=(Graph other) noexcept {
  swap(other);
  return *this;
}

void Graph::swap(Graph& other) noexcept {
  std::swap(storage_, other.storage_);
  std::swap(values_, other.values_);
  std::swap(inputs_, other.inputs_);
  std::swap(outputs_, other.outputs_);
  std::swap(first_, other.first_);
  std::swap(last_, other.last_);
  std::swap(num_nodes_, other.num_nodes_);
  std::swap(example_sizes_, other.example_sizes_);
}

void Graph::forget_captured() {
  for (Input& input : inputs_) input.captured.reset();
}

int64_t Graph::find_input(Slot slot) const {
  return find_slot(inputs_, slot);
}

int64_t Graph::find_output(Slot slot) const {
  return find_slot(outputs_, slot);
}

Value* Graph::new_value(TensorMeta meta, Node* producer, size_t index) {
  Value& value = values_.add();
  value.meta = std::move(meta);
  value.producer_ = producer;
  value.index_ = static_cast<uint32_t>(index);
  value.id_ = static_cast<uint32_t>(values_.size() - 1);
  return &value;
}

Value* Graph::add_input(Slot slot, TensorMeta meta, at::Tensor captured) {
  Value* value = new_value(std::move(meta), nullptr, inputs_.size());
  inputs_.push_back({value, slot, std::move(captured)});
  return value;
}

void Graph::add_output(Value* value, Slot slot, bool requires_grad) {
  if (value != nullptr) ++value->output_uses_;
  outputs_.push_back({value, slot, requires_grad});
}

Node* Graph::add_node(const Operator& op, std::vector<Argument> args, Node* before) {
  for (const Argument& arg : args) require_values(op, arg);
  if (before != nullptr && !is_linked(before)) {
    throw InternalError("ir", op.name() + ": the node it should stand before is not in the graph.");
  }
  Node* node = &storage_.add();
  node->op_ = &op;
  node->args_ = std::move(args);
  for (const Argument& arg : node->args_) add_uses(arg, node);
  node->next_ = before;
  node->prev_ = before == nullptr ? last_ : before->prev_;
  (node->prev_ == nullptr ? first_ : node->prev_->next_) = node;
  (before == nullptr ? last_ : before->prev_) = node;
  ++num_nodes_;
  return node;
}

Value* Graph::add_return(Node* node, std::optional<TensorMeta> meta) {
  node->return_lengths_.push_back(-1);
  Value* value = nullptr;
  if (meta) value = new_value(std::move(*meta), node, node->results_.size());
  node->results_.push_back(value);
  return value;
}

void Graph::add_return_list(Node* node, std::vector<std::optional<TensorMeta>> metas) {
  node->return_lengths_.push_back(static_cast<int32_t>(metas.size()));
  for (auto& meta : metas) {
    Value* value = nullptr;
    if (meta) value = new_value(std::move(*meta), node, node->results_.size());
    node->results_.push_back(value);
  }
}

void Graph::add_uses(const Argument& argument, Node* user) {
  argument.for_each_value([&](Value* value) { value->users_.push_back(user); });
}

void Graph::drop_uses(const Argument& argument, Node* user) {
  argument.for_each_value([&](Value* value) {
    // From the end: passes that erase most nodes go backwards.
    auto& users = value->users_;
    auto use = std::find(users.rbegin(), users.rend(), user);
    if (use != users.rend()) users.erase(std::prev(use.base()));
  });
}

size_t Graph::replace_in(Argument& argument, Value* from, Value* to) {
  if (argument.is_value()) {
    if (argument.value() != from) return 0;
    argument.data_ = to;
    return 1;
  }
  size_t replaced = 0;
  if (auto* list = std::get_if<Argument::List>(&argument.data_)) {
    for (Argument& element : *list) replaced += replace_in(element, from, to);
  }
  return replaced;
}

void Graph::replace_uses(Value* from, Value* to) {
  if (from == to) return;
  if (to == nullptr) throw InternalError("ir", "a value cannot be replaced by a null value.");
  const auto users = std::exchange(from->users_, {});
  for (Node* user : users) {
    // A node that takes the value twice is listed twice and dealt with at its first entry.
    size_t replaced = 0;
    for (Argument& arg : user->args_) replaced += replace_in(arg, from, to);
    to->users_.append(replaced, user);
  }
  if (from->output_uses_ == 0) return;
  for (Output& output : outputs_) {
    if (output.value == from) output.value = to;
  }
  to->output_uses_ += std::exchange(from->output_uses_, 0);
}

void Graph::set_argument(Node* node, size_t index, Argument argument) {
  require_values(node->op(), argument);
  Argument& place = node->args_.at(index);
  drop_uses(place, node);
  place = std::move(argument);
  add_uses(place, node);
}

void Graph::set_output(size_t index, Value* value) {
  Output& output = outputs_.at(index);
  if (output.value != nullptr) --output.value->output_uses_;
  output.value = value;
  if (value != nullptr) ++value->output_uses_;
}

bool Graph::is_linked(const Node* node) const {
  return (node->prev_ == nullptr ? first_ : node->prev_->next_) == node;
}

void Graph::unlink(Node* node) {
  (node->prev_ == nullptr ? first_ : node->prev_->next_) = node->next_;
  (node->next_ == nullptr ? last_ : node->next_->prev_) = node->prev_;
  --num_nodes_;
}

void Graph::erase(Node* node) {
  const std::string& name = node->op().name();
  if (!is_linked(node))
    throw InternalError("ir", name + ": the node to erase is not in the graph.");
  for (const Value* result : node->results_) {
    if (result != nullptr && result->is_used()) {
      throw InternalError("ir", name + ": a node whose result is used cannot be erased.");
    }
  }
  for (const Argument& arg : node->args_) drop_uses(arg, node);
  unlink(node);
  node->args_.clear();
  node->results_.clear();
  node->return_lengths_.clear();
}

void Graph::erase_input(size_t index) {
  if (inputs_.at(index).value->is_used()) {
    throw InternalError("ir", inputs_[index].slot.str() + ": an input in use cannot be erased.");
  }
  if (names_own_positions(*this)) {
    require_unnamed(outputs_, SlotFacts::Names::input_position, index);
    move_up(outputs_, SlotFacts::Names::input_position, index);
  }
  inputs_.erase(inputs_.begin() + static_cast<ptrdiff_t>(index));
  for (size_t i = index; i < inputs_.size(); ++i) {
    inputs_[i].value->index_ = static_cast<uint32_t>(i);
  }
}

void Graph::erase_output(size_t index) {
  if (names_own_positions(*this)) {
    require_unnamed(inputs_, SlotFacts::Names::output_position, index);
    move_up(inputs_, SlotFacts::Names::output_position, index);
  }
  set_output(index, nullptr);
  outputs_.erase(outputs_.begin() + static_cast<ptrdiff_t>(index));
}

}  // namespace ahead
