#include "trace/eager/in_place.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ScalarOps.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/mul.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/strides.h>

#include <algorithm>

#include "ahead/errors.h"
#include "ir/sizes/sized_constants.h"
#include "ops/facts/facts.h"
#include "tensors/map_tensors.h"
#include "trace/dispatch/fake_handler.h"
#include "trace/dispatch/inference.h"
#include "trace/tensor/views.h"

namespace ahead::tracing {
namespace {

size_t first_argument(const TracedOp& op, const torch::jit::Stack& stack) {
  return stack.size() - static_cast<size_t>(op.num_args);
}

/// An in-place operator must not change the shape of its first argument; its twin tells the shape.
void check_shape(const TracedOp& op, Tracer& tracer, const torch::jit::Stack& arguments) {
  const Operator* twin = ops::facts(*op.op).functional;
  if (twin == nullptr || !arguments.front().isTensor()) return;
  if (twin->schema().arguments().size() != arguments.size()) return;
  torch::jit::Stack stack = arguments;
  infer_results(traced_op(twin->handle()), at::kCPU, tracer, stack);
  const at::Tensor& self = arguments.front().toTensor();
  const at::Tensor& result = stack.front().toTensor();
  TORCH_CHECK(result.sizes() == self.sizes(), "output with shape ", self.sizes(),
              " doesn't match the broadcast shape ", result.sizes());
}

/// The tensor, or one that lies as it does in this trace where its sizes may change.
at::Tensor with_fixed_sizes(const at::Tensor& tensor) {
  if (!is_symbolic(tensor)) return tensor;
  std::vector<int64_t> sizes, strides;
  for (const c10::SymInt& size : tensor.sym_sizes()) sizes.push_back(peek(size));
  for (const c10::SymInt& stride : tensor.sym_strides()) strides.push_back(peek(stride));
  return at::Tensor(at::detail::empty_strided_meta(sizes, strides, tensor.scalar_type()));
}

/// Meta kernels know fixed sizes only.
void fix_sizes(c10::IValue& argument) {
  if (has_sizes(argument)) argument = with_peeked_sizes(argument);
  map_tensors(argument, with_fixed_sizes);
}

/// Which of its two operands a matrix product takes first depends on how its result lies.
bool lies_by_columns(at::IntArrayRef sizes, at::IntArrayRef strides) {
  const auto reaches = [&](size_t dim, size_t other) {
    return strides[dim] == 1 &&
           (sizes[other] == 1 || strides[other] >= std::max<int64_t>(sizes[dim], 1));
  };
  return reaches(0, 1) || !reaches(1, 0);
}

/// The twin has its result in new memory.
void check_product_layout(const TracedOp& op, const torch::jit::Stack& arguments) {
  static const Operator* const product = Operator::find("aten.addmm_");
  if (op.op != product) return;
  const at::Tensor& self = arguments.front().toTensor();
  const auto packed = c10::contiguous_strides(self.sizes());
  if (lies_by_columns(self.sizes(), self.strides()) == lies_by_columns(self.sizes(), packed))
    return;
  throw Unsupported("trace",
                    op.op->name() + ": " + TensorMeta::of(self).str() +
                        " lies so that eager rounds otherwise than for a new tensor, which "
                        "the graph makes. Use addmm, and copy its result.");
}

bool is_complex(const c10::IValue& argument) {
  bool is_any = argument.isComplexDouble();
  for_each_tensor(argument, [&](const at::Tensor& tensor) {
    is_any = is_any || (tensor.defined() && tensor.is_complex());
  });
  return is_any;
}

/// Along which dimension a kernel runs that writes to a tensor.
int64_t innermost(const at::Tensor& tensor) {
  int64_t found = tensor.dim() - 1;
  for (int64_t dim = found; dim >= 0; --dim) {
    if (tensor.size(dim) > 1 &&
        (tensor.size(found) == 1 || tensor.stride(dim) < tensor.stride(found)))
      found = dim;
  }
  return found;
}

/// Whether a kernel that writes to a tensor finds the operand's elements one after the other, or
/// all the same.
bool lies_along(const at::Tensor& written, const at::Tensor& operand) {
  const int64_t inner = innermost(written), dim = inner - written.dim() + operand.dim();
  if (written.stride(inner) != 1) return false;
  return dim < 0 || operand.size(dim) == 1 || operand.stride(dim) <= 1;
}

bool starts_with_any(const std::string& name, std::initializer_list<const char*> beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(),
                     [&](const char* beginning) { return name.rfind(beginning, 0) == 0; });
}

/// Whether eager's kernel finds all operands so that it runs by vectors.
bool is_vectorised(const TracedOp& op, const at::Tensor& written,
                   c10::ArrayRef<c10::IValue> arguments) {
  const std::string& name = op.op->name();
  if (starts_with_any(name, {"aten.div_.", "aten._foreach_div_."})) return false;
  const bool is_sum_of_products =
      starts_with_any(name, {"aten.addcmul_", "aten._foreach_addcmul_"});
  if (!is_sum_of_products && !starts_with_any(name, {"aten.mul_.", "aten._foreach_mul_."}))
    return true;
  bool is_so = true;
  for (const c10::IValue& argument : arguments) {
    for_each_tensor(argument, [&](const at::Tensor& operand) {
      const at::Tensor tensor = with_fixed_sizes(operand);
      is_so = is_so && lies_along(written, tensor) &&
              (!is_sum_of_products || tensor.sizes() == written.sizes());
    });
  }
  return is_so;
}

bool is_in_half_precision(const at::Tensor& tensor) {
  return tensor.is_cpu() && at::isReducedFloatingType(tensor.scalar_type());
}

/// Operators that are called meanwhile are recorded at once, as those that functionalisation calls.
class AsFunctionalisationCalls {
 private:
  c10::impl::ExcludeDispatchKeyGuard above_{
      c10::autograd_dispatch_keyset_with_ADInplaceOrView |
      c10::DispatchKeySet{c10::DispatchKey::DeferredInit, c10::DispatchKey::Functionalize}};
};

bool is_twin(const Operator& op, const Operator& in_place) {
  return ops::facts(in_place).functional == &op ||
         (in_place.name() == "aten.bernoulli_.float" && op.name() == "aten.bernoulli.p");
}

}  // namespace

