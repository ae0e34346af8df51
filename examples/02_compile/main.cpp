// Compiles a function: one line, a callable of the same type, and eager's numbers.
// The first calls run the function itself, watched; later ones run graphs of what it did.

#include <ahead/ahead.h>

#include "models/checks.h"
#include "models/models.h"
#include "models/same.h"

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

/// Reads a truth value out of a tensor and decides by it: one program for each outcome.
Tensor shorten(const Tensor& x) {
  return (x.norm() > 1).item<bool>() ? x / x.norm() : x;
}

/// Reads a real number, which is another one in nearly every call: no graph can stand for that.
Tensor normalise(const Tensor& x) {
  return x / x.norm().item<double>();
}

void print(const ahead::CompileStats& stats) {
  std::printf("       %llu calls: %llu observed, %llu from graphs, %llu eager\n",
              static_cast<unsigned long long>(stats.calls),
              static_cast<unsigned long long>(stats.observed_calls),
              static_cast<unsigned long long>(stats.cache_hits),
              static_cast<unsigned long long>(stats.eager_calls));
}

}  // namespace

AHEAD_TREE(Smoothed, loss, residual);

int main() {
  models::Checks check;
  torch::manual_seed(0);
  Tensor weight = torch::randn({3, 2}).requires_grad_();
  Tensor eager_average = torch::zeros({2}), average = torch::zeros({2});

  // The line that this lesson is about. Nothing is compiled yet.
  auto compiled = ahead::compile(smooth);

  // Calls 1 and 2 are observed: the function itself runs, as in eager, and Ahead writes down what
  // it does. Both did the same, so a graph of that serves the next calls. Calls 4, 8, 16 and so on
  // are observed again, to see that the function still does the same.
  for (int call = 1; call <= 8; ++call) {
    Tensor x = torch::randn({4, 3});
    const uint64_t before = compiled.stats().cache_hits;
    Smoothed expected = smooth(x, weight, eager_average, 0.1);
    Smoothed result = compiled(x, weight, average, 0.1);
    Tensor expected_gradient = torch::autograd::grad({expected.loss}, {weight})[0];
    Tensor gradient = torch::autograd::grad({result.loss}, {weight})[0];
    const std::string how = compiled.stats().cache_hits > before ? "from a graph" : "observed";
    check(models::same(result.loss, expected.loss) &&
              models::same(result.residual, expected.residual),
          "call " + std::to_string(call) + ", " + how + ": results are eager's");
    check(models::same(gradient, expected_gradient), "        gradients are eager's");
    check(models::same(average, eager_average), "        so is what was written to the argument");
  }
  print(compiled.stats());
  check(compiled.stats().observed_calls == 4, "calls 1, 2, 4 and 8 were observed");
  check(compiled.stats().cache_hits == 4, "the others ran from a graph");

  // Kernels of the native backend, the default, may round otherwise than eager does in the last
  // places. The interpreter gives eager's numbers to the bit.
  auto interpreted = ahead::compile(smooth, {.backend = "interpreter"});
  bool equal = true;
  for (int call = 1; call <= 3; ++call) {
    Tensor x = torch::randn({4, 3});
    Tensor expected = smooth(x, weight, eager_average.clone(), 0.1).loss;
    equal = equal && interpreted(x, weight, eager_average.clone(), 0.1).loss.equal(expected);
  }
  check(equal && interpreted.stats().cache_hits == 1, "with the interpreter to the bit");

  // Sizes, dtypes and numbers decide the program; another number needs another one.
  for (int call = 1; call <= 3; ++call) compiled(torch::randn({4, 3}), weight, average, 0.2);
  check(compiled.stats().recompiles == 1 && compiled.stats().cache_hits == 6,
        "another rate was observed once, compiled anew, and ran from its graph");

  // Confirm::Never compiles what the first call did before it returns, and trusts it from then on.
  auto trusting = ahead::compile(smooth, {.confirm = ahead::Confirm::Never});
  for (int call = 1; call <= 8; ++call) trusting(torch::randn({4, 3}), weight, average, 0.1);
  check(trusting.stats().observed_calls == 1 && trusting.stats().cache_hits == 7,
        "with Confirm::Never one call was observed, seven ran from a graph");

  // Programs stop at a truth value that the function reads, and there is one for each outcome.
  auto shortened = ahead::compile(shorten);
  bool same = true;
  for (int call = 1; call <= 12; ++call) {
    Tensor x = torch::randn({8}) * (call % 2 == 0 ? 1 : 0.01);
    same = same && models::same(shortened(x), shorten(x));
  }
  print(shortened.stats());
  check(same && shortened.stats().cache_hits > 0 && shortened.stats().recompiles == 1,
        "what decides by a truth value has two programs");

  // What cannot be compiled runs eagerly, with a warning that says why ...
  auto normalised = ahead::compile(normalise);
  for (int call = 1; call <= 8; ++call) {
    Tensor x = torch::randn({8});
    same = same && normalised(x).equal(normalise(x));
  }
  print(normalised.stats());
  check(same && normalised.stats().cache_hits == 0 && normalised.stats().eager_calls > 0,
        "what reads a real number runs eagerly");
  // ... or throws, if you say so, once the calls that showed it are done.
  auto strict = ahead::compile(normalise, {.fullgraph = true});
  bool refused = false;
  try {
    for (int call = 1; call <= 8; ++call) strict(torch::randn({8}));
  } catch (const ahead::Unsupported& error) {
    std::printf("       %s\n", error.msg().c_str());
    refused = true;
  }
  check(refused, "with fullgraph it throws");
  return check.exit_code();
}
