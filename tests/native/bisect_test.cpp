#include <torch/torch.h>

#include "ahead/ahead.h"
#include "base/files.h"
#include "models/models.h"
#include "native/temporary_cache.h"

namespace ahead::native::bisect_test {

using at::Tensor;

Tensor loss_of(const Tensor& x, const Tensor& w) {
  const Tensor h = at::gelu(x * 2 + 1).matmul(w);
  return at::layer_norm(at::tanh(h) + x, {x.size(-1)}).pow(2).mean();
}

Tensor leaf(at::IntArrayRef sizes) {
  return torch::randn(sizes).requires_grad_();
}

/// Replaces a word of a kernel's text wherever it computes something.
std::function<void(std::string&)> replacing(const std::string& from, const std::string& to) {
  return [=](std::string& text) {
    size_t at = text.find("extern \"C\"");
    for (at = text.find(from, at); at != std::string::npos; at = text.find(from, at + to.size()))
      text.replace(at, from.size(), to);
  };
}

TEST(Bisect, FindsNothingWhereKernelsAreRight) {
  torch::manual_seed(0);
  const Tensor x = leaf({8, 16}), w = leaf({16, 16});
  const BisectReport report = bisect(loss_of, x, w);
  EXPECT_EQ(report.reason, "");
  EXPECT_FALSE(report.found()) << report.str();
  EXPECT_GE(report.kernels_checked, 3u);
  EXPECT_NE(report.str().find("all are within their tolerance"), std::string::npos) << report.str();
  EXPECT_FALSE(x.grad().defined());
}

TEST(Bisect, FindsNothingInModels) {
  for (const models::Workload& workload : models::workloads()) {
    const BisectReport report = bisect(workload.loss, workload.inputs);
    EXPECT_FALSE(report.found()) << workload.name << ": " << report.str();
    EXPECT_GT(report.kernels_checked, 0u) << workload.name << ": " << report.str();
  }
}

TEST(Bisect, FindsNothingInOtherPrecisions) {
  torch::manual_seed(0);
  for (const at::ScalarType dtype : {at::kDouble, at::kBFloat16, at::kHalf}) {
    const Tensor x = torch::randn({8, 16}).to(dtype).requires_grad_();
    const BisectReport report = bisect(
        [](const Tensor& t) {
          return at::softmax(at::gelu(t * 3), -1).to(at::kFloat).exp() * at::sigmoid(t);
        },
        x);
    EXPECT_FALSE(report.found()) << dtype << ": " << report.str();
    EXPECT_GE(report.kernels_checked, 2u) << report.str();
  }
}

TEST(Bisect, NamesTheFirstKernelThatIsWrong) {
  torch::manual_seed(0);
  const Tensor x = leaf({8, 16}), w = leaf({16, 16});
  const detail::Bisection search(replacing("= tanh(", "= 1.001f * tanh("));
  const BisectReport report = detail::bisect_by(search, loss_of, x, w);
  ASSERT_TRUE(report.found()) << report.str();
  EXPECT_EQ(report.graph, "CompiledFunction.forward");
  EXPECT_NE(std::find(report.operators.begin(), report.operators.end(), "aten.tanh"),
            report.operators.end());
  EXPECT_NE(report.kernel.find("tanh"), std::string::npos);
  EXPECT_GT(report.difference, report.tolerance);
  EXPECT_LT(report.tolerance, 1e-3);
  EXPECT_NE(report.str().find(report.kernel), std::string::npos);

  ASSERT_NE(report.folder, "");
  std::string graph, kernel, loops;
  EXPECT_TRUE(read_file(report.folder + "/graph.txt", graph));
  EXPECT_TRUE(read_file(report.folder + "/kernel.cpp", kernel));
  EXPECT_TRUE(read_file(report.folder + "/loops.txt", loops));
  EXPECT_NE(kernel.find(report.kernel + "("), std::string::npos);
  EXPECT_NE(loops.find("tanh"), std::string::npos);
  std::vector<Tensor> arguments, by_aten, by_kernel;
  torch::load(arguments, report.folder + "/arguments.pt");
  torch::load(by_aten, report.folder + "/by_aten.pt");
  torch::load(by_kernel, report.folder + "/by_kernel.pt");
  const std::vector<Tensor> again = interpret(Graph::parse(graph), arguments);
  ASSERT_EQ(again.size(), by_aten.size());
  for (size_t i = 0; i < again.size(); ++i)
    EXPECT_TRUE(at::allclose(again[i], by_aten[i], 1e-6, 1e-7));
  EXPECT_EQ((by_kernel[report.result].to(at::kDouble) - by_aten[report.result].to(at::kDouble))
                .abs()
                .max()
                .item<double>(),
            report.difference);
  test::remove_folder(report.folder);
}

TEST(Bisect, LooksIntoBackwards) {
  torch::manual_seed(0);
  const Tensor x = leaf({8, 16});
  // The sign of numbers is in no forward here.
  const auto f = [](const Tensor& t) { return (at::exp(t * 0.5) - t).abs() * 3; };
  EXPECT_FALSE(bisect(f, x).found());
  const BisectReport report =
      detail::bisect_by(detail::Bisection(replacing("= sign(", "= -sign(")), f, x);
  ASSERT_TRUE(report.found()) << report.str();
  EXPECT_EQ(report.graph, "CompiledFunction.backward");
  test::remove_folder(report.folder);
}

TEST(Bisect, SaysWhyNothingWasChecked) {
  const BisectReport report = bisect([](const Tensor& t) { return t.clone(); }, torch::ones({3}));
  EXPECT_FALSE(report.found());
  EXPECT_EQ(report.kernels_checked, 0u);
  EXPECT_NE(report.str().find("no kernel ran"), std::string::npos) << report.str();
}

}  // namespace ahead::native::bisect_test