bool is_in_place_trial(const TracedOp& op, const torch::jit::Stack& stack) {
  if (!op.mutates) return false;
  bool any_meta = false;
  for_each_tensor(stack[first_argument(op, stack)],
                  [&](const at::Tensor& tensor) { any_meta |= tensor.is_meta(); });
  return any_meta;
}

void check_complex_rounding(const TracedOp& op, const at::Tensor& traced,
                            c10::ArrayRef<c10::IValue> arguments) {
  if (traced.scalar_type() != at::kComplexFloat || !traced.is_cpu()) return;
  const at::Tensor written = with_fixed_sizes(traced);
  if (written.numel() < 2) return;
  if (is_vectorised(op, written, arguments)) return;
  if (std::none_of(arguments.begin() + 1, arguments.end(), is_complex)) return;
  throw Unsupported("trace", op.op->name() +
                                 ": eager rounds complex products and quotients otherwise in place "
                                 "than for a new tensor, which the graph makes. Use the operator "
                                 "that returns a new tensor.");
}

void try_in_place(TracedOp& op, Tracer* tracer, torch::jit::Stack& stack) {
  const size_t first = first_argument(op, stack);
  if (tracer != nullptr && tracer->outside().sizes_change()) {
    for (size_t i = first; i < stack.size(); ++i) fix_sizes(stack[i]);
  }
  const torch::jit::Stack arguments(stack.begin() + static_cast<ptrdiff_t>(first), stack.end());
  try {
    op.op->handle().callBoxed(stack);
  } catch (const c10::Error& error) {
    if (!is_missing_meta_kernel(error)) throw;
    if (tracer != nullptr) check_shape(op, *tracer, arguments);
    stack.resize(first);
    for (int32_t i = 0; i < op.num_returns; ++i) stack.push_back(arguments.front());
  }
  if (tracer == nullptr) return;
  check_product_layout(op, arguments);
  tracer->writer().announce_in_place(op.op);
}

