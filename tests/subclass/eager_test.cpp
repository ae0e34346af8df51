#include "subclass/wrapped_check.h"

namespace ahead::wrapped::eager_test {

at::Tensor a_of(const at::Tensor& tensor) {
  return inside_of<TwoTensor>(tensor)->a();
}
at::Tensor b_of(const at::Tensor& tensor) {
  return inside_of<TwoTensor>(tensor)->b();
}

/// Expects a function of a TwoTensor to be the function of each of its tensors, gradients included.
void expect_by_part(const std::function<at::Tensor(const at::Tensor&)>& function) {
  const at::Tensor a = at::randn({3, 4}), b = at::randn({3, 4});
  const at::Tensor both = TwoTensor::make(a.clone(), b.clone()).requires_grad_();
  const at::Tensor result = function(both);
  result.sum().backward();
  for (const bool first : {true, false}) {
    const at::Tensor part = (first ? a : b).clone().requires_grad_();
    const at::Tensor expected = function(part);
    expected.sum().backward();
    const auto of = [&](const at::Tensor& tensor) { return first ? a_of(tensor) : b_of(tensor); };
    EXPECT_EQ(tensor_difference(expected.detach(), of(result).detach()), "");
    EXPECT_EQ(tensor_difference(part.grad(), of(both.grad())), "");
  }
}

TEST(SubclassEager, DoesEverythingWithBothTensors) {
  expect_by_part([](const at::Tensor& x) { return (x * 2 + x.exp()).tanh(); });
  expect_by_part([](const at::Tensor& x) { return x.matmul(x.t()).softmax(1); });
  expect_by_part([](const at::Tensor& x) { return at::cat({x, x.sin()}, 1).view({-1}).cumsum(0); });
  expect_by_part([](const at::Tensor& x) { return at::layer_norm(x, {4}); });
  expect_by_part([](const at::Tensor& x) { return x.index_select(0, at::tensor({0, 2})); });
  expect_by_part([](const at::Tensor& x) { return std::get<0>(x.max(1)) * x.sum(); });
}

TEST(SubclassEager, WritesToViews) {
  expect_by_part([](const at::Tensor& x) {
    at::Tensor y = x * 2;
    y.select(0, 1).mul_(3);
    y.view({-1}).narrow(0, 2, 5).mul_(y.detach().view({-1}).narrow(0, 2, 5).clone());
    return y.t();
  });
}

TEST(SubclassEager, MixesWithPlainTensors) {
  const at::Tensor plain = at::randn({5, 3}).requires_grad_();
  const at::Tensor both = two({3, 4}, true);
  plain.matmul(both).sum().backward();
  EXPECT_EQ(classes_of(plain.grad()), "TwoTensor(Tensor,Tensor,)");
  EXPECT_TRUE(at::equal(a_of(plain.grad()), at::ones({5, 4}).matmul(a_of(both).t())));
  EXPECT_TRUE(at::equal(b_of(both.grad()), plain.detach().t().matmul(at::ones({5, 4}))));
}

TEST(SubclassEager, SharesMemoryAsOperatorsSay) {
  const at::Tensor both = two({3, 4});
  const at::Tensor before = a_of(both).clone();
  const at::Tensor detached = both.detach(), copy = both.clone();
  both.mul_(2);
  EXPECT_TRUE(at::equal(a_of(detached), before * 2));
  EXPECT_TRUE(at::equal(a_of(copy), before));
  EXPECT_EQ(detached._version(), 1);
  EXPECT_TRUE(detached.is_alias_of(both));
  EXPECT_FALSE(copy.is_alias_of(both));
}

TEST(SubclassEager, TakesStepsOfAnOptimizer) {
  const at::Tensor both = two({3, 4}, true);
  const at::Tensor a = a_of(both).clone().requires_grad_(), b = b_of(both).clone().requires_grad_();
  const auto options = torch::optim::SGDOptions(0.1).momentum(0.9);
  torch::optim::SGD ours({both}, options), plain({a, b}, options);
  for (int step = 0; step < 3; ++step) {
    for (auto* optimizer : {&ours, &plain}) optimizer->zero_grad();
    (both * both).sum().backward();
    (a * a).sum().backward();
    (b * b).sum().backward();
    for (auto* optimizer : {&ours, &plain}) optimizer->step();
  }
  EXPECT_TRUE(at::equal(a_of(both), a.detach()));
  EXPECT_TRUE(at::equal(b_of(both), b.detach()));
}

TEST(SubclassEager, IsDifferentiatedTwice) {
  expect_by_part([](const at::Tensor& x) {
    return torch::autograd::grad({x.pow(3).sum()}, {x}, {}, true, true)[0].pow(2);
  });
}

TEST(SubclassEager, Nests) {
  const at::Tensor nested = TwoTensor::make(two({2, 2}), two({2, 2})).requires_grad_();
  (nested * nested).sum().backward();
  EXPECT_TRUE(at::equal(b_of(a_of(nested.grad())), b_of(a_of(nested.detach())) * 2));
}

TEST(SubclassEager, SavedTensorsNoticeWrites) {
  const at::Tensor both = two({3}, true) * 1;
  const at::Tensor result = both * both;
  {
    at::NoGradGuard no_grad;
    both.mul_(2);
  }
  EXPECT_NE(error_of([&] { result.sum().backward(); }).find("modified by an inplace operation"),
            std::string::npos);
}

TEST(SubclassEager, RefusesWhatItCannotDo) {
  const at::Tensor both = two({3, 4});
  EXPECT_NE(error_of([&] {
              both.transpose_(0, 1);
            }).find("Metadata mutations are currently not allowed on tensor subclasses"),
            std::string::npos);
  EXPECT_NE(error_of([&] { both.sum().item(); }).find("its result is no tensor"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              at::zeros({3, 4}).copy_(both);
            }).find("to a tensor that is none"),
            std::string::npos);
  EXPECT_NE(error_of([&] { TwoTensor::make(at::ones({2}), at::ones({3})); }).find("shapes"),
            std::string::npos);
  EXPECT_NE(error_of([&] { TwoTensor::make(leaf({2}), at::ones({2})); }).find("requires grad"),
            std::string::npos);
  EXPECT_NE(error_of([&] { both.data_ptr<float>(); }), "");
}

}  // namespace ahead::wrapped::eager_test
