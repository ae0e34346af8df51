#include <gtest/gtest.h>
#include <torch/library.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "eager/harness.h"

/// Functions that switch autocast on: operators that autocast has something to say about on other
/// devices only are called as without it.
namespace ahead::test {
namespace autocast_test {

namespace nn = torch::nn;

at::Tensor product(const at::Tensor& x) {
  return x.mm(x.t()).to(at::kFloat);
}
at::Tensor product_meta(const at::Tensor& x) {
  return x.new_empty({x.size(0), x.size(0)});
}

TORCH_LIBRARY(ahead_autocast_test, m) {
  m.def("product(Tensor x) -> Tensor");
}
TORCH_LIBRARY_IMPL(ahead_autocast_test, CPU, m) {
  m.impl("product", product);
}
TORCH_LIBRARY_IMPL(ahead_autocast_test, Meta, m) {
  m.impl("product", product_meta);
}

/// Calls f, compiled, with other numbers each time.
template <class F>
Outcome expect_like_eager(const F& f) {
  return like_eager([&](auto& wrap, Log& log) {
    auto compiled = wrap([&](const at::Tensor& x) {
      const Autocast autocast;
      return f(x);
    });
    for (int call = 0; call < 24; ++call) {
      const at::Tensor x = leaf({4, 4});
      const at::Tensor y = compiled(x);
      y.to(at::kFloat).sum().backward();
      log("y", y);
      log("x", x);
    }
  });
}

TEST(Autocast, EqualNumbersAtFirst) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::NoGradGuard no_grad;
    auto layer = wrap([](const at::Tensor& x) {
      const Autocast autocast;
      return at::layer_norm(x, {4}).relu();
    });
    for (int call = 0; call < 20; ++call)
      log("y", layer(call < 4 ? at::ones({4, 4}) : at::rand({4, 4})));
  });
  expect_doubling(outcome);
}

TEST(Autocast, OperatorsThatItCastsOnOtherDevices) {
  const auto expect = [](const char* name, const auto& f) {
    SCOPED_TRACE(name);
    expect_doubling(expect_like_eager(f));
  };
  expect("sum", [](const at::Tensor& x) { return x.sum(); });
  expect("sum of rows", [](const at::Tensor& x) { return x.sum(1); });
  expect("norm", [](const at::Tensor& x) { return x.norm(); });
  expect("cosine_similarity", [](const at::Tensor& x) { return at::cosine_similarity(x, x + 1); });
  expect("scatter_add", [](const at::Tensor& x) {
    return x.scatter_add(0, at::zeros({4, 4}, at::kLong), x * x);
  });
  expect("renorm", [](const at::Tensor& x) { return at::renorm(x, 2, 0, 1); });
  expect("dot", [](const at::Tensor& x) { return at::dot(x.view(-1), x.view(-1)); });
  expect("layer_norm", [](const at::Tensor& x) { return at::layer_norm(x, {4}).relu() * x; });
}

/// Autocast casts it once, so that the gradients of all uses are added up in bfloat16.
TEST(Autocast, LeafUsedSeveralTimes) {
  const at::Tensor weight = at::randn({4, 4});
  expect_doubling(expect_like_eager([&](const at::Tensor& x) {
    return at::mm(at::layer_norm(at::mm(at::mm(weight, x), x).to(at::kFloat), {4}), x).softmax(1);
  }));
}

/// What its kernel calls is cast, which no graph does.
TEST(Autocast, KernelsThatCallWhatIsCast) {
  const at::Tensor weight = at::rand({1, 4, 4}), other = at::rand({4, 4});
  const Outcome outcome =
      expect_like_eager([&](const at::Tensor& x) { return at::bilinear(x, other, weight, {}); });
  expect_eager(outcome);
}

TEST(Autocast, KernelsOfTheUser) {
  const auto op = c10::Dispatcher::singleton()
                      .findSchemaOrThrow("ahead_autocast_test::product", "")
                      .typed<at::Tensor(const at::Tensor&)>();
  for (const bool is_on : {true, false}) {
    const Outcome outcome = like_eager([&](auto& wrap, Log& log) {
      const at::NoGradGuard no_grad;
      auto f = wrap([&](const at::Tensor& x) {
        std::optional<Autocast> autocast;
        if (is_on) autocast.emplace();
        return op.call(x).relu();
      });
      for (int call = 0; call < 20; ++call) log("y", f(at::randn({4, 4})));
    });
    is_on ? expect_eager(outcome) : expect_hits(outcome);
  }
}

TEST(Autocast, TransformerLayer) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    nn::TransformerEncoderLayer layer(nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16));
    torch::optim::SGD optimizer(layer->parameters(), 0.1);
    auto step = wrap([&](const at::Tensor& x) {
      const Autocast autocast;
      return layer(x).to(at::kFloat).square().mean();
    });
    for (int call = 0; call < 24; ++call) {
      optimizer.zero_grad();
      const at::Tensor loss = step(at::randn({3, 2, 8}));
      loss.backward();
      optimizer.step();
      log("loss", loss);
      log("layer", *layer);
    }
  });
  expect_hits(outcome);
}

}  // namespace autocast_test
}  // namespace ahead::test
