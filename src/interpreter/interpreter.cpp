#include "ahead/interpret.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/stack.h>
#include <ATen/ops/copy.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <string>

#include "ahead/errors.h"
#include "interpreter/complaints.h"
#include "interpreter/plan.h"
#include "ir/sizes/sized_constants.h"
#include "memory/kept_memory.h"

namespace ahead {
namespace {

using interpreting::throw_broken_promise;
using interpreting::throw_not_replayable;
using interpreting::throw_other_tensor;
using Plan = Interpreter::Plan;
using Stack = torch::jit::Stack;

bool is_differentiable_copy(const c10::OperatorHandle& op, const Stack& stack) {
  static const c10::OperatorHandle* const copy = &Operator::find("aten.copy")->handle();
  return op == *copy && at::GradMode::is_enabled() &&
         (stack[0].toTensor().requires_grad() || stack[1].toTensor().requires_grad());
}

/// LibTorch has a derivative of copy_, but none of copy.
void copy_differentiably(Stack& stack) {
  const bool non_blocking = stack[2].toBool();
  const at::Tensor source = stack[1].toTensor(), target = stack[0].toTensor();
  at::Tensor result = at::copy(target.detach(), source.detach(), non_blocking);
  stack.assign({c10::IValue(result.copy_(source, non_blocking))});
}

/// One run: a register for every value that is still needed.
class Frame {
 public:
  explicit Frame(const Plan& plan)
      : plan_(plan), registers_(static_cast<size_t>(plan.num_registers)) {
    stack_.reserve(static_cast<size_t>(plan.max_stack));
  }

  /// `detach`: passes arguments as tensors that do not require grad, as kernels below autograd see
  /// them; a few kernels ask.
  void bind(std::vector<at::Tensor>&& args, bool detach);
  /// Computes constants with the sizes of a trace, of which they are made.
  void trace_sizes(const std::shared_ptr<SizeGuards>& guards);
  void run() { run_to(plan_.calls.size()); }
  /// Runs the first `end` calls, but for those that have run already.
  void run_to(size_t end) {
    for (; next_call_ < end; ++next_call_) {
      const Plan::Call& call = plan_.calls[next_call_];
      if (call.view != Plan::kNothing) {
        make_view(plan_.views[static_cast<size_t>(call.view)]);
        continue;
      }
      if (call.size_read != Plan::kNothing) {
        read_size(call);
        continue;
      }
      push_operands(call);
      if (call.op == nullptr) {
        call_sub_graph(call);
      } else if (call.written.empty()) {
        choose(call).callBoxed(stack_);
      } else {
        call_mutable_op(call);
      }
      store_results(call);
    }
  }
  void replay() {
    for (const Plan::Call& call : plan_.calls) {
      if (call.view != Plan::kNothing) {
        const Plan::View& view = plan_.views[static_cast<size_t>(call.view)];
        reg(view.result) =
            call_links(view, view.last_use ? std::move(reg(view.source)) : reg(view.source));
        continue;
      }
      if (call.size_read != Plan::kNothing) {
        read_size(call);
        continue;
      }
      if (call.op == nullptr || !call.written.empty()) throw_not_replayable(call);
      at::AutoGradMode mode(at::GradMode::is_enabled() && !call.no_grad);
      push_operands(call);
      if (is_differentiable_copy(*call.op, stack_)) {
        copy_differentiably(stack_);
      } else {
        (traces_sizes_ ? for_numbers(*call.op) : *call.op).callBoxed(stack_);
      }
      store_results(call);
    }
  }
  /// How many have run.
  size_t num_calls() const { return next_call_; }
  std::vector<at::Tensor> results();
  /// Runs as far as these outputs need it.
  std::vector<at::Tensor> until(c10::ArrayRef<int32_t> outputs);

 private:
  bool is_last_of_register(size_t output) const;
  at::Tensor& reg(int32_t index) { return registers_[static_cast<size_t>(index)]; }
  const c10::OperatorHandle& choose(const Plan::Call& call);
  const c10::OperatorHandle& for_numbers(const c10::OperatorHandle& op) const;
  void push_operands(const Plan::Call& call);
  at::Tensor take(const Plan::Operand& operand);
  const Plan::Operand* push_list(const Plan::Operand* operand);
  void call_sub_graph(const Plan::Call& call);
  void call_mutable_op(const Plan::Call& call);
  void make_view(const Plan::View& view);
  at::Tensor call_links(const Plan::View& view, at::Tensor source);
  void check_promise(const Plan::Call& call) const;
  void store_results(const Plan::Call& call);

