#include <torch/csrc/autograd/functions/tensor.h>

#include "base/private_members.h"
#include "observe/recorder/place.h"
#include "observe/recorder/recorder.h"
#include "observe/recorder/seen_object.h"
#include "tensors/saved_variables.h"

/// What autograd saves by itself.
namespace ahead::observe {
namespace {

/// The autograd node of an operator that just wrote to a tensor in place; null: it made none.
torch::autograd::Node* node_of_write(const at::Tensor& written, uint64_t first_sequence) {
  const auto* meta = peek_meta(written.is_view() ? at::Tensor(written._base()) : written);
  torch::autograd::Node* node = meta == nullptr ? nullptr : meta->grad_fn_.get();
  while (node != nullptr && typeid(*node) == typeid(torch::autograd::CopySlices))
    node = static_cast<torch::autograd::CopySlices*>(node)->fn.get();
  const bool is_new = node != nullptr && node->sequence_nr() >= first_sequence;
  return is_new ? node : nullptr;
}

}  // namespace

/// If the gradient of an operator in place needs what it overwrites, autograd saves a copy of that,
/// which no operator returns. A backward inside the function reads it: it is recorded as if the
/// function had made it, before the step at `index`.
void Recorder::note_saved_copy(const at::Tensor& written, size_t index) {
  if (written.is_inference() || !has_place(written)) return;
  torch::autograd::Node* node = node_of_write(written, tape_->steps[index].sequence);
  if (node == nullptr) return;
  at::Tensor copy;
  for_each_saved(*node, [&](torch::autograd::SavedVariable& saved) {
    const at::Tensor& data = saved_data(saved);
    if (data.defined() && !saved.has_hooks() && has_place(data) &&
        ids_.count(data.unsafeGetTensorImpl()) == 0 &&
        memories_.count(data.storage().unsafeGetStorageImpl()) == 0 &&
        data.sizes() == written.sizes() && data.scalar_type() == written.scalar_type())
      copy = data;
  });
  if (!copy.defined()) return;
  static const Operator* const clone = Operator::find("aten.clone");
  const Step& write = tape_->steps[index];
  Step step{Step::Kind::Call};
  step.op = &observed_op(clone->handle());
  step.ins = {write.ins.front()};
  step.args.emplace_back();
  step.args.push_back(SeenObject::instead_of(c10::IValue()));
  step.number = write.number;
  step.place = write.place;
  step.ambient = write.ambient;
  step.sequence = write.sequence;
  const VariableId id = add_variable(copy);
  variables_[static_cast<size_t>(id)].is_saved_copy = true;
  step.outs = {id};
  tape_->steps.insert(tape_->steps.begin() + static_cast<int64_t>(index), std::move(step));
}

}  // namespace ahead::observe
