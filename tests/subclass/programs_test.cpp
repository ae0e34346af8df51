#include <thread>

#include "subclass/wrapped_check.h"

/// Programs as people write them.
namespace ahead::wrapped::programs_test {

struct NetImpl : torch::nn::Module {
  NetImpl() {
    weight = register_parameter("weight", two({4, 4}).requires_grad_());
    linear = register_module("linear", torch::nn::Linear(4, 4));
  }
  at::Tensor forward(const at::Tensor& x) { return linear(x).tanh().matmul(weight); }
  at::Tensor weight;
  torch::nn::Linear linear{nullptr};
};
TORCH_MODULE(Net);

Net make_net() {
  torch::manual_seed(3);
  return Net();
}

TEST(SubclassPrograms, TrainsAModule) {
  Net eager = make_net(), ours = make_net();
  auto compiled = ahead::compile(ours, {.backend = "interpreter", .fullgraph = true});
  for (int step = 0; step < 8; ++step) {
    const at::Tensor batch = at::randn({2, 4});
    for (auto* net : {&eager, &ours}) (*net)->zero_grad();
    eager->forward(batch).pow(2).mean().backward();
    compiled(batch).pow(2).mean().backward();
    for (size_t i = 0; i < eager->parameters().size(); ++i)
      ASSERT_EQ(difference(eager->parameters()[i].grad(), ours->parameters()[i].grad()), "")
          << step << " " << i;
    at::NoGradGuard no_grad;
    for (auto* net : {&eager, &ours}) (*net)->weight.sub_((*net)->weight.grad() * 0.1);
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
  EXPECT_GE(compiled.stats().cache_hits, 4U);
}

TEST(SubclassPrograms, FollowsAParameterThatIsReplaced) {
  Net net = make_net();
  auto compiled = ahead::compile(net, {.backend = "interpreter"});
  const at::Tensor x = at::randn({2, 4});
  for (int i = 0; i < 3; ++i) compiled(x);
  net->weight = two({4, 4}, true);
  EXPECT_EQ(difference(net->forward(x), compiled(x)), "");
}

TEST(SubclassPrograms, TakesMinibatchesOfAWrapper) {
  const auto function = [](const at::Tensor& x) { return (x * 2).sum(1); };
  auto compiled = ahead::compile(function, {.backend = "interpreter", .fullgraph = true});
  const at::Tensor data = two({12, 3});
  for (int64_t i = 0; i < 6; ++i) {
    const at::Tensor batch = data.narrow(0, 2 * i, 2);
    EXPECT_EQ(difference(function(batch), compiled(batch)), "") << i;
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
}

TEST(SubclassPrograms, IsCalledByThreads) {
  auto compiled = ahead::compile([](const at::Tensor& x) { return (x * x).sum(); },
                                 {.backend = "interpreter", .confirm = Confirm::Never});
  compiled(two({8}, true));
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        const at::Tensor x = two({8}, true);
        compiled(x).backward();
        if (!difference(x.detach() * 2, x.grad()).empty()) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(SubclassPrograms, UpdatesAWrapperUnderNoGrad) {
  const auto step = [](const at::Tensor& weight, const at::Tensor& gradient) {
    at::NoGradGuard no_grad;
    weight.sub_(gradient * 0.5);
    return weight.sum();
  };
  auto compiled = ahead::compile(step, {.backend = "interpreter", .fullgraph = true});
  torch::manual_seed(0);
  const at::Tensor eager = two({3}, true), ours = eager.detach().clone().requires_grad_();
  for (int i = 0; i < 6; ++i) {
    const at::Tensor gradient = two({3});
    EXPECT_EQ(difference(step(eager, gradient), compiled(ours, gradient)), "");
    EXPECT_EQ(difference(eager, ours), "") << i;
    EXPECT_EQ(eager._version(), ours._version());
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
  EXPECT_GE(compiled.stats().cache_hits, 3U);
}

TEST(SubclassPrograms, DropsOutTheSameElements) {
  check([](const Tensors& x) { return Tensors{at::dropout(x[0], 0.5, true)}; },
        [] { return Tensors{two({30}, true)}; });
}

TEST(SubclassPrograms, RefusesAliasesThatAreWritten) {
  auto compiled = ahead::compile(
      [](const at::Tensor& x, const at::Tensor& y) {
        x.mul_(2);
        return x + y;
      },
      {.backend = "interpreter", .fullgraph = true, .confirm = Confirm::Never});
  const at::Tensor x = two({4});
  EXPECT_NE(error_of([&] {
              compiled(x, x.view({4}));
            }).find("Encountered aliased inputs that are mutated in the graph, but"),
            std::string::npos);
}

TEST(SubclassPrograms, RefusesIntermediateBases) {
  auto compiled = ahead::compile(
      [](const at::Tensor& x) {
        const at::Tensor y = x * 2;
        return Tensors{y.view({-1}), y.t()};
      },
      {.backend = "interpreter", .fullgraph = true, .confirm = Confirm::Never});
  EXPECT_NE(error_of([&] {
              compiled(two({2, 2}, true));
            }).find("is a tensor subclass. This is not supported today"),
            std::string::npos);
}

TEST(SubclassPrograms, RefusesStridedViewsOfViewsAsResults) {
  const auto refusal = [](bool requires_grad, int64_t length) {
    auto compiled = ahead::compile(
        [length](const at::Tensor& x) {
          return (x * 2).narrow(0, 0, length).as_strided({2}, {2});
        },
        {.backend = "interpreter", .fullgraph = true, .confirm = Confirm::Never});
    return error_of([&] { compiled(two({4}, requires_grad)); });
  };
  // After a write to the result, eager's gradient goes to the third element, too.
  EXPECT_NE(refusal(true, 2).find("may reach elements beyond that view"), std::string::npos);
  EXPECT_EQ(refusal(false, 2), "");
}

TEST(SubclassPrograms, RunsEagerlyWhatItCannotCompile) {
  const std::vector<Function> functions{
      [](const Tensors& x) { return Tensors{TwoTensor::make(x[0].detach(), x[0].detach()) * 2}; },
      [](const Tensors& x) {
        x[0].mul(x[0]).sum().backward();
        return Tensors{x[0].grad() * 2};
      }};
  for (size_t i = 0; i < functions.size(); ++i) {
    auto compiled = ahead::compile(functions[i], {.backend = "interpreter"});
    for (int call = 0; call < 6; ++call) {
      torch::manual_seed(call);
      const at::Tensor inner = at::randn({3}), other = at::randn({3});
      const auto make = [&] {
        return i == 0 ? inner.clone()
                      : TwoTensor::make(inner.clone(), other.clone()).requires_grad_();
      };
      EXPECT_EQ(difference(functions[i]({make()})[0], compiled(Tensors{make()})[0]), "")
          << i << " " << call;
    }
    EXPECT_EQ(compiled.stats().cache_hits, 0U);
  }
}

TEST(SubclassPrograms, ExplainsItself) {
  auto compiled = ahead::compile([](const at::Tensor& x) { return x * 2; },
                                 {.backend = "interpreter", .confirm = Confirm::Never});
  compiled(Tagged::make(at::ones({3}), 1));
  EXPECT_EQ(compiled.explain(Tagged::make(at::ones({3}), 1)), "program 0 fits");
  EXPECT_NE(compiled.explain(Tagged::make(at::ones({3}), 2)), "program 0 fits");
}

TEST(SubclassPrograms, AreRefusedByTraces) {
  EXPECT_NE(error_of([] {
              trace([](const Tensors& x) { return Tensors{x[0] * 2}; }, {two({3})});
            }).find("a wrapper tensor meets the traced function"),
            std::string::npos);
}

}  // namespace ahead::wrapped::programs_test
