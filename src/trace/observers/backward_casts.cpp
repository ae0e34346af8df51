#include "trace/observers/backward_casts.h"

#include "base/autocast.h"

namespace ahead::tracing {
namespace {

/// Whether autocast could cast a floating-point tensor for this operator.
bool is_castable(const TracedOp& op, const at::Tensor& tensor) {
  const bool is_cast = tensor.is_cuda() ? op.is_autocast_cuda : op.is_autocast_cpu;
  return is_cast && tensor.scalar_type() != at::kDouble;
}

/// Whether an argument says of which type the results shall be.
bool has_dtype_argument(const TracedCall& call) {
  const auto& arguments = call.op.op->schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name() == "dtype" && !call.argument(i).isNone()) return true;
  }
  return false;
}

}  // namespace

BackwardCasts::Expected BackwardCasts::before(const TracedCall& call) {
  std::optional<at::ScalarType> dtype;
  bool is_one = true;
  for_each_tensor(call.arguments(), [&](const at::Tensor& tensor) {
    if (!at::isFloatingType(tensor.scalar_type())) return;
    is_one = is_one && (!dtype || dtype == tensor.scalar_type());
    dtype = tensor.scalar_type();
    if (is_castable(call.op, tensor)) castable_ = call.op.op;
  });
  if (!dtype || !is_autocast_enabled()) return std::nullopt;
  watched_ = call.op.op;
  uncast_ = is_one ? dtype : std::nullopt;
  return has_dtype_argument(call) ? std::nullopt : uncast_;
}

/// Autocast leaves what a few operators take as it is, and asks for results of another type.
void BackwardCasts::check_results(const TracedCall& call, at::ScalarType expected) {
  for_each_tensor(call.results(), [&](const at::Tensor& tensor) {
    const bool is_other =
        at::isFloatingType(tensor.scalar_type()) && tensor.scalar_type() != expected;
    if (is_other) cast_ = call.op.op;
  });
}

}  // namespace ahead::tracing
