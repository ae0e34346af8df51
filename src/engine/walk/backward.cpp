#include "engine/walk/backward.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/ScopeExit.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/tensor.h>

#include <algorithm>
#include <bit>
#include <string_view>

#include "base/ambient.h"
#include "base/private_members.h"
#include "base/thread_object.h"
#include "engine/walk/hooked_tensors.h"
#include "tensors/saved_variables.h"

namespace ahead::engine {
namespace {

using torch::autograd::GraphTask;
using torch::autograd::InputMetadata;
using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::dynamo::autograd::SizeInput;

/// How many of the last backwards of a thread are remembered.
constexpr size_t kMostSpares = 4;

/// After so many bytes LibTorch begins to write at another place, before it has to enlarge the one
/// of 1024 bytes that it has.
constexpr size_t kMostConstants = 768;

size_t slot_of(const Node* node) {
  return (reinterpret_cast<uintptr_t>(node) >> 4) * 0x9e3779b97f4a7c15 >> 20;
}

/// What the key says of a step, of an input of it, and of a tensor that it holds.
struct StepKey {
  const std::type_info* type;
  uint32_t first_place;
  uint32_t num_places;
};
struct PlaceKey {
  uint8_t dims, dtype, grad_dtype, layout, device_type, device_index, is_subclass, is_known;
};
struct InputKey {
  uint64_t keys;
  uint64_t dims_and_flags;
};

/// By the names of types, so it is done once for each. What is neither LibTorch's nor Ahead's is
/// the user's, and so are custom functions.
Backward::Special find_special(const std::type_info& type) {
  using Special = Backward::Special;
  if (type == typeid(torch::autograd::AccumulateGrad)) return Special::Accumulator;
  if (type == typeid(torch::autograd::CopySlices)) return Special::CopySlices;
  const std::string_view name = type.name();
  if (name.starts_with("N5torch8autograd7CppNodeI")) return Special::UserCode;
  for (const char* own : {"N5torch8autograd", "N5ahead7runtime", "N5ahead7observe",
                          "N5ahead7tracing", "N5ahead9compiling"}) {
    if (name.starts_with(own)) return Special::None;
  }
  return Special::UserCode;
}

/// Nodes lie where the forward made them, mostly out of the caches. While one is described, those
/// after it are on their way.
void fetch_soon(const Node& node) {
  for (const torch::autograd::Edge& edge : node.next_edges()) {
    const auto* next = reinterpret_cast<const char*>(edge.function.get());
    for (size_t line = 0; line < sizeof(Node) + 128; line += 64) __builtin_prefetch(next + line);
  }
}

/// Whether a node of this stream would have to wait for the current one.
bool is_on_other_stream(c10::Device device, c10::Stream stream) {
  return stream != c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

}  // namespace

bool is_plain(const c10::TensorImpl& tensor) {
  using c10::DispatchKey;
  constexpr c10::DispatchKeySet special{
      DispatchKey::Python,        DispatchKey::FuncTorchBatched, DispatchKey::FuncTorchGradWrapper,
      DispatchKey::Functionalize, DispatchKey::ZeroTensor,       DispatchKey::Fake,
      DispatchKey::Sparse,        DispatchKey::SparseCsr,        DispatchKey::Quantized,
      DispatchKey::NestedTensor,  DispatchKey::MkldnnCPU};
  const c10::DispatchKeySet keys = tensor.key_set();
  return !keys.has_any(special) && !keys.has_backend(c10::BackendComponent::MetaBit) &&
         tensor.has_storage();
}

void Backward::Found::clear() {
  steps.clear();
  targets.clear();
  key.clear();
  known.clear();
  ready.clear();
  edges.clear();
  nodes.clear();
  ranks.clear();
  can_be_followed = false;
}

/// What differs between backwards that are alike, and what is written again at no cost.
void Backward::Found::clear_values() {
  sizes.clear();
  place_sizes.clear();
  input_sizes.clear();
  number_sizes.clear();
  versions.clear();
  hooked.clear();
  held.clear();
  sequences.clear();
}

void Backward::Found::rank() {
  for (uint32_t i = 0; i < sequences.size(); ++i) ranks.push_back({i, false});
  std::stable_sort(ranks.begin(), ranks.end(), [&](const Rank& a, const Rank& b) {
    return sequences[a.step] < sequences[b.step];
  });
  for (size_t i = 0; i + 1 < ranks.size(); ++i) {
    ranks[i].is_next_equal = sequences[ranks[i].step] == sequences[ranks[i + 1].step];
  }
}

/// The order in which nodes run depends on how their numbers compare, and on nothing else of them.
bool Backward::Found::is_ranked() const {
  for (size_t i = 0; i + 1 < ranks.size(); ++i) {
    const uint64_t number = sequences[ranks[i].step], next = sequences[ranks[i + 1].step];
    if (ranks[i].is_next_equal ? number != next : number >= next) return false;
  }
  return true;
}

std::vector<Backward::FoundPtr>& Backward::spares() {
  return thread_object<std::vector<FoundPtr>, struct SpareBackwards>();
}

/// The last one with so many nodes; if there is none, that which was not used for longest.
Backward::FoundPtr Backward::take_spare(size_t num_dependencies) {
  auto& all = spares();
  if (all.size() < kMostSpares) all.push_back(std::make_unique<Found>());
  auto spare = std::find_if(all.rbegin(), all.rend(), [&](const FoundPtr& found) {
    return found->can_be_followed && found->num_dependencies == num_dependencies;
  });
  const auto taken = spare == all.rend() ? all.begin() : std::prev(spare.base());
  FoundPtr found = std::move(*taken);
  all.erase(taken);
  return found;
}

Backward::Backward(const NodePtr& root, const GraphTask& task, const std::string* backend)
    : task_(task), backend_(backend), found_(take_spare(task.dependencies_.size())) {
  if (root->num_outputs() == 1) only_root_ = root.get();
  if (!walk_along(root)) {
    walk(root);
    if (must_begin_anew_) walk(root);
  }
  constants_.reset();
  // Nodes that a node tells of would live until the end of the backward.
  call_->node_calls.clear();
}

Backward::~Backward() {
  end();
  if (spares().size() < kMostSpares) spares().push_back(std::move(found_));
}

void Backward::end() {
  constants_.reset();
  if (call_) found_->memory.take_back(*call_);
}

/// Begins anew, whatever was found so far.
void Backward::begin() {
  end();
  found_->memory.lend(call_.emplace(SizeInput::STATIC));
  found_->clear_values();
  num_places_ = 0;
  refusal_.clear();
}

void Backward::walk(const NodePtr& root) {
  begin();
  found_->clear();
  must_begin_anew_ = false;
  found_->num_dependencies = task_.dependencies_.size();
  describe_surroundings();
  know_nodes(root);
  meet(root.get()).is_needed |= only_root_ != nullptr;
  found_->ready.push_back({root->sequence_nr(), find(root.get()).number});
  while (!found_->ready.empty() && refusal_.empty() && !must_begin_anew_) {
    std::pop_heap(found_->ready.begin(), found_->ready.end());
    const uint32_t next = found_->ready.back().known;
    found_->ready.pop_back();
    add_step(found_->known[next]);
  }
  const bool has_run_all = found_->steps.size() == found_->num_dependencies + 1;
  found_->can_be_followed = has_run_all && task_.exec_info_.empty();
  if (found_->can_be_followed) found_->rank();
}

/// Walks along a backward that was found before. False: this one differs from it.
///
/// Each edge must lead to the node that stands where the other's led. As all nodes are reached, and
/// as there are as many as there were, the two graphs have the same form.
bool Backward::walk_along(const NodePtr& root) {
  const bool can_follow = found_->can_be_followed && !found_->steps.empty() &&
                          found_->num_dependencies == task_.dependencies_.size() &&
                          task_.exec_info_.empty();
  if (!can_follow) return false;
  begin();
  found_->key.compare();
  describe_surroundings();
  describe_places(*root);
  for (Step& step : found_->steps) {
    step.node = found_->sequences.empty() ? root.get() : found_->nodes[step.first_place];
    fetch_soon(*step.node);
    describe_step(step, /*is_needed=*/true);
    if (!follow_edges_along(step) || !found_->key.is_same_so_far() || !refusal_.empty())
      return false;
  }
  return found_->key.is_same() && found_->is_ranked();
}

bool Backward::follow_edges_along(const Step& step) {
  const auto& edges = step.node->next_edges();
  if (edges.size() != step.num_targets) return false;
  for (uint32_t i = 0; i < step.num_targets; ++i) {
    const torch::autograd::Edge& edge = edges[i];
    const Found::Target& target = found_->edges[step.first_target + i];
    if (edge.is_valid() != (target.input != kNoInput)) return false;
    if (edge.is_valid()) {
      if (edge.input_nr != target.input) return false;
      if (target.first_place == num_places_) {
        found_->nodes[num_places_] = edge.function.get();
        describe_places(*edge.function);
      } else if (found_->nodes[target.first_place] != edge.function.get()) {
        return false;
      }
    }
    put(found_->targets[step.first_target + i]);
  }
  return true;
}

const GraphTask::ExecInfo* Backward::wanted(const Node* node) const {
  if (task_.exec_info_.empty()) return nullptr;
  const auto found = task_.exec_info_.find(const_cast<Node*>(node));
  return found == task_.exec_info_.end() ? nullptr : &found->second;
}

bool Backward::is_needed(const Node* node) const {
  if (task_.exec_info_.empty() || node == only_root_) return true;
  const GraphTask::ExecInfo* info = wanted(node);
  return info != nullptr && info->needed_;
}

size_t Backward::num_inputs_before(size_t step) const {
  while (step-- > 0) {
    const Step& held = found_->steps[step];
    if (held.num_inputs != 0) return held.first_input + held.num_inputs;
  }
  return 0;
}

void Backward::refuse(std::string reason) {
  if (refusal_.empty()) refusal_ = std::move(reason);
}

void Backward::describe_surroundings() {
  put(backend_);
  put(Ambient::current().words());
}

void Backward::know_nodes(const NodePtr& root) {
  const size_t count = task_.dependencies_.size() + 1;
  size_t capacity = 16;
  while (capacity < 2 * count) capacity *= 2;
  found_->table.assign(capacity, 0);
  for (const auto& [node, dependencies] : task_.dependencies_) insert(node, dependencies);
  if (task_.dependencies_.count(root.get()) == 0) insert(root.get(), 0);
}

void Backward::insert(Node* node, int32_t dependencies) {
  const auto number = static_cast<uint32_t>(found_->known.size());
  found_->known.push_back({node, number, dependencies, kNowhere, true, true});
  const size_t mask = found_->table.size() - 1;
  size_t at = slot_of(node);
  while (found_->table[at & mask] != 0) ++at;
  found_->table[at & mask] = number + 1;
}

Backward::Known& Backward::find(Node* node) {
  const size_t mask = found_->table.size() - 1;
  for (size_t at = slot_of(node);; ++at) {
    const uint32_t entry = found_->table[at & mask];
    TORCH_INTERNAL_ASSERT(entry != 0, "an edge leads to a node that the engine does not know");
    if (found_->known[entry - 1].node == node) return found_->known[entry - 1];
  }
}

/// The node with this address; when it is met first, its inputs are numbered and described.
Backward::Known& Backward::meet(Node* node) {
  Known& known = find(node);
  if (known.first_place != kNowhere) return known;
  known.first_place = static_cast<int32_t>(num_places_);
  if (!task_.exec_info_.empty()) {
    const auto info = task_.exec_info_.find(node);
    const bool is_known = info != task_.exec_info_.end();
    known.is_wanted = is_known && info->second.should_execute();
    known.is_needed = is_known && info->second.needed_;
  }
  describe_places(*node);
  found_->nodes.resize(num_places_);
  if (node->num_inputs() != 0) found_->nodes[static_cast<size_t>(known.first_place)] = node;
  return known;
}

/// Numbers the inputs of a node.
void Backward::describe_places(const Node& node) {
  num_places_ += node.num_inputs();
  put(node.num_inputs());
  for (uint32_t i = 0; i < node.num_inputs(); ++i) describe_place(node.input_metadata(i));
}

void Backward::describe_place(const InputMetadata& metadata) {
  found_->place_sizes.push_back(static_cast<uint32_t>(found_->sizes.size()));
  if (metadata.was_default_constructed()) return put(PlaceKey{});
  if (metadata.is_nested_tensor()) return refuse("a nested tensor takes part in it");
  const c10::Device device = metadata.device();
  if (!device.is_cpu() && is_on_other_stream(device, metadata.stream())) {
    return refuse("it spans several streams");
  }
  const c10::SymIntArrayRef shape = metadata.shape_as_dim_vector();
  const std::optional<at::ScalarType> grad_dtype = metadata.grad_dtype();
  put(PlaceKey{static_cast<uint8_t>(shape.size()),
               static_cast<uint8_t>(metadata.dtype().toScalarType()),
               static_cast<uint8_t>(grad_dtype.value_or(at::ScalarType::Undefined)),
               static_cast<uint8_t>(metadata.layout()), static_cast<uint8_t>(device.type()),
               static_cast<uint8_t>(device.index()), metadata.is_tensor_subclass(), true});
  for (const c10::SymInt& size : shape) found_->sizes.push_back(size.expect_int());
}

Backward::Special Backward::special(const Node& node) {
  const std::type_info& type = typeid(node);
  Found::Type& entry =
      found_->types[(reinterpret_cast<uintptr_t>(&type) >> 4) % std::size(found_->types)];
  if (entry.type != &type) entry = {&type, find_special(type)};
  return entry.special;
}

/// The root comes first and has nothing to trace.
Step::Kind Backward::kind_of(const Hooks& hooks, bool is_needed, Special special) const {
  if (found_->sequences.empty()) return Step::Kind::Eager;
  if (!is_needed) return Step::Kind::Result;
  if (special != Special::Accumulator) return Step::Kind::Traced;
  return hooks.has(Hooks::Outputs) ? Step::Kind::Called : Step::Kind::Accumulate;
}

/// Which hooks are called is not part of the key, but which are traced is.
void Backward::describe_hooks(const Step& step) {
  constexpr uint8_t unpack = 128;
  put(static_cast<uint8_t>(step.hooks.kinds | (step.num_hooked == 0 ? 0 : unpack)));
  if (step.num_hooked != 0) {
    put(step.num_hooked);
    for (uint32_t i = 0; i < step.num_hooked; ++i) put(hooked()[step.first_hooked + i]);
  }
  if (step.hooks.has(Hooks::Before)) return;
  if (step.hooks.has(Hooks::Retained)) {
    c10::SmallVector<size_t, 4> indices;
    for (const auto& [index, hook] : step.node->retains_grad_hooks()) indices.push_back(index);
    std::sort(indices.begin(), indices.end());
    for (const size_t index : indices) put(index);
  }
  if (step.hooks.has(Hooks::Traced))
    for_each_traceable_hook(*step.node, [&](uint64_t id) { put(id); });
}

void Backward::add_step(const Known& known) {
  Step step{};
  step.node = known.node;
  step.first_place = static_cast<uint32_t>(known.first_place);
  describe_step(step, known.is_needed);
  if (!task_.exec_info_.empty()) describe_captures(step.node);
  if (known.is_needed) follow_edges(step);
  step.key_end = static_cast<uint32_t>(found_->key.size());
  found_->steps.push_back(step);
}

/// All but where its edges lead.
void Backward::describe_step(Step& step, bool is_needed) {
  Node& node = *step.node;
  const Special special = this->special(node);
  step.hooks = Hooks::of(node);
  step.kind = kind_of(step.hooks, is_needed, special);
  step.num_places = node.num_inputs();
  put(StepKey{&typeid(node), step.first_place, step.num_places});
  if (special == Special::CopySlices) describe_inner(node);
  step.num_hooked = 0;
  if (step.kind == Step::Kind::Traced && !collect_saved(step)) {
    step.kind = holds_user_code(node) ? Step::Kind::Called : Step::Kind::Eager;
    step.num_hooked = 0;
  }
  put(step.kind);
  describe_hooks(step);
  found_->sequences.push_back(node.sequence_nr());
}

/// A CopySlices tells what the node inside it holds, but not which node that is.
void Backward::describe_inner(const Node& copy_slices) {
  const Node* inner = static_cast<const torch::autograd::CopySlices&>(copy_slices).fn.get();
  put(inner == nullptr ? nullptr : &typeid(*inner));
  if (inner != nullptr && special(*inner) == Special::CopySlices) describe_inner(*inner);
}

/// Whether running the node is to call user code: its formula, or hooks of what it saved.
bool Backward::holds_user_code(const Node& node) {
  const Special special = this->special(node);
  if (special != Special::CopySlices) return special == Special::UserCode;
  Node* const inner = static_cast<const torch::autograd::CopySlices&>(node).fn.get();
  return inner != nullptr && (holds_user_code(*inner) || has_saved_tensor_hooks(*inner));
}

/// False: the node does not say, or must not yet be asked, what it holds. It is left to itself.
bool Backward::collect_saved(Step& step) {
  step.first_number = static_cast<uint32_t>(call_->lifted_ivalue_args.args.size());
  step.first_input = static_cast<uint32_t>(inputs().size());
  step.first_hooked = static_cast<uint32_t>(found_->hooked.size());
  if (found_->looks_for_hooked) step.num_hooked = found_->hooked.add(*step.node);
  const size_t first_size = call_->all_size_inputs.size();
  step.first_size_input = static_cast<uint32_t>(first_size);
  const bool is_known = collect_constants(step) && collect_numbers(step.first_number);
  found_->number_sizes.resize(call_->lifted_ivalue_args.args.size(), kNoSizes);
  step.first_size = static_cast<uint32_t>(found_->sizes.size());
  step.num_size_inputs = static_cast<uint32_t>(call_->all_size_inputs.size() - first_size);
  for (size_t i = first_size; i < call_->all_size_inputs.size(); ++i) {
    found_->sizes.push_back(call_->all_size_inputs[i].value);
  }
  // A node that stopped telling has told of none of these in the key.
  if (!is_known) put(step.num_size_inputs);
  step.num_inputs = static_cast<uint32_t>(inputs().size()) - step.first_input;
  return describe_inputs(step.first_input) && is_known;
}

/// What the node tells, which stays where it is until the next one is asked.
c10::ArrayRef<uint8_t> Backward::Constants::ask(Node& asked, bool has_hooked) {
  const auto lock = lock_node(asked);
  std::optional<HookedAside> aside;
  if (has_hooked) aside.emplace(asked);
  // With create_graph, what the node saved may get it as its history, and keep it.
  const bool is_kept = at::GradMode::is_enabled();
  if (is_kept) {
    node.node = asked.getptr();
  } else {
    borrow(node.node, asked);
  }
  const auto when_done =
      c10::make_scope_exit([&] { is_kept ? node.node.reset() : give_back(node.node); });
  asked.compiled_args(args);
  return constants_of(args).slice(size);
}

/// What hooks unpack makes LibTorch throw. The first time this happens, the walk begins anew.
bool Backward::collect_constants(const Step& step) {
  if (constants_ && constants_->size > kMostConstants) constants_.reset();
  if (!constants_) constants_.emplace(*call_);
  c10::ArrayRef<uint8_t> told;
  try {
    told = constants_->ask(*step.node, step.num_hooked != 0);
  } catch (const std::exception&) {
    constants_.reset();
    if (!found_->looks_for_hooked && has_saved_tensor_hooks(*step.node))
      must_begin_anew_ = found_->looks_for_hooked = true;
    return false;
  }
  put(told.size());
  found_->key.put(told.data(), told.size());
  constants_->size += told.size();
  return true;
}

bool Backward::collect_numbers(size_t first) {
  for (size_t i = first; i < call_->lifted_ivalue_args.args.size(); ++i) {
    const c10::IValue& number = *call_->lifted_ivalue_args.args[i].actual_ptr;
    const bool is_integer = number.isInt() || number.isSymInt();
    if (!is_integer && !number.isDouble()) return false;
    put(is_integer);
    // It may change as a size may. A floating-point number stands among them by its bits.
    found_->number_sizes.push_back(static_cast<uint32_t>(found_->sizes.size()));
    found_->sizes.push_back(is_integer ? number.toInt()
                                       : std::bit_cast<int64_t>(number.toDouble()));
  }
  return true;
}

bool Backward::describe_inputs(size_t first) {
  bool all_plain = true;
  for (size_t i = first; i < inputs().size(); ++i) {
    const c10::TensorImpl& input = *inputs()[i].unsafeGetTensorImpl();
    const bool is_one_plain = is_plain(input);
    all_plain = all_plain && is_one_plain;
    found_->versions.push_back(version_of(inputs()[i]));
    put(InputKey{input.key_set().raw_repr(), static_cast<uint64_t>(input.dim()) << 2 |
                                                 (input.requires_grad() ? 2 : 0) |
                                                 (input.is_wrapped_number() ? 1 : 0)});
    const size_t first_size = found_->sizes.size();
    found_->input_sizes.push_back(is_one_plain ? static_cast<uint32_t>(first_size) : kNoSizes);
    if (!is_one_plain) continue;
    for (const int64_t size : input.sizes()) found_->sizes.push_back(size);
    for (const int64_t stride : input.strides()) found_->sizes.push_back(stride);
  }
  return all_plain;
}

void Backward::let_go(size_t first_step, size_t end_step) {
  auto& held = found_->held;
  held.erase(std::remove_if(held.begin(), held.end(), [&](uint32_t i) { return let_go(i); }),
             held.end());
  for (size_t i = first_step; i < end_step; ++i) {
    const Step& step = found_->steps[i];
    for (uint32_t k = step.first_input; k < step.first_input + step.num_inputs; ++k) {
      if (!let_go(k)) held.push_back(k);
    }
  }
}

/// What nodes save as it is they hold by a reference of their own. What is made when a node is
/// asked belongs to that node alone.
bool Backward::let_go(uint32_t input) {
  at::Tensor& tensor = inputs()[input];
  if (tensor.defined() && tensor.use_count() == 1) tensor.reset();
  return !tensor.defined();
}

void Backward::describe_captures(const Node* node) {
  const GraphTask::ExecInfo* info = wanted(node);
  const bool is_captured = info != nullptr && info->captures_ != nullptr;
  put(is_captured);
  if (!is_captured) return;
  put(info->captures_->size());
  for (const auto& capture : *info->captures_) {
    put(capture.input_idx_);
    put(capture.output_idx_);
    if (!capture.DO_NOT_USE_DEPRECATED_get_capture_hooks().empty()) {
      refuse("the engine has hooks on what it captures");
    }
  }
}

void Backward::follow_edges(Step& step) {
  step.first_target = static_cast<uint32_t>(found_->targets.size());
  step.num_targets = step.node->num_outputs();
  for (const torch::autograd::Edge& edge : step.node->next_edges()) {
    int32_t target = kNowhere;
    Found::Target place{0, kNoInput};
    if (edge.is_valid()) {
      Known& next = meet(edge.function.get());
      place = {static_cast<uint32_t>(next.first_place), edge.input_nr};
      if (step.node == only_root_) next.is_wanted = true;
      const bool is_ready = --next.remaining == 0;
      if (next.is_wanted) target = next.first_place + static_cast<int32_t>(edge.input_nr);
      if (next.is_wanted && is_ready) {
        found_->ready.push_back({next.node->sequence_nr(), next.number});
        std::push_heap(found_->ready.begin(), found_->ready.end());
      }
    }
    found_->edges.push_back(place);
    found_->targets.push_back(target);
    put(target);
  }
}

}  // namespace ahead::engine
