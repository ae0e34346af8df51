#include "eager/harness.h"

/// Custom autograd functions whose backward writes to tensors that others hold: counters,
/// statistics of gradients, parameters, the gradient itself.
namespace ahead::test {
namespace writes_in_backward_test {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Tensors = std::vector<at::Tensor>;

/// The identity; its backward counts, and keeps a running mean of squared gradients.
struct Watching : torch::autograd::Function<Watching> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& count,
                            const at::Tensor& mean) {
    context->saved_data["count"] = count;
    context->saved_data["mean"] = mean;
    return x * 1;
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    context->saved_data["count"].toTensor().mul_(2).add_(1);
    const at::Tensor squares = gradients[0].pow(2).mean(0);
    context->saved_data["mean"].toTensor().mul_(0.9).add_(squares, 0.1);
    return {gradients[0] * 3, {}, {}};
  }
};

/// A layer whose backward watches its gradient in buffers.
struct WatchedLayer : torch::nn::Module {
  WatchedLayer() {
    linear = register_module("linear", torch::nn::Linear(4, 3));
    count = register_buffer("count", torch::zeros({1}));
    mean = register_buffer("mean", torch::zeros({3}));
  }
  at::Tensor forward(const at::Tensor& x) {
    return Watching::apply(linear->forward(x).tanh(), count, mean);
  }
  torch::nn::Linear linear = nullptr;
  at::Tensor count, mean;
};

TEST(WritesInBackward, CountersAndStatisticsInATrainingLoop) {
  expect_doubling(like_eager([](auto& wrap, Log& log) {
    auto layer = std::make_shared<WatchedLayer>();
    torch::optim::SGD optimizer(layer->parameters(), 0.1);
    auto fast = wrap([layer](const at::Tensor& x) { return layer->forward(x); });
    for (int step = 0; step < 20; ++step) {
      log("loss", train_step(optimizer, [&] { return fast(at::randn({5, 4})).pow(2).mean(); }));
      log("layer", *layer);
      log("version", static_cast<double>(layer->count._version() + layer->mean._version()));
    }
  }));
}

TEST(WritesInBackward, TwoCallsBeforeOneBackward) {
  expect_doubling(like_eager([](auto& wrap, Log& log) {
    auto layer = std::make_shared<WatchedLayer>();
    auto fast = wrap([layer](const at::Tensor& x) { return layer->forward(x); });
    for (int step = 0; step < 12; ++step) {
      const at::Tensor first = fast(at::randn({5, 4})), second = fast(at::randn({5, 4}));
      (first.pow(2).mean() + second.sin().mean()).backward();
      log("layer", *layer);
    }
  }));
}

TEST(WritesInBackward, BuffersAsArgumentsAndSlicesOfThem) {
  expect_doubling(like_eager([](auto& wrap, Log& log) {
    const at::Tensor counts = torch::zeros({8, 1}), means = torch::zeros({8, 3});
    auto f = wrap([](const at::Tensor& x, const at::Tensor& count, const at::Tensor& mean) {
      return Watching::apply(x.exp(), count, mean).sum();
    });
    for (int64_t step = 0; step < 16; ++step) {
      const at::Tensor x = at::randn({5, 3}).requires_grad_();
      f(x, counts[step % 8], means[step % 8]).backward();
      log("x", x);
      log("counts", counts);
      log("means", means);
    }
  }));
}

/// Clips the gradient in place.
struct Clipping : torch::autograd::Function<Clipping> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x.clone(); }
  static variable_list backward(AutogradContext*, variable_list gradients) {
    gradients[0].mul_(2).clamp_(-0.5, 0.5);
    return {gradients[0]};
  }
};

TEST(WritesInBackward, GradientsClippedInPlace) {
  expect_doubling(like_eager([](auto& wrap, Log& log) {
    auto f = wrap([](const at::Tensor& x) { return Clipping::apply(x * 3); });
    for (int step = 0; step < 12; ++step) {
      const at::Tensor x = at::randn({6}).requires_grad_(), given = at::randn({6});
      f(x).backward(given);
      log("x", x);
      log("given", given);
      log("version", static_cast<double>(given._version()));
    }
  }));
}

