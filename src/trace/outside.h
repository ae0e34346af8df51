#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tensors/ancestry.h"
#include "trace/lifted.h"
#include "trace/tensor/fake_tensor.h"

namespace ahead::tracing {

/// The tensors from outside that a trace has met. One wrapper stands for each inside the trace and
/// lies in memory as the real tensor does; once the trace is over, real tensors are as they were.
class Outside {
 public:
  /// What is lifted becomes an input of the graph that this tracer writes.
  explicit Outside(Tracer& tracer) : tracer_(tracer) {}

  /// The wrapper for a tensor from outside; made when it is met first.
  const at::Tensor& lift(const at::Tensor& real);
  /// The same for an argument of the traced function.
  const at::Tensor& lift_primal(const at::Tensor& real, int32_t index);
  /// The graph input for a tensor that turned up below autograd: one without gradient.
  FakeTensor& lift_constant(const at::Tensor& real);
  /// In the order in which they were met.
  const std::vector<Lifted>& lifted() const { return lifted_; }
  std::vector<Lifted>& lifted() { return lifted_; }
  /// What stands for a tensor from outside; null if it was not met.
  const Lifted* find_lifted(const at::Tensor& real) const;
  /// The tensor from outside that this graph input stands for; undefined if it is forgotten.
  at::Tensor find_real(const Value& input) const;

  /// Says that sizes may change from run to run, and where it is noted what is decided by them.
  void let_sizes_change(std::shared_ptr<SizeGuards> guards) {
    guards_ = std::move(guards);
    layouts_change_ = guards_ != nullptr;
  }
  /// The same where those of the tensors from outside stay as they are.
  void note_read_sizes(std::shared_ptr<SizeGuards> guards) { guards_ = std::move(guards); }
  bool sizes_change() const { return guards_ != nullptr; }
  /// Whether tensors from outside may be of other sizes in other runs.
  bool layouts_change() const { return layouts_change_; }
  const std::shared_ptr<SizeGuards>& guards() const { return guards_; }
  /// Says of a tensor from outside, before it is met, how its layout may change.
  void set_layout(const at::Tensor& real, Layout layout) {
    layouts_.emplace(real.unsafeGetTensorImpl(), std::make_shared<const Layout>(std::move(layout)));
  }

  /// The function is the recording of a call: nobody holds the real tensors meanwhile, so that they
  /// stay as they are.
  void note_replay() { is_replay_ = true; }
  bool is_replay() const { return is_replay_; }
  /// The function has run. Throws Unsupported if it may have read the `.grad` of an argument, for
  /// which nothing stands in the trace since it is sparse: a recording names what it reads.
  void check_grads() const;
  /// The recorded call gave a leaf another `.grad`, or none.
  void note_new_grad(const at::Tensor& leaf, at::Tensor grad) {
    new_grads_[leaf.unsafeGetTensorImpl()] = std::move(grad);
  }
  /// The new `.grad` of a leaf; null: it was not given one.
  const at::Tensor* find_new_grad(const at::Tensor& leaf) const {
    const auto known = new_grads_.find(leaf.unsafeGetTensorImpl());
    return known == new_grads_.end() ? nullptr : &known->second;
  }

  /// An operator is about to reach elements of this traced tensor by where they lie in memory. If
  /// that memory is outside, the wrapper is laid out like the real tensor from now on.
  void address_storage(const at::Tensor& traced);
  /// Puts tensors whose storage is addressed back in their place, after an operator wrote to them.
  void restore_storages() {
    if (any_storage_is_addressed_) restore_addressed_storages();
  }
  /// Throws if as_strided was used to make a view that reaches beyond the tensor from outside.
  void check_stays_inside(const at::Tensor& written) const;

  /// After an operator wrote to a traced tensor: user code may hold the real one of which it is the
  /// wrapper, and ask for gradients by it. So the real one gets the history of the wrapper.
  void mirror_history(const at::Tensor& written);
  /// Gives real tensors back their own history.
  void restore_histories();

  /// Lets go of the arguments, and of captured tensors that the function has only looked at, in a
  /// trace that goes on after the function has run.
  void forget_arguments();
  /// Lets go of everything at the end of a trace.
  void clear();

 private:
  const at::Tensor& add(const at::Tensor& real, Slot slot);
  void lift_grad(size_t position);
  void tie_to_relatives(size_t position);
  void restore_addressed_storages();
  Lifted* lifted_of(const at::Tensor& traced);
  Slot next_captured() { return {Slot::Kind::Captured, num_captured_++}; }

  Tracer& tracer_;
  int32_t num_captured_ = 0;
  bool is_replay_ = false;
  bool layouts_change_ = false;
  bool any_storage_is_addressed_ = false;
  std::vector<Lifted> lifted_;
  Ancestry ancestry_;  ///< of the lifted tensors, by position
  std::unordered_map<const c10::TensorImpl*, size_t> lifted_index_;
  std::unordered_map<const c10::StorageImpl*, size_t> lifted_storages_;
  std::unordered_map<const c10::TensorImpl*, std::shared_ptr<const Layout>> layouts_;
  std::shared_ptr<SizeGuards> guards_;  ///< null: no size changes
  std::unordered_map<const c10::TensorImpl*, at::Tensor> new_grads_;
  bool has_untraced_grad_ = false;
  struct Constant {
    at::Tensor real, fake;
  };
  std::unordered_map<const c10::TensorImpl*, Constant> constants_;
};

}  // namespace ahead::tracing
