// Compiles a function: one line, a callable of the same type, and eager's numbers to the last bit.

#include <ahead/ahead.h>

#include "models/checks.h"
#include "models/models.h"

namespace {

using at::Tensor;

/// Any function of tensors. It mutates an argument, and what it returns need not be one tensor.
struct Smoothed {
  Tensor loss;
  Tensor residual;
};

Smoothed smooth(const Tensor& x, const Tensor& weight, Tensor average, double rate) {
  Tensor y = torch::tanh(x.matmul(weight));
  average.lerp_(y.detach().mean(0), rate);
  return {(y - average).square().sum(), y - average};
}

/// Reads a number out of a tensor and decides by it: no graph can say that.
Tensor shorten(const Tensor& x) {
  return x.norm().item<double>() > 1 ? x / x.norm() : x;
}

}  // namespace

AHEAD_TREE(Smoothed, loss, residual);

int main() {
  models::Checks check;
  torch::manual_seed(0);
  Tensor weight = torch::randn({3, 2}).requires_grad_();
  Tensor eager_average = torch::zeros({2}), average = torch::zeros({2});

  // The line that this lesson is about. Nothing is traced yet.
  auto compiled = ahead::compile(smooth);

  for (int call = 0; call < 4; ++call) {
    Tensor x = torch::randn({4, 3});
    Smoothed expected = smooth(x, weight, eager_average, 0.1);
    Smoothed result = compiled(x, weight, average, 0.1);
    Tensor expected_gradient = torch::autograd::grad({expected.loss}, {weight})[0];
    Tensor gradient = torch::autograd::grad({result.loss}, {weight})[0];
    check(result.loss.equal(expected.loss) && result.residual.equal(expected.residual),
          "call " + std::to_string(call) + ": results are eager's");
    check(gradient.equal(expected_gradient), "        gradients are eager's");
    check(average.equal(eager_average), "        so is what was written to the argument");
  }
  // The second call is traced again, to see that the function does the same every time.
  check(compiled.stats().traces == 2, "four calls took two traces");

  // Sizes, dtypes and numbers decide the program; another number needs another one.
  compiled(torch::randn({4, 3}), weight, average, 0.2);
  check(compiled.stats().recompiles == 1, "another rate was compiled anew");

  // What cannot be traced runs eagerly, with a warning; or throws, if you say so.
  auto shortened = ahead::compile(shorten);
  Tensor x = torch::randn({8});
  check(shortened(x).equal(shorten(x)) && shortened.stats().eager_calls == 1,
        "what reads values runs eagerly");
  auto strict = ahead::compile(shorten, {.fullgraph = true});
  bool refused = false;
  try {
    strict(x);
  } catch (const ahead::DataDependent& error) {
    std::printf("       %s\n", error.msg().c_str());
    refused = true;
  }
  check(refused, "with fullgraph it throws");
  return check.exit_code();
}