TEST(WritesInBackward, GradientsInOtherLayouts) {
  expect_doubling(like_eager([](auto& wrap, Log& log) {
    auto f = wrap([](const at::Tensor& x) { return Clipping::apply(x * 3); });
    for (int step = 0; step < 12; ++step) {
      const at::Tensor x = at::randn({4, 6}).requires_grad_();
      const at::Tensor given =
          step % 2 == 0 ? at::randn({6, 4}).t() : at::randn({4, 12}).slice(1, 0, 12, 2);
      f(x).backward(given);
      log("x", x);
      log("given", given);
    }
  }));
}

TEST(WritesInBackward, OneNumberForAllElementsCannotBeWrittenTo) {
  expect_doubling(like_eager([](auto& wrap, Log& log) {
    auto f = wrap([](const at::Tensor& x) { return Clipping::apply(x * 3); });
    for (int step = 0; step < 8; ++step) {
      const at::Tensor x = at::randn({6}).requires_grad_();
      const at::Tensor loss = f(x).sum();
      log("error", error_of([&] { loss.backward(); }).substr(0, 60));
    }
  }));
}

/// The total of all gradients, in a variable of the program's.
at::Tensor& total() {
  static at::Tensor sum = torch::zeros({3});
  return sum;
}
struct Totalling : torch::autograd::Function<Totalling> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x * 1; }
  static variable_list backward(AutogradContext*, variable_list gradients) {
    total().mul_(0.5).add_(gradients[0].sum(0));
    return {gradients[0] * 2};
  }
};

TEST(WritesInBackward, AVariableOfTheProgram) {
  expect_doubling(like_eager([](auto& wrap, Log& log) {
    total().zero_();
    auto f = wrap([](const at::Tensor& x) { return Totalling::apply(x.sin()); });
    for (int step = 0; step < 12; ++step) {
      const at::Tensor x = at::randn({5, 3}).requires_grad_();
      f(x).pow(2).sum().backward();
      log("x", x);
      log("total", total());
    }
  }));
}

/// A product whose backward takes the step of the weight itself.
struct Stepping : torch::autograd::Function<Stepping> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& w) {
    context->save_for_backward({x, w});
    return x.matmul(w);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor of_x = gradients[0].matmul(saved[1].t());
    saved[1].sub_(saved[0].t().matmul(gradients[0]), 0.1);
    return {of_x, {}};
  }
};

TEST(WritesInBackward, WeightsThatTheirOwnBackwardSteps) {
  expect_doubling(like_eager([](auto& wrap, Log& log) {
    const at::Tensor w1 = at::randn({4, 4}).requires_grad_(),
                     w2 = at::randn({4, 2}).requires_grad_();
    auto f = wrap([=](const at::Tensor& x) {
      return Stepping::apply(Stepping::apply(x, w1).tanh(), w2).pow(2).sum();
    });
    for (int step = 0; step < 12; ++step) {
      log("loss", f(at::randn({5, 4})));
      const at::Tensor loss = f(at::randn({5, 4}));
      loss.backward();
      log("w1", w1);
      log("w2", w2);
    }
  }));
}

TEST(WritesInBackward, TheSameBufferInForwardAndBackward) {
  expect_doubling(like_eager([](auto& wrap, Log& log) {
    const at::Tensor count = torch::ones({1}), mean = torch::ones({3});
    auto f = wrap([=](const at::Tensor& x) {
      count.mul_(3);
      mean.mul_(0.5);
      return Watching::apply(x.exp() * mean.sum(), count, mean);
    });
    for (int step = 0; step < 12; ++step) {
      const at::Tensor x = at::randn({5, 3}).requires_grad_();
      const at::Tensor first = f(x), second = f(x * 2);
      log("count", count);
      (first.pow(2).sum() + second.sum()).backward();
      log("x", x);
      log("count", count);
      log("mean", mean);
    }
  }));
}