bool draw_in_place(const TracedOp& op, torch::jit::Stack& stack) {
  const size_t first = first_argument(op, stack);
  const at::Tensor self = stack[first].isTensor() ? stack[first].toTensor() : at::Tensor();
  if (!self.defined() || !is_fake(self)) return false;
  const Operator* trial = as_fake(self).tracer().writer().take_announced_in_place();
  if (trial == nullptr || !is_twin(*op.op, *trial) || self.is_contiguous()) return false;

  at::Tensor target;
  {
    const AsFunctionalisationCalls calls;
    target = at::empty_strided(self.sizes(), self.strides(), self.options());
  }
  stack[first] = target;
  FakeHandler handler(trial->handle(), stack);
  handler.run();
  stack.resize(first);
  stack.emplace_back(handler.written().at(0));
  return true;
}

bool multiply_in_place(const TracedOp& op, torch::jit::Stack& stack) {
  static const Operator* const product = Operator::find("aten.mul.Scalar");
  static const Operator* const products = Operator::find("aten._foreach_mul.Scalar");
  if (op.op != product && op.op != products) return false;
  const size_t first = first_argument(op, stack);
  const c10::IValue number = stack[first + 1];
  std::vector<at::Tensor> tensors;
  for_each_tensor(stack[first], [&](const at::Tensor& tensor) { tensors.push_back(tensor); });
  if (tensors.empty() || !is_fake(tensors[0]) || !number.isDouble()) return false;
  const Operator* trial = as_fake(tensors[0]).tracer().writer().take_announced_in_place();
  if (trial == nullptr || !is_twin(*op.op, *trial)) return false;
  if (std::none_of(tensors.begin(), tensors.end(), is_in_half_precision)) return false;

  const AsFunctionalisationCalls calls;
  for (at::Tensor& tensor : tensors) {
    tensor = is_in_half_precision(tensor)
                 ? at::mul(at::native::wrapped_scalar_tensor(number.toScalar()), tensor)
                 : at::mul(tensor, number.toScalar());
  }
  stack.resize(first);
  op.op == product ? stack.emplace_back(tensors[0]) : stack.emplace_back(std::move(tensors));
  return true;
}

Departures in_place_departures() {
  constexpr const char* here = "in_place";
  return {
      departure_of<&try_in_place>(
          "in-place operators without a Meta kernel", here,
          "their shapes are checked by what the out-of-place twin returns",
          "functionalisation tries every in-place operator on meta tensors first"),
      departure_of<&draw_in_place>(
          "random in-place operators on tensors that are not contiguous", here,
          "recorded in place, on a new tensor of the same layout",
          "the out-of-place twin chooses a layout of its own, and the order in which numbers "
          "are drawn follows the layout"),
      departure_of<&multiply_in_place>(
          "mul_ of a tensor in half precision by a number, on the CPU", here,
          "recorded as the product of the number and the tensor",
          "eager rounds the number to the tensor's type in place, and not out of place"),
      departure_of<&check_product_layout>(
          "addmm_", here, "refused (`Unsupported`) where the result lies by columns or with gaps",
          "eager rounds by how the result lies, and the graph has the result in new memory"),
      departure_of<&check_complex_rounding>(
          "complex products and quotients in place, in single precision on the CPU", here,
          "refused (`Unsupported`) where eager's kernel is not vectorised",
          "eager's kernels round otherwise in place than for a new tensor, which the graph "
          "makes")};
}

}  // namespace ahead::tracing