  void find_sizes(const at::Tensor& given);
  void read_size(const Plan::Call& call);
  void compute_sized();
  /// How many constants can be computed from the sizes that are known.
  size_t num_known() const {
    const bool are_all_read = num_sizes_read_ == plan_.size_reads.size();
    return are_all_read ? plan_.sized.size() : plan_.size_reads[num_sizes_read_].num_sized_before;
  }
  /// Whether a tensor has these sizes and strides in this run.
  bool is_laid_out(const at::Tensor& tensor, const Dims& sizes, const Dims& strides,
                   bool is_fixed) const {
    if (is_fixed) return tensor.sizes() == sizes && tensor.strides() == strides;
    return tensor.sizes() == at::IntArrayRef(sizes.at(sizes_)) &&
           tensor.strides() == at::IntArrayRef(strides.at(sizes_));
  }

  const Plan& plan_;
  std::vector<at::Tensor> registers_;
  size_t next_call_ = 0;
  std::vector<bool> handed_over_;   ///< by output; empty as long as none was
  std::vector<int64_t> sizes_;      ///< s0, s1, … of this run, as far as they are known
  size_t num_sizes_read_ = 0;       ///< how many of these were read from tensors
  std::vector<c10::IValue> sized_;  ///< Plan::sized, for this run
  bool traces_sizes_ = false;       ///< they are numbers of a trace
  Stack stack_;
};

void Frame::bind(std::vector<at::Tensor>&& args, bool detach) {
  const size_t all = plan_.parameters.size();
  const bool with_captured = args.size() == all;
  if (!with_captured && args.size() != static_cast<size_t>(plan_.num_free_parameters)) {
    throw UserError("interpret", std::to_string(args.size()) + " arguments: the graph takes " +
                                     std::to_string(plan_.num_free_parameters) + ", or " +
                                     std::to_string(all) + " with its captured tensors.");
  }
  size_t next = 0;
  for (const Plan::Parameter& parameter : plan_.parameters) {
    const bool given = with_captured || !parameter.is_captured;
    if (!given && !parameter.captured.defined() && parameter.reg != Plan::kNothing) {
      throw UserError("interpret",
                      "captured tensor: the graph was read from text and does not hold its "
                      "captured tensors. Pass "
                      "one tensor for every graph input.");
    }
    at::Tensor argument;
    if (given)
      argument = std::move(args[next++]);
    else
      argument = parameter.captured;
    if (parameter.is_sizes) find_sizes(argument);
    if (parameter.reg == Plan::kNothing) continue;
    if (!plan_.takes(parameter, argument))
      throw_other_tensor(parameter, argument, plan_.parameters);
    if (detach && argument.defined() && argument.requires_grad()) argument = argument.tensor_data();
    reg(parameter.reg) = std::move(argument);
  }
  if (sized_.size() < num_known()) find_sizes({});
}

void Frame::find_sizes(const at::Tensor& given) {
  const bool is_usable = given.defined() && given.is_cpu() && given.scalar_type() == at::kLong &&
                         given.is_contiguous();
  if (is_usable) {
    const auto* first = given.const_data_ptr<int64_t>();
    sizes_.assign(first, first + given.numel());
  }
  sized_.reserve(plan_.sized.size());
  compute_sized();
}

void Frame::read_size(const Plan::Call& call) {
  const Plan::SizeRead& read = plan_.size_reads[static_cast<size_t>(call.size_read)];
  const at::Tensor number = take(plan_.operands[static_cast<size_t>(call.first_operand)]);
  if (read.symbol != sizes_.size()) {
    throw UserError("interpret", "size s" + std::to_string(read.symbol) + ": it is read when " +
                                     std::to_string(sizes_.size()) +
                                     " sizes are known. Number sizes in the order in which they "
                                     "become known.");
  }
  sizes_.push_back(number.item<int64_t>());
  ++num_sizes_read_;
  compute_sized();
}

/// Those constants that are made of sizes which are known now.
void Frame::compute_sized() {
  while (sized_.size() < num_known()) {
    const Plan::Sized& sized = plan_.sized[sized_.size()];
    c10::IValue constant = with_sizes(sized.constant, sizes_);
    if (sized.is_tensor) constant = wrap_number(constant.toScalar(), sized.is_float);
    sized_.push_back(std::move(constant));
  }
}

void Frame::trace_sizes(const std::shared_ptr<SizeGuards>& guards) {
  traces_sizes_ = true;
  for (const Plan::Sized& sized : plan_.sized)
    sized_.push_back(with_guards(sized.constant, guards));
}

/// The operator, or where the stack has a number of the trace for a tensor, one that takes it.
const c10::OperatorHandle& Frame::for_numbers(const c10::OperatorHandle& op) const {
  const auto& taken = op.schema().arguments();
  for (size_t i = 0; i < stack_.size(); ++i) {
    if (taken[i].type()->kind() != c10::TypeKind::TensorType || !has_sizes(stack_[i])) continue;
    const Operator* other = i == 1 ? Plan::with_number(Operator::of(op)) : nullptr;
    if (other != nullptr) return other->handle();
    throw Unsupported("trace", "a number that changes with sizes stands where a tensor may.");
  }
  return op;
}

at::Tensor Frame::take(const Plan::Operand& operand) {
  using Kind = Plan::Operand::Kind;
  if (operand.kind == Kind::Move) return std::move(reg(operand.index));
  if (operand.kind == Kind::Copy) return reg(operand.index);
  const c10::IValue& constant = plan_.constants[static_cast<size_t>(operand.index)];
  return constant.isNone() ? at::Tensor() : constant.toTensor();
}

const Plan::Operand* Frame::push_list(const Plan::Operand* operand) {
  const Plan::Operand* element = operand + 1;
  const Plan::Operand* end = element + operand->index;
  if (operand->kind == Plan::Operand::Kind::TensorList) {
    c10::List<at::Tensor> list;
    list.reserve(static_cast<size_t>(operand->index));
    for (; element != end; ++element) list.push_back(take(*element));
    stack_.emplace_back(std::move(list));
  } else {
    c10::List<std::optional<at::Tensor>> list;
    list.reserve(static_cast<size_t>(operand->index));
    for (; element != end; ++element) {
      at::Tensor tensor = take(*element);
      list.push_back(tensor.defined() ? std::optional<at::Tensor>(std::move(tensor))
                                      : std::nullopt);
    }
    stack_.emplace_back(std::move(list));
  }
  return end;
}

/// The operator of the call, or its writer (Plan::Reuse) if the first argument fills its storage
/// and is the last tensor on it; the stack is then what the writer takes.
const c10::OperatorHandle& Frame::choose(const Plan::Call& call) {
  if (call.reuse == Plan::kNothing) return *call.op;
  const Plan::Reuse& reuse = plan_.reuses[static_cast<size_t>(call.reuse)];
  const at::Tensor& first = stack_.front().toTensor();
  constexpr c10::DispatchKeySet kNotItsValues{
      c10::DispatchKey::Conjugate, c10::DispatchKey::Negative, c10::DispatchKey::ZeroTensor};
  if (first.key_set().has_any(kNotItsValues)) return *call.op;
  const c10::Storage& storage = first.storage();
  // Memory that somebody lent to a tensor (at::from_blob) outlives that.
  const bool is_last =
      first.use_count() == 1 && storage.use_count() == 1 && storage.allocator() != nullptr;
  const bool fits = is_last && storage.nbytes() == first.nbytes() &&
                    is_laid_out(first, reuse.sizes, reuse.strides, reuse.is_fixed);
  if (!fits) return *call.op;
  if (reuse.names_result) stack_.push_back(stack_.front());
  return *reuse.writer;
}

void Frame::push_operands(const Plan::Call& call) {
  using Kind = Plan::Operand::Kind;
  const Plan::Operand* operand = plan_.operands.data() + call.first_operand;
  const Plan::Operand* end = operand + call.num_operands;
  while (operand != end) {
    switch (operand->kind) {
      case Kind::Constant:
        stack_.push_back(plan_.constants[static_cast<size_t>(operand->index)]);
        break;
      case Kind::Sized:
        stack_.push_back(sized_[static_cast<size_t>(operand->index)]);
        break;
      case Kind::Copy:
        stack_.emplace_back(reg(operand->index));
        break;
      case Kind::Move:
        stack_.emplace_back(std::move(reg(operand->index)));
        break;
      case Kind::TensorList:
      case Kind::OptionalTensorList:
        operand = push_list(operand);
        continue;
    }
    ++operand;
  }
}

void Frame::call_sub_graph(const Plan::Call& call) {
  std::vector<at::Tensor> args;
  args.reserve(stack_.size());
  for (c10::IValue& value : stack_) args.push_back(std::move(value).toTensor());
  stack_.clear();
  for (at::Tensor& result : call.sub_graph(std::move(args))) stack_.emplace_back(std::move(result));
}

void Frame::call_mutable_op(const Plan::Call& call) {
  c10::SmallVector<c10::IValue, 2> written;
  for (size_t index : call.written) written.push_back(stack_[index]);
  call.op->callBoxed(stack_);
  for (c10::IValue& argument : written) stack_.push_back(std::move(argument));
}

void Frame::make_view(const Plan::View& view) {
  at::Tensor source = view.last_use ? std::move(reg(view.source)) : reg(view.source);
  if (!is_laid_out(source, view.source_sizes, view.source_strides, view.is_fixed)) {
    reg(view.result) = call_links(view, std::move(source));
  } else if (view.is_identity) {
    reg(view.result) = std::move(source);
  } else {
    auto impl = c10::make_intrusive<c10::TensorImpl>(
        c10::TensorImpl::VIEW, c10::Storage(source.storage()), source.key_set(), source.dtype());
    const int64_t offset = source.storage_offset() + view.offset.at(sizes_);
    if (view.is_fixed) {
      impl->set_sizes_and_strides(view.sizes, view.strides, offset);
    } else {
      impl->set_sizes_and_strides(view.sizes.at(sizes_), view.strides.at(sizes_), offset);
    }
    reg(view.result) = at::Tensor(std::move(impl));
  }
}

at::Tensor Frame::call_links(const Plan::View& view, at::Tensor source) {
  for (size_t i = 0; i < static_cast<size_t>(view.num_links); ++i) {
    const Plan::Call& link = plan_.links[static_cast<size_t>(view.first_link) + i];
    at::AutoGradMode mode(at::GradMode::is_enabled() && !link.no_grad);
    stack_.emplace_back(std::move(source));
    push_operands(link);
    link.op->callBoxed(stack_);
    source = std::move(stack_.back()).toTensor();
    stack_.clear();
  }
  return source;
}

void Frame::check_promise(const Plan::Call& call) const {
  const auto& expected = plan_.promises[static_cast<size_t>(call.promise)].results;
  size_t next = 0;
  const auto check = [&](const at::Tensor& result) {
    if (next == expected.size()) return;
    const std::optional<TensorMeta>& meta = expected[next++];
    if (!meta) return;
    const bool is_kept = result.defined() && result.scalar_type() == meta->dtype &&
                         result.sizes() == at::IntArrayRef(meta->sizes.at(sizes_));
    if (!is_kept) throw_broken_promise(call, *meta, result, !plan_.size_reads.empty());
  };
  for (const c10::IValue& value : stack_) {
    if (value.isTensorList()) {
      for (const at::Tensor& result : value.toTensorVector()) check(result);
    } else {
      check(value.isTensor() ? value.toTensor() : at::Tensor());
    }
  }
}

void Frame::store_results(const Plan::Call& call) {
  if (call.promise != Plan::kNothing) check_promise(call);
  const int32_t* length = plan_.return_lengths.data() + call.first_return;
  const int32_t* result = plan_.results.data() + call.first_result;
  for (c10::IValue& value : stack_) {
    const int32_t count = *length++;
    if (count < 0) {
      if (*result != Plan::kNothing) reg(*result) = std::move(value).toTensor();
      ++result;
      continue;
    }
    std::vector<at::Tensor> list = std::move(value).toTensorVector();
    for (int32_t i = 0; i < count; ++i, ++result) {
      if (*result != Plan::kNothing) reg(*result) = std::move(list[static_cast<size_t>(i)]);
    }
  }
  stack_.clear();
}

std::vector<at::Tensor> Frame::results() {
  std::vector<at::Tensor> results;
  results.reserve(plan_.returns.size());
  for (const Plan::Return& ret : plan_.returns) {
    if (ret.reg == Plan::kNothing) {
      results.emplace_back();
    } else if (ret.last_use) {
      results.push_back(std::move(reg(ret.reg)));
    } else {
      results.push_back(reg(ret.reg));
    }
  }
  return results;
}

/// Whether no other output that is still to be handed over has the same register.
bool Frame::is_last_of_register(size_t output) const {
  for (size_t i = 0; i < plan_.returns.size(); ++i) {
    if (i != output && plan_.returns[i].reg == plan_.returns[output].reg && !handed_over_[i])
      return false;
  }
  return true;
}

std::vector<at::Tensor> Frame::until(c10::ArrayRef<int32_t> outputs) {
  handed_over_.resize(plan_.returns.size());
  size_t end = next_call_;
  for (const int32_t output : outputs)
    end = std::max(end, plan_.returns[static_cast<size_t>(output)].ready);
  run_to(end);
  std::vector<at::Tensor> results;
  results.reserve(outputs.size());
  for (const int32_t number : outputs) {
    const auto output = static_cast<size_t>(number);
    const Plan::Return& ret = plan_.returns[output];
    handed_over_[output] = true;
    if (ret.reg == Plan::kNothing) {
      results.emplace_back();
    } else if (ret.is_only || is_last_of_register(output)) {
      results.push_back(std::move(reg(ret.reg)));
    } else {
      results.push_back(reg(ret.reg));
    }
  }
  return results;
}

/// What the graph holds already is not to be done by LibTorch once more: gradients, views, casts.
/// What it makes lies in memory that is kept for the next run.
struct BelowAutograd {
  at::AutoDispatchBelowADInplaceOrView below_views;
  c10::impl::ExcludeDispatchKeyGuard below_autocast{c10::autocast_dispatch_keyset};
  memory::KeepMemory keep_memory;
};

class FrameRun final : public aot::GraphRun {
 public:
  FrameRun(std::shared_ptr<const Plan> plan, std::vector<at::Tensor>&& args)
      : plan_(std::move(plan)), frame_(*plan_) {
    frame_.bind(std::move(args), /*detach=*/true);
  }