TEST(WritesInBackward, OnlyWhereTheCustomFunctionRuns) {
  expect_doubling(like_eager([](auto& wrap, Log& log) {
    const at::Tensor count = torch::ones({1}), mean = torch::ones({3});
    auto f = wrap([=](const at::Tensor& x, const at::Tensor& w) {
      return (Watching::apply(x.exp(), count, mean) * w).sum();
    });
    for (int step = 0; step < 12; ++step) {
      const at::Tensor x = at::randn({5, 3}).requires_grad_(), w = at::randn({3}).requires_grad_();
      log("of w", torch::autograd::grad({f(x, w)}, {w})[0]);
      log("count", count);
      log("version", static_cast<double>(count._version()));
      log("of x", torch::autograd::grad({f(x, w)}, {x})[0]);
      log("count", count);
    }
  }));
}

TEST(WritesInBackward, OnlyWhereTheResultIsDifferentiated) {
  expect_doubling(like_eager([](auto& wrap, Log& log) {
    const at::Tensor count = torch::ones({1}), mean = torch::ones({3});
    auto f = wrap([=](const at::Tensor& x) {
      const at::Tensor y = x.sin();
      return std::make_tuple(Watching::apply(y, count, mean).sum(), y.cos().sum());
    });
    for (int step = 0; step < 12; ++step) {
      const at::Tensor x = at::randn({5, 3}).requires_grad_();
      const auto [watched, other] = f(x);
      other.backward({}, /*retain_graph=*/true);
      log("count", count);
      watched.backward();
      log("count", count);
      log("x", x);
    }
  }));
}

TEST(WritesInBackward, ARetainedGraphWritesAgain) {
  expect_doubling(like_eager([](auto& wrap, Log& log) {
    const at::Tensor count = torch::ones({1}), mean = torch::ones({3});
    auto f = wrap([=](const at::Tensor& x) { return Watching::apply(x.exp(), count, mean).sum(); });
    for (int step = 0; step < 12; ++step) {
      const at::Tensor x = at::randn({5, 3}).requires_grad_();
      const at::Tensor loss = f(x);
      loss.backward({}, /*retain_graph=*/true);
      loss.backward();
      log("x", x);
      log("count", count);
      log("mean", mean);
    }
  }));
}

TEST(WritesInBackward, UnderCompiledAutograd) {
  expect_doubling(like_eager([](auto& wrap, Log& log) {
    const compiled_autograd::Enable on;
    const at::Tensor count = torch::ones({1}), mean = torch::ones({3});
    auto f = wrap([=](const at::Tensor& x) { return Watching::apply(x.exp(), count, mean); });
    for (int step = 0; step < 12; ++step) {
      const at::Tensor x = at::randn({5, 3}).requires_grad_();
      f(x * 2).sin().sum().backward();
      log("x", x);
      log("count", count);
      log("mean", mean);
    }
  }));
}

TEST(WritesInBackward, WhatGradientFormulasReadMustNotHaveChanged) {
  expect_doubling(like_eager([](auto& wrap, Log& log) {
    const at::Tensor count = torch::ones({1}), mean = torch::ones({3});
    auto f = wrap(
        [=](const at::Tensor& x) { return (Watching::apply(x.exp(), count, mean) * mean).sum(); });
    for (int step = 0; step < 8; ++step) {
      const at::Tensor x = at::randn({5, 3}).requires_grad_();
      const at::Tensor first = f(x), second = f(x);
      first.backward();
      const std::string error = error_of([&] { second.backward(); });
      log("complains", error.find("modified by an inplace operation") != std::string::npos ? 1 : 0);
      log("x", x);
      log("mean", mean);
    }
  }));
}

