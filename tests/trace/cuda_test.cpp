#include <gtest/gtest.h>

#include "support/trace_check.h"

namespace ahead {
namespace cuda_test {

using at::Tensor;
using Tensors = std::vector<at::Tensor>;
namespace F = torch::nn::functional;

TEST(Cuda, TrainingStepLikeEager) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "this machine has no CUDA device";
  expect_like_eager([] {
    torch::manual_seed(0);
    torch::nn::Linear first(16, 32), second(32, 4);
    torch::nn::LayerNorm norm(torch::nn::LayerNormOptions({32}));
    for (auto& module :
         std::vector<std::shared_ptr<torch::nn::Module>>{first.ptr(), second.ptr(), norm.ptr()}) {
      module->to(at::kCUDA);
    }
    Tensors captured = first->parameters();
    for (const Tensor& p : second->parameters()) captured.push_back(p);
    for (const Tensor& p : norm->parameters()) captured.push_back(p);
    return Scene{[=](const Tensors& in) mutable {
                   Tensor h = norm(torch::relu(first(in[0])));
                   h.select(1, 0).mul_(2);
                   return Tensors{F::cross_entropy(second(h), in[1])};
                 },
                 {torch::randn({8, 16}).cuda(), torch::randint(4, {8}).cuda()},
                 captured,
                 {}};
  });
}

TEST(Cuda, FactoriesOnTheEnginesDeviceThread) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "this machine has no CUDA device";
  // The backward of these makes new tensors on the engine's own thread.
  expect_like_eager([] {
    torch::manual_seed(0);
    Tensor x = torch::randn({4, 6}).cuda().requires_grad_();
    return Scene{[](const Tensors& in) {
                   return Tensors{in[0].narrow(1, 1, 2).contiguous().sin(), in[0].select(0, 1) * 2,
                                  in[0].index_select(0, torch::tensor({0, 2}).cuda())};
                 },
                 {x},
                 {},
                 {}};
  });
}

TEST(Cuda, BatchNormUpdatesItsStatisticsLikeEager) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "this machine has no CUDA device";
  for (const bool cudnn : {true, false}) {
    expect_like_eager([=] {
      torch::manual_seed(0);
      const auto parameter = [](double value) { return torch::full({3}, value).cuda(); };
      const Tensors captured = {parameter(2).requires_grad_(), parameter(1).requires_grad_(),
                                parameter(0), parameter(1)};
      return Scene{[=](const Tensors& in) {
                     const Tensor y = at::batch_norm(in[0], captured[0], captured[1], captured[2],
                                                     captured[3], true, 0.1, 1e-5, cudnn);
                     return Tensors{y.relu().square().mean()};
                   },
                   {torch::randn({4, 3, 8, 8}).cuda().requires_grad_()},
                   captured,
                   {}};
    });
  }
}

}  // namespace cuda_test
}  // namespace ahead
