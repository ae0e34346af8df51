#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

#include "ahead/ahead.h"
#include "support/eager.h"

/// Compares compiled calls with wrappers to eager ones.
namespace ahead::wrapped {

using Tensors = std::vector<at::Tensor>;
using Function = std::function<Tensors(const Tensors&)>;

/// The plain tensors inside, depth first.
void append_plain(const at::Tensor& tensor, Tensors& plain);
/// The classes, for example `TwoTensor(Tensor, Tensor)`.
std::string classes_of(const at::Tensor& tensor);
/// Says how two tensors differ in classes, metadata, flags or bits; empty: they do not.
std::string difference(const at::Tensor& expected, const at::Tensor& actual);

/// What one call and its backward left.
struct Outcome {
  Tensors arguments, results, grads;
};
/// Calls a function, then the backward of its differentiable results with random tangents.
Outcome run(const Function& function, const Tensors& arguments);

/// Expects two calls to have left the same.
void expect_same_outcome(const Outcome& expected, const Outcome& actual);

/// Calls a function eagerly and compiled, six times with arguments from the same seed; expects the
/// same results, arguments and gradients, hits, and no eager call. Returns what was compiled.
CompileStats check(const Function& function, const std::function<Tensors()>& make_arguments,
                   Options options = {});

/// Numbers in a TwoTensor.
at::Tensor two(at::IntArrayRef sizes, bool requires_grad = false);

/// One tensor and a number that is constant; counts the calls of its dispatch.
class Tagged final : public WrapperTensorOf<Tagged> {
 public:
  static constexpr const char* class_name = "Tagged";
  static at::Tensor make(at::Tensor inner, int64_t tag);
  Tagged(at::Tensor inner, int64_t tag) : inner_(std::move(inner)), tag_(tag) {}
  WrapperParts flatten() const override { return {{inner_}, tag_}; }
  static std::shared_ptr<const Tagged> unflatten(WrapperParts parts) {
    return std::make_shared<const Tagged>(parts.inner.at(0), parts.metadata.toInt());
  }
  bool dispatch(const c10::OperatorHandle& op, torch::jit::Stack& stack) const override {
    ++calls;
    dispatch_to_each(op, stack);
    return true;
  }
  int64_t tag() const { return tag_; }
  static int64_t calls;

 private:
  at::Tensor inner_;
  int64_t tag_;
};

}  // namespace ahead::wrapped
