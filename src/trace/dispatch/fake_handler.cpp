#include "trace/dispatch/fake_handler.h"

#include <c10/core/impl/LocalDispatchKeySet.h>

#include "ahead/errors.h"
#include "base/autocast.h"
#include "ir/signature.h"
#include "ir/sizes/sized_constants.h"
#include "ops/facts/facts.h"
#include "ops/facts/node_facts.h"
#include "ops/layout_rules.h"
#include "tensors/below_tracing.h"
#include "tensors/device.h"
#include "tensors/map_tensors.h"
#include "tensors/wrapper_call.h"
#include "trace/dispatch/handlers.h"
#include "trace/dispatch/inference.h"
#include "trace/dispatch/known_results.h"
#include "trace/eager/in_place.h"
#include "trace/sparse_gradients.h"

namespace ahead::tracing {
namespace {

/// The number behind a wrapped-number tensor, if it is of one of the types that numbers have, or
/// float: the interpreter makes those for float arithmetic.
std::optional<at::Scalar> wrapped_number(const at::Tensor& tensor) {
  if (!tensor.unsafeGetTensorImpl()->is_wrapped_number() || !tensor.is_cpu()) return std::nullopt;
  switch (tensor.scalar_type()) {
    case at::kDouble:
      return at::Scalar(*tensor.const_data_ptr<double>());
    case at::kFloat:
      return at::Scalar(*tensor.const_data_ptr<float>());
    case at::kLong:
      return at::Scalar(*tensor.const_data_ptr<int64_t>());
    case at::kBool:
      return at::Scalar(*tensor.const_data_ptr<bool>());
    case at::kComplexDouble:
      return at::Scalar(*tensor.const_data_ptr<c10::complex<double>>());
    default:
      return std::nullopt;
  }
}

bool is_changing(const c10::IValue& argument) {
  if (has_sizes(argument)) return true;
  bool is_any = false;
  for_each_tensor(argument, [&](const at::Tensor& tensor) {
    is_any = is_any || tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides();
  });
  return is_any;
}

}  // namespace

FakeHandler::FakeHandler(const c10::OperatorHandle& handle, torch::jit::Stack& stack)
    : handle_(handle),
      stack_(stack),
      op_(traced_op(handle)),
      first_(stack.size() - static_cast<size_t>(op_.num_args)) {}

void FakeHandler::run() {
  if (op_.random && !op_.mutates && draw_in_place(op_, stack_)) return;
  if (multiply_in_place(op_, stack_)) return;
  BelowTracing below;
  if (!find_tracer()) return pass_through();
  if (read_size()) return;
  refuse_if_data_dependent();
  refuse_if_host_reads_effect();
  refuse_cast_inside();
  refuse_write_through_unfold();
  if (op_.makes_sparse) check_makes_gradient(*tracer_, *op_.op);
  take_arguments();
  if (op_.mutates) note_written();
  infer_results(op_, device_, *tracer_, stack_);
  // A number that follows from shapes alone is a constant of the program.
  if (op_.num_returns > 0 && !op_.returns_tensors) return refuse_if_symbolic();
  if (!symbolic_arguments_.empty()) find_layouts();
  Node* node = record();
  wrap_results(node);
  if (op_.mutates) add_written(node);
}

Node* FakeHandler::record() {
  const bool random = op_.random && ops::draws_random(*op_.op, arguments_);
  if (random) tracer_->generators().note_draw(generator_argument(), device_);
  Node* node = tracer_->writer().record(*op_.op, std::move(arguments_));
  tracer_->hidden_writes().note_node(*node);
  tracer_->checkpoints().note_node(*node);
  if (random) tracer_->generators().note_node(*node);
  if (random) node->set(Tag::Random);
  if (op_.effectful || op_.num_returns == 0) node->set(Tag::Effect);
  return node;
}

/// The generator that the operator draws from; undefined: the default one.
at::Generator FakeHandler::generator_argument() const {
  for (const Argument& argument : arguments_) {
    if (argument.is_constant() && argument.constant().isGenerator())
      return argument.constant().toGenerator();
  }
  return {};
}

/// False for calls that are not part of the program: functionalisation checks in-place operators on
/// plain meta tensors, and computations on constants stay constants.
bool FakeHandler::find_tracer() {
  bool any_tensor = false;
  for (size_t i = first_; i < stack_.size() && tracer_ == nullptr; ++i) {
    for_each_tensor(stack_[i], [&](const at::Tensor& tensor) {
      any_tensor = true;
      if (is_fake(tensor)) tracer_ = &as_fake(tensor).tracer();
    });
  }
  const bool is_of_program =
      (!any_tensor && (op_.returns_tensors || op_.acts)) || op_.facts->is_known_effect;
  if (tracer_ == nullptr && is_of_program) tracer_ = Tracer::current();
  if (tracer_ == nullptr) return false;
  if (tracer_->is_closed()) {
    throw UserError(
        "trace", op_.op->name() +
                     ": a tensor of a finished trace is used. It has no data; return it from the "
                     "traced function instead of storing it.");
  }
  return true;
}

void FakeHandler::pass_through() {
  if (is_in_place_trial(op_, stack_)) return try_in_place(op_, Tracer::current(), stack_);
  handle_.callBoxed(stack_);
}

/// A number that user code may keep as a size.
bool FakeHandler::read_size() {
  static const Operator* const number = Operator::find("aten._local_scalar_dense");
  if (op_.op != number || !tracer_->size_reads().are_allowed(stack_.back().toTensor()))
    return false;
  take_arguments();
  stack_.back() = tracer_->size_reads().read(arguments_[0].value());
  return true;
}

void FakeHandler::refuse_if_data_dependent() const {
  if (op_.refusal == nullptr || KnownResults::find(handle_) != nullptr) return;
  throw DataDependent("trace",
                      op_.op->name() + ": " + op_.refusal +
                          ", and graphs are made without values. Keep the decision in "
                          "tensor operators (where, masked_fill), or outside the function.");
}

void FakeHandler::refuse_if_symbolic() const {
  if (symbolic_arguments_.empty()) return;
  throw Unsupported("trace",
                    op_.op->name() + ": it makes a number of sizes, so that they cannot change.");
}

/// A number that such an operator returns is none of the program's.
void FakeHandler::refuse_if_host_reads_effect() const {
  if (!op_.acts || op_.num_returns == 0 || op_.returns_tensors) return;
  throw Unsupported("trace", op_.op->name() +
                                 ": it has an effect and returns something that is no tensor, "
                                 "which a graph cannot hand to the host. Return a tensor.");
}

/// Graphs run without autocast: what it does above a kernel is in them, what it does inside is not.
void FakeHandler::refuse_cast_inside() const {
  if (!op_.casts_inside || !is_autocast_enabled()) return;
  throw Unsupported("trace", op_.op->name() +
                                 ": autocast casts what its kernel computes with. Call it with "
                                 "autocast off.");
}

/// Functionalisation undoes unfold with its gradient, which forgets what no window covers.
void FakeHandler::refuse_write_through_unfold() const {
  if (!op_.is_unfold_backward || tracer_->writer().issuer()) return;
  throw Unsupported("trace",
                    "unfold: the function writes to windows of a tensor. Write to a clone of them "
                    "and copy it back.");
}

void FakeHandler::take_arguments() {
  arguments_.reserve(static_cast<size_t>(op_.num_args));
  const auto first = stack_.begin() + static_cast<std::ptrdiff_t>(first_);
  if (tracer_->outside().sizes_change() && std::any_of(first, stack_.end(), is_changing))
    symbolic_arguments_.assign(first, stack_.end());
  for (size_t i = first_; i < stack_.size(); ++i) arguments_.push_back(take(stack_[i]));
  replace_device_argument();
}

/// Returns what to record, and leaves on the stack what to infer from.
Argument FakeHandler::take(c10::IValue& slot) {
  if (slot.isTensor()) {
    at::Tensor tensor = std::move(slot).toTensor();
    Argument argument = take_tensor(tensor);
    slot = std::move(tensor);
    return argument;
  }
  if (slot.isTensorList() || slot.isOptionalTensorList()) return take_list(slot);
  return has_sizes(slot) ? take_sizes(slot) : Argument(slot);
}

Argument FakeHandler::take_sizes(c10::IValue& slot) {
  if (!are_noted_by(slot, tracer_->outside().guards().get())) {
    throw UserError("trace", op_.op->name() +
                                 ": a size of another trace is used. Do not keep sizes beyond the "
                                 "traced function.");
  }
  Argument argument(slot);
  slot = with_peeked_sizes(slot);
  return argument;
}

Argument FakeHandler::take_tensor(at::Tensor& tensor) {
  if (!tensor.defined()) return Argument(c10::IValue());
  if (!is_fake(tensor)) {
    if (auto number = wrapped_number(tensor)) {
      if (device_from_ == DeviceFrom::Default) choose_device(tensor);
      tensor = meta_copy(tensor);
      return Argument(c10::IValue(*number));
    }
  }
  FakeTensor& fake = is_fake(tensor) ? as_fake(tensor) : tracer_->outside().lift_constant(tensor);
  if (&fake.tracer() != tracer_) {
    throw UserError("trace", op_.op->name() + ": tensors of two different traces meet.");
  }
  choose_device(tensor);
  if (at::isFloatingType(tensor.scalar_type())) tracer_->casts().note_dtype(tensor.scalar_type());
  Value* value = fake.value();
  tensor = fake.meta();
  return Argument(value);
}

Argument FakeHandler::take_list(c10::IValue& slot) {
  Argument::List list;
  if (slot.isTensorList()) {
    std::vector<at::Tensor> tensors = slot.toTensorVector();
    list.reserve(tensors.size());
    for (at::Tensor& tensor : tensors) list.push_back(take_tensor(tensor));
    slot = c10::IValue(std::move(tensors));
  } else {
    auto tensors = slot.toOptionalTensorList().copy();
    list.reserve(tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
      std::optional<at::Tensor> tensor = tensors.get(i);
      at::Tensor taken = tensor ? *tensor : at::Tensor();
      list.push_back(take_tensor(taken));
      if (taken.defined()) tensors.set(i, taken);
    }
    slot = c10::IValue(std::move(tensors));
  }
  return Argument(std::move(list));
}

/// Results live where the operands do; a 0-dim CPU tensor goes along with any device.
void FakeHandler::choose_device(const at::Tensor& tensor) {
  const DeviceFrom from =
      tensor.dim() == 0 && tensor.is_cpu() ? DeviceFrom::Scalar : DeviceFrom::Tensor;
  if (from <= device_from_) return;
  device_ = tensor.device();
  device_from_ = from;
}

void FakeHandler::replace_device_argument() {
  if (op_.pin_memory_arg >= 0)
    stack_[first_ + static_cast<size_t>(op_.pin_memory_arg)] = c10::IValue();
  if (op_.device_arg < 0) return;
  c10::IValue& argument = stack_[first_ + static_cast<size_t>(op_.device_arg)];
  if (argument.isDevice()) {
    device_ = with_index(argument.toDevice());
    device_from_ = DeviceFrom::Argument;
  } else if (op_.takes_tensors) {
    return;
  }
  argument = c10::IValue(at::Device(at::kMeta));
}

/// Looks at results before they become part of the graph.
void FakeHandler::find_layouts() {
  std::vector<at::Tensor> results;
  for (size_t i = stack_.size() - static_cast<size_t>(op_.num_returns); i < stack_.size(); ++i) {
    if (stack_[i].isTensor()) {
      results.push_back(stack_[i].toTensor());
    } else if (stack_[i].isTensorList()) {
      for (const at::Tensor& tensor : stack_[i].toTensorVector()) results.push_back(tensor);
    } else {
      results.emplace_back();
    }
  }
  if (op_.num_returns == 0) return;
  layouts_ = ops::layouts_of_results(
      {*op_.op, symbolic_arguments_, results, tracer_->outside().guards()}, op_.pointwise);
}

/// Null: it does not change.
std::shared_ptr<const Layout> FakeHandler::layout_of(size_t result) const {
  if (layouts_.empty() || layouts_[result].is_fixed()) return nullptr;
  return std::make_shared<const Layout>(layouts_[result]);
}

void FakeHandler::wrap_results(Node* node) {
  const auto num_returns = static_cast<size_t>(op_.num_returns);
  const size_t first_return = stack_.size() - num_returns;
  for (size_t i = 0; i < num_returns; ++i) {
    c10::IValue& slot = stack_[first_return + i];
    if (slot.isTensorList()) {
      wrap_list(node, slot);
    } else {
      const bool is_written = op_.mutates && handle_.schema().returns()[i].alias_info() != nullptr;
      wrap_result(node, slot, is_written);
    }
  }
}

void FakeHandler::wrap_list(Node* node, c10::IValue& slot) {
  std::vector<at::Tensor> tensors = slot.toTensorVector();
  std::vector<std::optional<TensorMeta>> metas;
  metas.reserve(tensors.size());
  size_t next = node->results().size();
  for (const at::Tensor& tensor : tensors)
    metas.push_back(describe_result(tensor, next + metas.size()));
  tracer_->writer().graph().add_return_list(node, std::move(metas));
  for (at::Tensor& tensor : tensors) {
    Value* value = node->result(next++);
    if (value != nullptr) tensor = make_result(std::move(tensor), value, layout_of(next - 1));
  }
  slot = c10::IValue(std::move(tensors));
}

/// What is written to is not a result of its own: see add_written.
void FakeHandler::wrap_result(Node* node, c10::IValue& slot, bool is_written) {
  const bool is_new_tensor = slot.isNone() || (slot.isTensor() && !is_written);
  at::Tensor meta = is_new_tensor && slot.isTensor() ? slot.toTensor() : at::Tensor();
  Value* value =
      tracer_->writer().graph().add_return(node, describe_result(meta, node->results().size()));
  if (value != nullptr)
    slot = make_result(std::move(meta), value, layout_of(value->index()));
  else if (is_new_tensor)
    slot = c10::IValue(at::Tensor());
}

std::optional<TensorMeta> FakeHandler::describe_result(const at::Tensor& meta,
                                                       size_t result) const {
  if (!meta.defined()) return std::nullopt;
  TensorMeta description = TensorMeta::of(meta);
  description.device = device_of(result);
  if (result < layouts_.size() && !layouts_[result].is_fixed())
    layouts_[result].describe(description);
  return description;
}

/// States of generators are tensors of the CPU, whatever is drawn.
at::Device FakeHandler::device_of(size_t result) const {
  const bool is_state = op_.drawn != nullptr && result + 1 == static_cast<size_t>(op_.num_returns);
  return is_state ? at::Device(at::kCPU) : device_;
}

at::Tensor FakeHandler::make_result(at::Tensor meta, Value* value,
                                    std::shared_ptr<const Layout> layout) const {
  return make_fake(std::move(meta), value->meta.device, value,
                   c10::intrusive_ptr<Tracer>::reclaim_copy(tracer_), std::move(layout));
}

void FakeHandler::note_written() {
  for (size_t index : written_arguments(*op_.op))
    written_.push_back(stack_[first_ + index].toTensor());
}

/// The node owns the arguments it writes to; each is one more result.
void FakeHandler::add_written(Node* node) {
  for (at::Tensor& meta : written_) {
    Value* value =
        tracer_->writer().graph().add_return(node, describe_result(meta, layouts_.size()));
    meta = make_result(std::move(meta), value, nullptr);
  }
}

void handle_fake(const c10::OperatorHandle& handle, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const c10::ArrayRef<c10::IValue> all(*stack);
  if (tensors::has_wrapper(all.slice(all.size() - handle.schema().arguments().size())))
    return tensors::call_wrapper(handle, *stack);
  if (tensors::SuspendedFunctionalization::is_active()) {
    // An operator on wrappers calls one on other tensors, from autograd or from a composite.
    const tensors::ResumedFunctionalization resumed(/*inside_wrapper=*/false);
    return handle.callBoxed(stack);
  }
  FakeHandler(handle, *stack).run();
}

}  // namespace ahead::tracing
