#include "checkpoint/eager_checkpoint.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/clone.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include "ahead/errors.h"
#include "base/libtorch.h"
#include "observe/recorder/recorder.h"
#include "ops/facts/facts.h"
#include "tensors/version_of.h"

namespace ahead::runtime {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::SavedVariableHooks;

/// Stands for the history of an argument in the second run; nothing ever flows through it.
struct ArgumentHistory final : torch::autograd::Node {
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    return std::move(gradients);
  }
};

class FrameHooks final : public GroupedHooks {
 public:
  explicit FrameHooks(std::shared_ptr<CheckpointFrame> frame) : frame_(std::move(frame)) {}
  void call_pack_hook(const at::Tensor& tensor) override { number_ = frame_->pack(tensor); }
  at::Tensor call_unpack_hook() override { return frame_->unpack(number_); }
  const void* group() const override { return frame_.get(); }

 private:
  const std::shared_ptr<CheckpointFrame> frame_;
  size_t number_ = 0;
};

}  // namespace

CheckpointArgument::CheckpointArgument(const at::Tensor& tensor)
    : requires_grad_(tensor.requires_grad()), is_leaf_(tensor.is_leaf()) {
  // With its history, an argument that the function writes to would hold the function's own nodes.
  if (PackerScope::is_active()) {
    saved_ = SavedVariable(tensor.detach(), /*is_output=*/false);
  } else {
    tensor_ = tensor.detach();
  }
}

at::Tensor CheckpointArgument::unpack() const {
  at::Tensor tensor = (tensor_.defined() ? tensor_ : saved_.unpack()).detach();
  if (!requires_grad_) return tensor;
  if (is_leaf_) return tensor.requires_grad_();
  torch::autograd::create_gradient_edge(tensor, make_autograd_node<ArgumentHistory>());
  return tensor;
}

CheckpointFrame::CheckpointFrame(const CheckpointPolicy& policy,
                                 const std::vector<at::Tensor>& leaves, detail::RepeatedCall again)
    : policy_(policy), again_(std::move(again)) {
  for (const at::Tensor& leaf : leaves) arguments_.emplace_back(leaf);
}

CheckpointFrame::FirstRun::FirstRun(CheckpointFrame& frame)
    : frame_(frame),
      packer_(frame),
      watch_(frame.outside_, [&frame](const Operator& op, const std::vector<at::Tensor>& results) {
        frame.end_operator(op, results);
      }) {}

CheckpointFrame::FirstRun::~FirstRun() {
  std::lock_guard<std::mutex> lock(frame_.mutex_);
  frame_.is_first_run_ = false;
  frame_.pending_.clear();
  frame_.saved_storages_.clear();
}

std::unique_ptr<SavedVariableHooks> CheckpointFrame::make_hooks() {
  return std::make_unique<FrameHooks>(shared_from_this());
}

bool CheckpointFrame::is_saved_by_policy(const at::Tensor& tensor) const {
  return tensor.has_storage() &&
         saved_storages_.count(tensor.storage().unsafeGetStorageImpl()) != 0;
}

CheckpointFrame::Versioned CheckpointFrame::note(const at::Tensor& tensor) {
  at::RecordFunctionGuard unwatched(/*is_enabled=*/false);
  return {tensor.detach(), version_of(tensor)};
}

/// LibTorch makes warnings of what is thrown here.
std::optional<Saving> CheckpointFrame::ask_policy(const Operator& op) {
  try {
    return policy_(op);
  } catch (...) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!problem_) problem_ = std::current_exception();
    return std::nullopt;
  }
}

void CheckpointFrame::rethrow_problem() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (problem_) std::rethrow_exception(problem_);
}

size_t CheckpointFrame::pack(const at::Tensor& tensor) {
  std::lock_guard<std::mutex> lock(mutex_);
  Packed packed{tensor.scalar_type(), tensor.device(), {}, {}};
  packed.sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
  if (!policy_.is_uniform()) {
    Versioned saved = note(tensor);
    if (is_saved_by_policy(tensor)) {
      packed.saved = std::move(saved);
    } else {
      pending_.emplace_back(packed_.size(), std::move(saved));
    }
  }
  packed_.push_back(std::move(packed));
  return packed_.size() - 1;
}

/// Not where a gradient is to flow through the results: that needs their history.
void CheckpointFrame::note_effect(const Operator& op, const std::vector<at::Tensor>& results) {
  if (op.schema().returns().size() != results.size()) return;
  for (const at::Tensor& result : results) {
    if (result.requires_grad()) return;
  }
  const observe::RecordingPause unseen;
  const at::NoGradGuard no_grad;
  observe::EffectCall call{&op, {}};
  for (const at::Tensor& result : results) call.results.push_back(at::clone(result));
  std::lock_guard<std::mutex> lock(mutex_);
  effects_.push_back(std::move(call));
}

