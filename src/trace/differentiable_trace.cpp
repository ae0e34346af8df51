#include "trace/differentiable_trace.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "ahead/errors.h"
#include "trace/analysis/function_meta.h"
#include "trace/backward_trace.h"
#include "trace/open_trace.h"
#include "trace/tensor/functional.h"

namespace ahead::tracing {
namespace {

using torch::autograd::Edge;
using torch::autograd::edge_list;

/// Finds the values of one graph in another that does the same.
class Matcher {
 public:
  /// `captured`: for each input of `from`.
  Matcher(const Graph& from, const std::vector<at::Tensor>& captured, const Graph& to)
      : from_(from), captured_(captured), to_(to) {
    map_.resize(from.value_capacity(), nullptr);
  }

  /// Whether the forward of the one is all of the other.
  bool run() {
    if (!match_inputs()) return false;
    const Node* node = from_.first();
    for (const Node& twin : to_.nodes()) {
      while (node != nullptr && node->phase != Phase::Forward) node = node->next();
      if (node == nullptr || !match(*node, twin)) return false;
      node = node->next();
    }
    while (node != nullptr && node->phase != Phase::Forward) node = node->next();
    return node == nullptr;
  }

  ValueMap take() { return std::move(map_); }

 private:
  /// Tensors that only the backward has met are none of the function's own inputs.
  bool match_inputs() {
    for (size_t i = 0; i < from_.inputs().size(); ++i) {
      const Graph::Input& input = from_.inputs()[i];
      if (input.slot.kind == Slot::Kind::Tangent) continue;
      const int64_t position = to_.find_input(input.slot);
      if (position < 0) continue;
      const Graph::Input& twin = to_.inputs()[static_cast<size_t>(position)];
      if (!twin.captured.is_same(captured_[i])) return false;
      map_[input.value->id()] = twin.value;
    }
    return true;
  }

  bool match(const Node& node, const Node& twin) {
    const bool is_same_call =
        &node.op() == &twin.op() && node.args().size() == twin.args().size() &&
        node.tags() == twin.tags() && node.results().size() == twin.results().size() &&
        std::equal(node.args().begin(), node.args().end(), twin.args().begin(),
                   [&](const Argument& a, const Argument& b) { return match(a, b); });
    if (!is_same_call) return false;
    for (size_t i = 0; i < node.results().size(); ++i) {
      if ((node.result(i) == nullptr) != (twin.result(i) == nullptr)) return false;
      if (node.result(i) != nullptr) map_[node.result(i)->id()] = twin.result(i);
    }
    return true;
  }

  bool match(const Argument& a, const Argument& b) const {
    if (a.is_value()) return b.is_value() && map_[a.value()->id()] == b.value();
    if (a.is_list()) {
      return b.is_list() && a.list().size() == b.list().size() &&
             std::equal(a.list().begin(), a.list().end(), b.list().begin(),
                        [&](const Argument& x, const Argument& y) { return match(x, y); });
    }
    return a.is_constant() && b.is_constant() && a.constant().tagKind() == b.constant().tagKind() &&
           a.constant() == b.constant();
  }

  const Graph& from_;
  const std::vector<at::Tensor>& captured_;
  const Graph& to_;
  ValueMap map_;
};

/// How often each traced tensor that user code or the trace holds has been written to.
class WriteCounts {
 public:
  explicit WriteCounts(Tracer& tracer) {
    for (const at::Tensor& tensor : tracer.live_tensors().watched()) add(tensor);
    for (const Lifted& lifted : tracer.outside().lifted()) add(lifted.wrapper);
  }

  /// Whether one that is still alive has been written to since.
  bool have_changed() const {
    return std::any_of(counts_.begin(), counts_.end(), [](const auto& entry) {
      auto alive = entry.first.lock();
      return alive && functional_wrapper(at::Tensor(alive)).mutation_counter() != entry.second;
    });
  }

 private:
  void add(const at::Tensor& traced) {
    counts_.emplace_back(traced.getIntrusivePtr(), functional_wrapper(traced).mutation_counter());
  }

