#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "subclass/recipe.h"

/// Between a wrapper and the plain tensors it is made of, for autograd too.
///
/// The gradient of a tensor may be made otherwise than the tensor: that of a plain tensor may be a
/// wrapper. If it is made alike, each plain tensor carries its part of the gradient. If not,
/// further tensors do, the carriers, which have the shapes of the parts and are never read.
namespace ahead::subclass {

/// How a tensor and its gradient are made.
struct Exchange {
  Recipe tensor;
  Recipe gradient;

  bool has_carriers() const { return !tensor.is_like(gradient); }
  size_t num_plain() const {
    return tensor.num_plain() + (has_carriers() ? gradient.num_plain() : 0);
  }
};

/// Takes a tensor apart: appends its plain tensors and then its carriers. What is differentiated by
/// them goes on to the tensor, as a gradient that is made as the exchange says.
void take_apart(const at::Tensor& tensor, const std::shared_ptr<const Exchange>& exchange,
                std::vector<at::Tensor>& plain);

/// Is given a gradient that is not made as was expected, and returns one that is, or none to drop
/// it.
using OnOtherGradient = std::function<at::Tensor(const Exchange&, const at::Tensor&)>;

/// Puts a tensor together of the next plain tensors and carriers, and moves on behind them. Its
/// gradient is taken apart in the same way.
at::Tensor put_together(const std::shared_ptr<const Exchange>& exchange, const at::Tensor*& next,
                        const OnOtherGradient& on_other);

/// For a result of a compiled function: lets the class make a gradient as was expected of another
/// one. Throws UserError if it cannot.
at::Tensor coerce_gradient(const Exchange& exchange, const at::Tensor& gradient);

/// Gives a tensor that was written to the history of the plain tensors it is made of, and its
/// version so many writes more.
void note_written(const at::Tensor& tensor, const std::shared_ptr<const Exchange>& exchange,
                  const at::Tensor* plain, int64_t writes);

}  // namespace ahead::subclass