TEST(WritesInBackward, SecondDerivativesAreRefusedOnlyWhenTheyAreAskedFor) {
  const at::Tensor count = torch::ones({1}), mean = torch::ones({3});
  auto f = compile([=](const at::Tensor& x) { return Watching::apply(x.exp(), count, mean).sum(); },
                   {.fullgraph = true, .confirm = Confirm::Never});
  for (int step = 0; step < 3; ++step) {
    const at::Tensor x = at::randn({5, 3}).requires_grad_();
    const at::Tensor gradient =
        torch::autograd::grad({f(x)}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
    EXPECT_TRUE(same_values(gradient.detach(), x.detach().exp() * 3));
    const std::string error = error_of([&] { gradient.sum().backward(); });
    if (step != 0) {
      EXPECT_NE(error.find("writes to tensors from outside when the backward runs"),
                std::string::npos)
          << error;
    }
  }
  EXPECT_EQ(f.stats().eager_calls, 0u);
  EXPECT_EQ(f.stats().cache_hits, 2u);
}

TEST(WritesInBackward, BuffersThatShareMemoryRunEagerly) {
  expect_eager(like_eager([](auto& wrap, Log& log) {
    const at::Tensor both = torch::ones({4});
    auto f = wrap([](const at::Tensor& x, const at::Tensor& count, const at::Tensor& mean) {
      return Watching::apply(x.exp(), count, mean).sum();
    });
    for (int step = 0; step < 8; ++step) {
      const at::Tensor x = at::randn({5, 3}).requires_grad_();
      f(x, both.slice(0, 0, 1), both.slice(0, 0, 3)).backward();
      log("x", x);
      log("both", both);
    }
  }));
}

/// Changes the shape of a tensor from outside in its backward.
struct Reshaping : torch::autograd::Function<Reshaping> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& b) {
    context->saved_data["b"] = b;
    return x * 1;
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    context->saved_data["b"].toTensor().t_();
    return {gradients[0] * 2, {}};
  }
};
/// Changes the shape of the gradient that it is given.
struct ReshapingGradient : torch::autograd::Function<ReshapingGradient> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x * 1; }
  static variable_list backward(AutogradContext*, variable_list gradients) {
    return {gradients[0].t_().t() * 2};
  }
};

TEST(WritesInBackward, ChangesOfShapeAreRefusedInUpstreamsWords) {
  const auto reason = [](auto f, const auto&... args) {
    auto compiled = compile(f, {.fullgraph = true, .confirm = Confirm::Never});
    return error_of([&] { compiled(args...); });
  };
  const at::Tensor x = at::randn({2, 3}).requires_grad_();
  EXPECT_NE(reason([](const at::Tensor& x, const at::Tensor& b) { return Reshaping::apply(x, b); },
                   x, at::ones({2, 3}))
                .find("Found a graph input that had its metadata mutated in the backward. This is "
                      "not supported"),
            std::string::npos);
  EXPECT_NE(reason([](const at::Tensor& x) { return ReshapingGradient::apply(x); }, x)
                .find("Found an input to the backward that had metadata mutated during the "
                      "backward pass. This is not supported"),
            std::string::npos);
}

TEST(WritesInBackward, BothPartitionersAndBothWaysOfCalling) {
  for (const Partitioner partitioner : {Partitioner::Default, Partitioner::MinCut}) {
    like_eager([&](auto& wrap, Log& log) {
      const at::Tensor count = torch::ones({1}), mean = torch::ones({3});
      auto f = wrap(
          [](const at::Tensor& x, const at::Tensor& count, const at::Tensor& mean) {
            const at::Tensor scale = mean.exp().sum();  // not to be computed again
            mean.mul_(2);
            return (Watching::apply(x.exp() * scale, count, mean) * (mean * 2)).sin();
          },
          {.partitioner = partitioner});
      for (int step = 0; step < 8; ++step) {
        const at::Tensor x = at::randn({5, 3}).requires_grad_();
        f(x, count, mean).sum().backward();
        mean.clamp_(-2, 2);
        log("x", x);
        log("mean", mean);
      }
    });
  }
}

}  // namespace writes_in_backward_test
}  // namespace ahead::test