/// An operator's own results are saved before it ends.
void CheckpointFrame::end_operator(const Operator& op, const std::vector<at::Tensor>& results) {
  if (ops::facts(op).is_known_effect) note_effect(op, results);
  if (policy_.is_uniform()) return;
  const std::optional<Saving> saving = ask_policy(op);
  std::lock_guard<std::mutex> lock(mutex_);
  if (saving == Saving::MustSave || saving == Saving::PreferSave) {
    for (const at::Tensor& result : results) {
      const c10::Storage& storage = result.storage();
      saved_storages_.try_emplace(storage.unsafeGetStorageImpl(), storage.getWeakStorageImpl());
    }
    for (auto& [number, saved] : pending_) {
      if (is_saved_by_policy(saved.tensor)) packed_[number].saved = saved;
    }
  }
  pending_.clear();
}

/// Collects what autograd saves when the call is made again.
class CheckpointFrame::SecondRun final : public SavedTensorPacker {
 public:
  std::unique_ptr<SavedVariableHooks> make_hooks() override {
    return std::make_unique<Hooks>(saved_);
  }
  std::vector<Versioned> take() { return std::move(*saved_); }

 private:
  /// The function may take a gradient itself, so that what it saves is asked for at once.
  class Hooks final : public SavedVariableHooks {
   public:
    explicit Hooks(std::shared_ptr<std::vector<Versioned>> saved) : saved_(std::move(saved)) {}
    void call_pack_hook(const at::Tensor& tensor) override {
      number_ = saved_->size();
      saved_->push_back(note(tensor));
    }
    at::Tensor call_unpack_hook() override {
      if (number_ < saved_->size()) return checked((*saved_)[number_]);
      throw UserError("checkpoint",
                      "when the checkpointed function was called again, it wrote to a tensor from "
                      "outside that has a gradient, whose history is the second call's since. Make "
                      "such a tensor an argument.");
    }

   private:
    const std::shared_ptr<std::vector<Versioned>> saved_;
    size_t number_ = 0;
  };

  std::shared_ptr<std::vector<Versioned>> saved_ = std::make_shared<std::vector<Versioned>>();
};

at::Tensor CheckpointFrame::unpack(size_t number) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (packed_[number].saved.tensor.defined()) return checked(packed_[number].saved);
  const int64_t task = torch::autograd::get_current_graph_task_id();
  if (task != task_ || recomputed_.empty() || !recomputed_[number].tensor.defined()) {
    run_again(task);
  }
  const Versioned saved = std::move(recomputed_[number]);
  recomputed_[number] = {};
  return checked(saved);
}

void CheckpointFrame::run_again(int64_t task) {
  recomputed_.clear();
  std::vector<at::Tensor> leaves;
  for (const CheckpointArgument& argument : arguments_) leaves.push_back(argument.unpack());
  outside_.check_unwritten();
  SecondRun run;
  {
    const Surroundings::Scope surroundings(surroundings_);
    const OutsideTensors::Rewind rewind(outside_);
    const CheckpointPause pause;
    const PackerScope packer(run);
    at::AutoGradMode grad_mode(true);
    const observe::EffectReplay effects(effects_);
    again_(leaves);
  }
  std::vector<Versioned> saved = run.take();
  check_same(saved);
  for (size_t i = 0; i < packed_.size(); ++i) {
    if (packed_[i].saved.tensor.defined()) saved[i] = {};
  }
  recomputed_ = std::move(saved);
  task_ = task;
  if (task < 0) return;
  // Nodes that this backward does not reach do not ask for theirs.
  torch::autograd::Engine::get_default_engine().queue_callback([self = weak_from_this(), task] {
    const auto frame = self.lock();
    if (frame == nullptr) return;
    std::lock_guard<std::mutex> lock(frame->mutex_);
    if (frame->task_ == task) frame->recomputed_.clear();
  });
}

void CheckpointFrame::check_same(const std::vector<Versioned>& again) const {
  const bool same_number =
      is_first_run_ ? again.size() >= packed_.size() : again.size() == packed_.size();
  bool same = same_number;
  for (size_t i = 0; same && i < packed_.size(); ++i) {
    const at::Tensor& tensor = again[i].tensor;
    same = tensor.scalar_type() == packed_[i].dtype && tensor.device() == packed_[i].device &&
           tensor.sizes() == at::IntArrayRef(packed_[i].sizes);
  }
  if (same) return;
  throw UserError("checkpoint",
                  "the checkpointed function does something else when it is called again (" +
                      std::to_string(packed_.size()) + " tensors saved at first, " +
                      std::to_string(again.size()) +
                      " now, or others). It must depend on its arguments alone, or on what stays "
                      "as it is until the backward.");
}

at::Tensor CheckpointFrame::checked(const Versioned& saved) {
  TORCH_CHECK(version_of(saved.tensor) == saved.version,
              "one of the variables needed for gradient computation has been modified by an "
              "inplace operation: a tensor of shape ",
              saved.tensor.sizes(), ", which a checkpointed function saves, is at version ",
              version_of(saved.tensor), "; expected version ", saved.version, " instead.");
  return saved.tensor;
}

}  // namespace ahead::runtime