  std::vector<at::Tensor> until(c10::ArrayRef<int32_t> outputs) override {
    const BelowAutograd below;
    return frame_.until(outputs);
  }
  bool will_read(size_t input) const override {
    return plan_->parameters[input].read_until > frame_.num_calls();
  }
  void finish() override {
    const BelowAutograd below;
    frame_.run();
  }

 private:
  const std::shared_ptr<const Plan> plan_;
  Frame frame_;
};

}  // namespace

bool Interpreter::Plan::takes(const Parameter& parameter, const at::Tensor& given) const {
  if (!given.defined() || given.scalar_type() != parameter.meta.dtype ||
      given.device() != parameter.meta.device)
    return false;
  return has_sizes || given.unsafeGetTensorImpl()->has_symbolic_sizes_strides() ||
         given.sizes() == parameter.meta.sizes;
}

std::vector<at::Tensor> Interpreter::Plan::run(std::vector<at::Tensor>&& args) const {
  Frame frame(*this);
  frame.bind(std::move(args), /*detach=*/true);
  frame.run();
  return frame.results();
}

std::vector<at::Tensor> Interpreter::Plan::replay(std::vector<at::Tensor>&& args,
                                                  const std::shared_ptr<SizeGuards>& guards) const {
  Frame frame(*this);
  if (guards != nullptr) frame.trace_sizes(guards);
  frame.bind(std::move(args), /*detach=*/false);
  c10::impl::ExcludeDispatchKeyGuard below_autocast(c10::autocast_dispatch_keyset);
  frame.replay();
  return frame.results();
}

Interpreter::Interpreter(const Graph& graph) : plan_(std::make_shared<const Plan>(graph)) {}
Interpreter::Interpreter(const Graph& graph, const aot::GraphCompiler& sub_graphs,
                         const std::vector<bool>& donated)
    : plan_(std::make_shared<const Plan>(graph, Plan::Views::AtOnce, sub_graphs, donated)) {}
Interpreter::~Interpreter() = default;
Interpreter::Interpreter(Interpreter&&) noexcept = default;
Interpreter& Interpreter::operator=(Interpreter&&) noexcept = default;

std::vector<at::Tensor> Interpreter::operator()(std::vector<at::Tensor>&& args) const {
  const BelowAutograd below;
  return plan_->run(std::move(args));
}

std::unique_ptr<aot::GraphRun> Interpreter::begin(std::vector<at::Tensor>&& args) const {
  return std::make_unique<FrameRun>(plan_, std::move(args));
}

std::vector<at::Tensor> Interpreter::replay(std::vector<at::Tensor>&& args) const {
  return plan_->replay(std::move(args));
}

std::vector<at::Tensor> interpret(const Graph& graph, std::vector<at::Tensor> args) {
  return Interpreter(graph)(std::move(args));
}

}  // namespace ahead
