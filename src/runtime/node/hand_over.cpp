#include "runtime/node/hand_over.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/dynamo/compiled_autograd.h>

#include <typeinfo>
#include <utility>

#include "ahead/errors.h"
#include "runtime/node/compiled_node.h"
#include "runtime/node/leaf_edges.h"

namespace ahead::runtime {

using torch::autograd::edge_list;
using torch::autograd::InputMetadata;
using torch::autograd::variable_list;
using torch::dynamo::autograd::CompiledNodeArgs;
using torch::dynamo::autograd::SwapSavedVariables;

namespace {

class MadeGradients final : public aot::GraphRun {
 public:
  explicit MadeGradients(std::vector<at::Tensor>&& gradients) : gradients_(std::move(gradients)) {}

  std::vector<at::Tensor> until(c10::ArrayRef<int32_t> outputs) override {
    std::vector<at::Tensor> taken;
    taken.reserve(outputs.size());
    for (const int32_t output : outputs)
      taken.push_back(std::move(gradients_[static_cast<size_t>(output)]));
    return taken;
  }
  bool will_read(size_t /*input*/) const override { return false; }
  void finish() override {}

 private:
  std::vector<at::Tensor> gradients_;
};

/// A tensor of one float. It is 0 where somebody may look at it.
at::Tensor one_float(const at::TensorOptions& options) {
  if (options.device().is_cpu()) {
    static float zero = 0;  // all tokens point there
    at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(
        c10::Storage(c10::Storage::use_byte_size_t(), sizeof(zero), c10::DataPtr(&zero, at::kCPU)),
        c10::DispatchKeySet(c10::DispatchKey::CPU), caffe2::TypeMeta::Make<float>());
    made.unsafeGetTensorImpl()->set_sizes_contiguous({});
    return made;
  }
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  return torch::autograd::AnomalyMode::is_enabled() ? at::zeros({}, options)
                                                    : at::empty({}, options);
}

}  // namespace

HandOver::HandOver(std::shared_ptr<const CallPlan> plan, variable_list&& made)
    : plan_(std::move(plan)), run_(std::make_unique<MadeGradients>(std::move(made))) {}

HandOver::HandOver(std::shared_ptr<const CallPlan> plan, BackwardVariants::PartPtr part,
                   std::vector<at::Tensor>&& args)
    : plan_(std::move(plan)), part_(std::move(part)) {
  if (part_->run.is_resumable()) {
    watch(args);
    run_ = part_->run.begin(std::move(args));
  } else {
    run_ = std::make_unique<MadeGradients>(part_->run(std::move(args)));
  }
}

/// Notes the versions of saved values that somebody else may hold.
void HandOver::watch(const std::vector<at::Tensor>& args) {
  const std::vector<BackwardPlan::Saved>& saved = plan_->backward.saved;
  for (size_t i = 0; i < saved.size(); ++i) {
    const bool is_alone =
        saved[i].kind == BackwardPlan::Saved::Kind::Intermediate && saved[i].shares_with < 0;
    if (is_alone || !args[i].defined() || args[i].is_inference()) continue;
    const c10::VariableVersion& counter = args[i].unsafeGetTensorImpl()->version_counter();
    watched_.push_back({i, counter, counter.current_version()});
  }
}

/// As eager's nodes check what they saved, when their turn comes.
void HandOver::check_versions() const {
  for (const Watched& watched : watched_) {
    if (!run_->will_read(watched.saved)) continue;
    const uint32_t version = watched.counter.current_version();
    TORCH_CHECK(version == watched.version,
                "one of the variables needed for gradient computation has been modified by an "
                "inplace operation: ",
                plan_->backward.program->saved()[watched.saved].str(),
                ", which the compiled function ", plan_->name,
                " saved for its backward, is at "
                "version ",
                version, "; expected version ", watched.version,
                " instead. It was written to while the backward ran, by a hook perhaps.");
  }
}

variable_list HandOver::take(size_t first, size_t end, bool is_last) {
  if (first != 0) check_versions();
  const std::vector<int32_t>& order = plan_->backward.program->order().places;
  const c10::ArrayRef<int32_t> places(order.data() + first, end - first);
  variable_list taken = run_->until(places);
  if (is_last) run_->finish();
  if (plan_->asserts != nullptr) check_gradients(places, taken);
  return taken;
}

void HandOver::check_gradients(c10::ArrayRef<int32_t> places,
                               const variable_list& gradients) const {
  variable_list all(plan_->backward.grad_inputs.size());
  for (size_t i = 0; i < places.size(); ++i) all[static_cast<size_t>(places[i])] = gradients[i];
  plan_->asserts->check_gradients(all);
}

at::Tensor HandOver::token(c10::intrusive_ptr<HandOver> content, const InputMetadata& like) {
  at::Tensor token = one_float(like.options());
  token.unsafeGetTensorImpl()->set_backend_meta(std::move(content));
  return token;
}

HandOver& HandOver::in(const at::Tensor& token) {
  auto* content = token.defined() ? token.unsafeGetTensorImpl()->get_backend_meta() : nullptr;
  if (content == nullptr) {
    throw InternalError("backward",
                        "the gradients of a compiled function were asked for, but not those of "
                        "its results.");
  }
  return static_cast<HandOver&>(*content);
}

/// With the number of the head, so that the engine goes on with the chain before it turns to what
/// was called earlier.
HandOverNode::HandOverNode(const NodePtr& head, std::shared_ptr<const CallPlan> plan, size_t first,
                           size_t end, edge_list&& edges)
    : Node(head->sequence_nr(), std::move(edges)),
      plan_(std::move(plan)),
      first_(first),
      end_(end),
      head_(weak(head)) {}

NodePtr HandOverNode::head() const {
  NodePtr alive = head_.lock();
  TORCH_CHECK(alive != nullptr, torch::autograd::ERR_BACKWARD_TWICE);
  return alive;
}

c10::ArrayRef<int32_t> HandOverNode::places() const {
  return {plan_->backward.program->order().places.data() + first_, end_ - first_};
}

HandOverNode* HandOverNode::next() const {
  const size_t own = end_ - first_;
  return num_outputs() == own ? nullptr : static_cast<HandOverNode*>(next_edge(own).function.get());
}

variable_list HandOverNode::apply(variable_list&& token) {
  const bool is_last = next() == nullptr || !task_should_compute_output(num_outputs() - 1);
  variable_list gradients = HandOver::in(token[0]).take(first_, end_, is_last);
  if (next() != nullptr) gradients.push_back(is_last ? at::Tensor() : std::move(token[0]));
  return gradients;
}

void HandOverNode::compiled_args(CompiledNodeArgs& args) const {
  TORCH_CHECK(!static_cast<CompiledNode&>(*head()).is_chain_watched(),
              "gradients are handed over to hooks before others are made");
  args.collect(plan_->backward.program->id());
  args.collect(first_);
  args.collect(end_);
}

variable_list HandOverNode::apply_with_saved(const variable_list& /*token*/,
                                             SwapSavedVariables& /*saved*/) {
  auto& head = static_cast<CompiledNode&>(*this->head());
  variable_list gradients = head.take_traced(places(), /*is_last=*/next() == nullptr);
  if (next() != nullptr) gradients.push_back(at::zeros({}, next()->input_metadata(0).options()));
  return gradients;
}

HandOverNode* next_link(const torch::autograd::Node& node) {
  if (typeid(node) == typeid(HandOverNode)) return static_cast<const HandOverNode&>(node).next();
  if (typeid(node) == typeid(CompiledNode)) return static_cast<const CompiledNode&>(node).chain();
  return nullptr;
}

c10::SmallVector<size_t, 8> cut_chain(const BackwardVariants::Order& order,
                                      const edge_list& edges) {
  c10::SmallVector<size_t, 8> ends;
  bool is_any = false;  // a leaf, since the last cut
  bool adds = false;    // to the `.grad` of a leaf so far
  const auto cut = [&](size_t end) {
    if (is_any) ends.push_back(end);
    is_any = false;
  };
  for (size_t i = 0; i < order.places.size(); ++i) {
    const torch::autograd::Edge& edge = edges[static_cast<size_t>(order.places[i])];
    const bool is_leaf = leads_to_leaf(edge);
    const bool is_seen = is_leaf && has_hooks_on_gradient(*edge.function);
    if (is_seen) cut(i);
    is_any |= is_leaf;
    // A gradient that becomes the leaf's `.grad` itself lives on in any case.
    adds |= is_leaf && !adds && has_grad(edge);
    if (is_seen || (adds && order.is_end[i])) cut(i + 1);
  }
  if (!ends.empty() && ends.back() == order.places.size()) ends.pop_back();
  return ends;
}

}  // namespace ahead::runtime
