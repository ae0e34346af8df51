#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ahead/ahead.h"
#include "support/eager.h"

namespace ahead {

/// The tensors of one call.
struct CallInputs {
  std::vector<at::Tensor> passed;
  /// The leaves behind them, whose gradients are compared.
  std::vector<at::Tensor> leaves;
  /// Tensors that the function uses without being given them.
  std::vector<at::Tensor> captured = {};
};

/// One of the two functions that are compared.
struct CallSide {
  aot::FlatFunction function;
  /// Must make equal inputs for both sides.
  std::function<CallInputs()> make_inputs;
};

/// What is compared beside results and inputs.
struct CallPoints {
  /// The gradients of every output, and of every input that has got a history, on its own.
  bool backward = true;
  /// Gradients are equal to the last bit. False: they are close, since sums over several calls may
  /// be made in another order.
  bool exact_gradients = true;
  /// How far off tensors may be; see default_rounding.
  double rounding = default_rounding();
  /// There are wrappers. A leaf's gradient has one class compiled, that of the gradients of all
  /// outputs, and may be plain in eager for one of them: then it is every part of the wrapper. So
  /// leaves forget their gradients before the next output. Writes to one of several views that an
  /// operator returned may be allowed.
  bool has_wrappers = false;
  /// The gradients of the gradients of each output; these are close too.
  bool double_backward = false;
  /// The gradients of gradients may be refused (`Unsupported`).
  bool double_backward_may_be_refused = true;
  /// The versions of tensors that the function made.
  bool new_versions = true;
  /// Writes to every output, as far as eager allows it, and what they do to gradients.
  bool write_to_outputs = true;
  /// Backwards may write, so that inputs and tangents are compared after each of them too.
  bool writes_in_backward = false;
  /// What operators with effects did since it was asked last; compared after whatever both do.
  std::function<std::vector<std::string>()> take_effects = {};
};

/// What came of comparing two calls.
struct ComparedCall {
  std::vector<Difference> differences;
  /// Both threw; what eager threw.
  std::string error;
  /// Why the second function cannot be compiled; eager ran.
  std::string unsupported;
};

/// Calls two functions, the first of which is eager, after equal seeds of the random number
/// generator, and compares everything a caller can see: values, layout, requires_grad, leaf-ness,
/// versions, who shares memory with whom, the inputs afterwards, random numbers, grad mode, and the
/// points.
ComparedCall compare_call(const CallSide& eager, const CallSide& compiled, uint64_t seed,
                          const CallPoints& points);

}  // namespace ahead
