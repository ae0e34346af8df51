#include "ahead/state.h"

#include "sizes/training.h"

/// Members of submodules that were announced.
namespace ahead {
namespace state_test {

using at::Tensor;

enum class Mode : uint8_t { Sine, Cosine };

struct ScaleImpl : torch::nn::Module {
  Tensor forward(const Tensor& x) {
    const Tensor wave = mode == Mode::Sine ? x.sin() : x.cos();
    kept = (wave * temperature * static_cast<double>(factor)).detach();
    return wave + kept;
  }
  double temperature = 0.5;
  int64_t factor = 3;
  Mode mode = Mode::Sine;
  Tensor kept;
};
TORCH_MODULE(Scale);
AHEAD_STATE(ScaleImpl, temperature, factor, mode, kept)
AHEAD_STATE(ScaleImpl, temperature)

struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("inner", inner);
    register_module("scale", scale);
  }
  Tensor forward(const Tensor& x) { return scale(inner(x)); }
  torch::nn::Linear inner{3, 3};
  Scale scale;
};
TORCH_MODULE(Net);

/// A module, and an equal one that is not compiled.
struct Pair {
  Pair() {
    torch::manual_seed(1);
    eager = Net();
    torch::manual_seed(1);
    model = Net();
  }
  template <class Change>
  void change(const Change& change) {
    change(*eager->scale);
    change(*model->scale);
  }
  template <class Call>
  void expect_right(const Call& compiled, int64_t size) {
    const Tensor x = torch::randn({size, 3});
    const Tensor expected = eager->forward(x).detach(), actual = compiled(x).detach();
    expect_same({expected, eager->scale->kept}, {actual, model->scale->kept});
  }
  Net eager{nullptr}, model{nullptr};
};

TEST(State, NumbersInSubmodulesAreNoticedAtOnce) {
  Pair nets;
  auto compiled = compile(nets.model);
  const auto call_often = [&] {
    for (int call = 0; call < 6; ++call) nets.expect_right(compiled, 4);
  };
  call_often();
  EXPECT_GT(compiled.stats().cache_hits, 0U);
  nets.change([](ScaleImpl& scale) { scale.temperature = 0.25; });
  call_often();
  nets.change([](ScaleImpl& scale) { scale.factor = 7; });
  call_often();
  nets.change([](ScaleImpl& scale) { scale.mode = Mode::Cosine; });
  call_often();
  nets.change([](ScaleImpl& scale) {
    scale.temperature = 0.5;
    scale.factor = 3;
    scale.mode = Mode::Sine;
  });
  call_often();
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
  EXPECT_GE(compiled.stats().cache_hits, 12U);
}

TEST(State, NumbersAreNoticedWhileSizesChange) {
  Pair nets;
  auto compiled = compile(nets.model);
  for (const double temperature : {0.5, 0.75, 0.5, 0.25}) {
    nets.change([&](ScaleImpl& scale) { scale.temperature = temperature; });
    for (const int64_t size : rounds_of(2, 6, 4)) nets.expect_right(compiled, size);
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
  EXPECT_GE(compiled.stats().cache_hits, 20U);
}

TEST(State, OfModulesBehindALambda) {
  Pair nets;
  const auto forward = [&nets](const Tensor& x) { return nets.model(x); };
  auto compiled = compile(forward, {.watch = {nets.model.ptr()}});
  for (int call = 0; call < 6; ++call) nets.expect_right(compiled, 2);
  nets.change([](ScaleImpl& scale) { scale.temperature = 5; });
  nets.expect_right(compiled, 2);
  EXPECT_GT(compiled.stats().cache_hits, 0U);
}

}  // namespace state_test
}  // namespace ahead