  std::vector<std::pair<c10::weak_intrusive_ptr<c10::TensorImpl>, uint64_t>> counts_;
};

bool has_leaf_hooks(const Lifted& lifted) {
  if (lifted.link != GradLink::SharedLeaf) return false;
  const auto* meta = torch::autograd::impl::get_autograd_meta(lifted.real);
  return meta != nullptr && !meta->hooks_.empty();
}

}  // namespace

std::unique_ptr<DifferentiableTrace> DifferentiableTrace::make(
    const aot::FlatFunction& function, const std::vector<at::Tensor>& inputs, const Graph& joint,
    const std::vector<at::Tensor>& captured) {
  std::unique_ptr<OpenTrace> open;
  edge_list roots;
  try {
    open = trace_forward(function, inputs, {.watches_tensors = true});
    FunctionMeta meta = analyse(*open);
    open->tracer()->generators().finish();
    roots = begin_backward(*open, std::move(meta));
    open->leave();
  } catch (const std::exception&) {
    return nullptr;  // it did not throw before
  }
  std::unique_ptr<DifferentiableTrace> made(
      new DifferentiableTrace(std::move(open), std::move(roots)));
  if (!made->match(joint, captured)) return nullptr;
  made->open_->graph().forget_captured();
  made->outside().forget_arguments();
  made->num_values_ = made->graph().value_capacity();
  return made;
}

DifferentiableTrace::~DifferentiableTrace() {
  const c10::intrusive_ptr<Tracer> tracer = open_->tracer();
  roots_.clear();
  open_.reset();
  tracer->live_tensors().forget_watched();
}

bool DifferentiableTrace::match(const Graph& joint, const std::vector<at::Tensor>& captured) {
  Matcher matcher(joint, captured, open_->writer().graph());
  const bool is_same = matcher.run();
  values_ = matcher.take();
  size_t tangents = 0;
  for (const Graph::Input& input : joint.inputs()) {
    tangents += input.slot.kind == Slot::Kind::Tangent ? 1 : 0;
  }
  return is_same && tangents == roots_.size();
}

Edge DifferentiableTrace::edge_of(const Value& input) const {
  for (const Lifted& lifted : outside().lifted()) {
    if (lifted.value == &input && lifted.link != GradLink::None) return {lifted.node, 0};
  }
  return {};
}

at::Tensor DifferentiableTrace::find_outside(const Value& value) const {
  return value.id() < num_values_ ? at::Tensor() : outside().find_real(value);
}

/// Hooks of a captured leaf run outside, but it shares its accumulator with the trace.
void DifferentiableTrace::check_usable() const {
  const std::vector<Lifted>& lifted = outside().lifted();
  if (is_spoiled_) {
    throw Unsupported("double backward",
                      "a custom autograd function or a hook writes to a tensor that its backward "
                      "did not make. Write to a clone of it.");
  }
  if (std::any_of(lifted.begin(), lifted.end(), has_leaf_hooks)) {
    throw Unsupported("double backward",
                      "hook: a captured leaf got a hook after the function was compiled. Register "
                      "it before, or pass the leaf as an argument.");
  }
}

DifferentiableTrace::Derivative DifferentiableTrace::differentiate(
    const Stage& stage, const std::vector<std::optional<TensorMeta>>& tangents,
    const std::vector<bool>& wanted, bool create_graph) {
  check_usable();
  Derivative derivative;
  derivative.before = open_->writer().graph().last();
  const size_t num_lifted = outside().lifted().size();
  const WriteCounts writes(*open_->tracer());
  const TraceScope scope(*open_->tracer());
  edge_list roots, targets;
  std::vector<at::Tensor> coming_in;
  for (size_t i = 0; i < tangents.size(); ++i) {
    derivative.tangents.push_back(nullptr);
    if (!tangents[i]) continue;
    roots.push_back(stage.roots[i]);
    coming_in.push_back(
        open_->writer().add_input({Slot::Kind::Tangent, static_cast<int32_t>(i)}, *tangents[i]));
    derivative.tangents.back() = value_of(coming_in.back());
    if (tangents[i]->requires_grad) coming_in.back().set_requires_grad(true);
  }
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i]) targets.push_back(stage.targets[i]);
  }
  std::vector<at::Tensor> found(targets.size());
  if (!roots.empty() && !targets.empty()) {
    found = torch::autograd::Engine::get_default_engine().execute(
        roots, coming_in, /*keep_graph=*/true, create_graph, /*accumulate_grad=*/false, targets);
  }
  is_spoiled_ = writes.have_changed();
  for (const at::Tensor& tangent : coming_in)
    is_spoiled_ |= functional_wrapper(tangent).has_data_mutation();
  check_usable();
  derivative.next.targets = stage.targets;
  size_t next = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const at::Tensor gradient = wanted[i] ? found[next++] : at::Tensor();
    const bool is_real = gradient.defined() && !is_traced(gradient);
    const at::Tensor traced = is_real ? outside().lift(gradient) : gradient;
    derivative.gradients.push_back(traced.defined() ? value_of(traced) : nullptr);
    const bool has_history = create_graph && traced.defined() && traced.requires_grad();
    derivative.has_history.push_back(has_history);
    if (has_history) derivative.next.roots.push_back(torch::autograd::impl::gradient_edge(traced));
  }
  if (create_graph) add_targets(coming_in, num_lifted, derivative);
  return derivative;
}

void DifferentiableTrace::add_targets(const std::vector<at::Tensor>& tangents, size_t num_lifted,
                                      Derivative& derivative) const {
  for (const at::Tensor& tangent : tangents) {
    if (tangent.requires_grad())
      derivative.next.targets.push_back(torch::autograd::impl::gradient_edge(tangent));
  }
  for (size_t i = num_lifted; i < outside().lifted().size(); ++i) {
    const Lifted& lifted = outside().lifted()[i];
    if (lifted.link == GradLink::None) continue;
    if (lifted.link != GradLink::SharedLeaf) lifted.node->set_next_edges({});
    derivative.next.targets.emplace_back(lifted.node, 0);
    derivative.outside.push_back(lifted.real);
  }
}

}  // namespace ahead::tracing
