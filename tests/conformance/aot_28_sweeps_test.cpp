#include "conformance/aot_support.h"

namespace ahead::conformance {
namespace aot_28_sweeps_test {

namespace nn = torch::nn;

/// One module and what it is called with.
struct ModuleCase {
  std::string name;
  std::function<nn::AnyModule()> make;
  std::function<Tensors()> inputs;
};

template <class Holder, class... Args>
std::function<nn::AnyModule()> maker(Args... args) {
  return [args...] { return nn::AnyModule(Holder(args...)); };
}

std::function<Tensors()> normal(std::vector<std::vector<int64_t>> sizes) {
  return [sizes] {
    Tensors made;
    for (const auto& one : sizes) made.push_back(at::randn(one));
    return made;
  };
}

void add_layers(std::vector<ModuleCase>& cases) {
  const auto images = normal({{2, 4, 6, 6}}), rows = normal({{3, 8}}), lines = normal({{2, 4, 9}});
  const auto volumes = normal({{2, 4, 4, 4, 4}});
  cases.push_back({"Linear", maker<nn::Linear>(8, 5), rows});
  cases.push_back(
      {"Bilinear", maker<nn::Bilinear>(nn::BilinearOptions(4, 5, 3)), normal({{6, 4}, {6, 5}})});
  cases.push_back({"Conv1d", maker<nn::Conv1d>(nn::Conv1dOptions(4, 6, 3).padding(1)), lines});
  cases.push_back({"Conv2d", maker<nn::Conv2d>(nn::Conv2dOptions(4, 6, 3).groups(2)), images});
  cases.push_back({"Conv3d", maker<nn::Conv3d>(nn::Conv3dOptions(4, 2, 2)), volumes});
  cases.push_back({"ConvTranspose2d",
                   maker<nn::ConvTranspose2d>(nn::ConvTranspose2dOptions(4, 3, 3).stride(2)),
                   images});
  cases.push_back({"BatchNorm1d", maker<nn::BatchNorm1d>(nn::BatchNormOptions(8)), rows});
  cases.push_back({"BatchNorm2d", maker<nn::BatchNorm2d>(nn::BatchNormOptions(4)), images});
  cases.push_back({"InstanceNorm2d",
                   maker<nn::InstanceNorm2d>(nn::InstanceNormOptions(4).affine(true)), images});
  cases.push_back({"GroupNorm", maker<nn::GroupNorm>(nn::GroupNormOptions(2, 4)), images});
  cases.push_back(
      {"LayerNorm", maker<nn::LayerNorm>(nn::LayerNormOptions(std::vector<int64_t>{8})), rows});
  cases.push_back(
      {"LocalResponseNorm", maker<nn::LocalResponseNorm>(nn::LocalResponseNormOptions(2)), images});
  cases.push_back({"MaxPool2d", maker<nn::MaxPool2d>(nn::MaxPool2dOptions(2)), images});
  cases.push_back({"AvgPool2d", maker<nn::AvgPool2d>(nn::AvgPool2dOptions(3)), images});
  cases.push_back({"AdaptiveAvgPool2d",
                   maker<nn::AdaptiveAvgPool2d>(nn::AdaptiveAvgPool2dOptions({2, 3})), images});
  cases.push_back({"LPPool2d", maker<nn::LPPool2d>(nn::LPPool2dOptions(2, 2)), images});
  cases.push_back({"Dropout", maker<nn::Dropout>(nn::DropoutOptions(0.3)), rows});
  cases.push_back({"Dropout2d", maker<nn::Dropout2d>(nn::Dropout2dOptions(0.3)), images});
  cases.push_back({"AlphaDropout", maker<nn::AlphaDropout>(nn::AlphaDropoutOptions(0.3)), rows});
  cases.push_back(
      {"Upsample",
       maker<nn::Upsample>(
           nn::UpsampleOptions().scale_factor(std::vector<double>{2, 2}).mode(torch::kNearest)),
       images});
  cases.push_back({"PixelShuffle", maker<nn::PixelShuffle>(nn::PixelShuffleOptions(2)), images});
  cases.push_back({"Embedding", maker<nn::Embedding>(nn::EmbeddingOptions(10, 4)), [] {
                     return Tensors{at::randint(10, {3, 5})};
                   }});
  cases.push_back({"Flatten", maker<nn::Flatten>(), images});
  cases.push_back(
      {"ReflectionPad2d", maker<nn::ReflectionPad2d>(nn::ReflectionPad2dOptions(2)), images});
  cases.push_back({"ZeroPad2d", maker<nn::ZeroPad2d>(nn::ZeroPad2dOptions(1)), images});
  cases.push_back({"CosineSimilarity", maker<nn::CosineSimilarity>(), normal({{4, 5}, {4, 5}})});
  cases.push_back({"PairwiseDistance", maker<nn::PairwiseDistance>(), normal({{4, 5}, {4, 5}})});
}

void add_activations(std::vector<ModuleCase>& cases) {
  const auto rows = normal({{3, 8}});
  cases.push_back({"ReLU", maker<nn::ReLU>(), rows});
  cases.push_back({"ReLU6", maker<nn::ReLU6>(), rows});
  cases.push_back({"LeakyReLU", maker<nn::LeakyReLU>(), rows});
  cases.push_back({"RReLU", maker<nn::RReLU>(), rows});
  cases.push_back({"PReLU", maker<nn::PReLU>(), rows});
  cases.push_back({"ELU", maker<nn::ELU>(), rows});
  cases.push_back({"SELU", maker<nn::SELU>(), rows});
  cases.push_back({"CELU", maker<nn::CELU>(), rows});
  cases.push_back({"GELU", maker<nn::GELU>(), rows});
  cases.push_back({"GLU", maker<nn::GLU>(), rows});
  cases.push_back({"SiLU", maker<nn::SiLU>(), rows});
  cases.push_back({"Mish", maker<nn::Mish>(), rows});
  cases.push_back({"Sigmoid", maker<nn::Sigmoid>(), rows});
  cases.push_back({"LogSigmoid", maker<nn::LogSigmoid>(), rows});
  cases.push_back({"Softplus", maker<nn::Softplus>(), rows});
  cases.push_back({"Softshrink", maker<nn::Softshrink>(), rows});
  cases.push_back({"Softsign", maker<nn::Softsign>(), rows});
  cases.push_back({"Hardtanh", maker<nn::Hardtanh>(), rows});
  cases.push_back({"Hardshrink", maker<nn::Hardshrink>(), rows});
  cases.push_back({"Tanh", maker<nn::Tanh>(), rows});
  cases.push_back({"Tanhshrink", maker<nn::Tanhshrink>(), rows});
  cases.push_back({"Threshold", maker<nn::Threshold>(0.1, 20.), rows});
  cases.push_back({"Softmax", maker<nn::Softmax>(nn::SoftmaxOptions(1)), rows});
  cases.push_back({"Softmin", maker<nn::Softmin>(nn::SoftminOptions(1)), rows});
  cases.push_back({"LogSoftmax", maker<nn::LogSoftmax>(nn::LogSoftmaxOptions(1)), rows});
}

void add_losses(std::vector<ModuleCase>& cases) {
  const auto pair = normal({{4, 6}, {4, 6}});
  const auto classes = [] { return Tensors{at::randn({4, 6}), at::randint(6, {4})}; };
  const auto signs = [] {
    return Tensors{at::randn({4}), at::randn({4}), at::randint(2, {4}).to(at::kFloat) * 2 - 1};
  };
  cases.push_back({"L1Loss", maker<nn::L1Loss>(), pair});
  cases.push_back({"MSELoss", maker<nn::MSELoss>(), pair});
  cases.push_back({"SmoothL1Loss", maker<nn::SmoothL1Loss>(), pair});
  cases.push_back({"HuberLoss", maker<nn::HuberLoss>(), pair});
  cases.push_back({"KLDivLoss", maker<nn::KLDivLoss>(), pair});
  cases.push_back({"BCEWithLogitsLoss", maker<nn::BCEWithLogitsLoss>(), [] {
                     return Tensors{at::randn({4, 6}), at::rand({4, 6})};
                   }});
  cases.push_back({"BCELoss", maker<nn::BCELoss>(), [] {
                     return Tensors{at::rand({4, 6}), at::rand({4, 6})};
                   }});
  cases.push_back({"CrossEntropyLoss", maker<nn::CrossEntropyLoss>(), classes});
  cases.push_back({"NLLLoss", maker<nn::NLLLoss>(), classes});
  cases.push_back({"MultiMarginLoss", maker<nn::MultiMarginLoss>(), classes});
  cases.push_back({"PoissonNLLLoss", maker<nn::PoissonNLLLoss>(), pair});
  cases.push_back({"HingeEmbeddingLoss", maker<nn::HingeEmbeddingLoss>(), [] {
                     return Tensors{at::randn({4}), at::tensor({1., -1., 1., -1.}, at::kFloat)};
                   }});
  cases.push_back({"MarginRankingLoss", maker<nn::MarginRankingLoss>(), signs});
  cases.push_back(
      {"TripletMarginLoss", maker<nn::TripletMarginLoss>(), normal({{4, 6}, {4, 6}, {4, 6}})});
  cases.push_back({"SoftMarginLoss", maker<nn::SoftMarginLoss>(), [] {
                     return Tensors{at::randn({4}), at::tensor({1., -1., 1., -1.}, at::kFloat)};
                   }});
}

std::vector<ModuleCase> all_modules() {
  std::vector<ModuleCase> cases;
  add_layers(cases);
  add_activations(cases);
  add_losses(cases);
  return cases;
}

at::Tensor call(nn::AnyModule& module, const Tensors& in) {
  if (in.size() == 1) return module.forward(in[0]);
  if (in.size() == 2) return module.forward(in[0], in[1]);
  return module.forward(in[0], in[1], in[2]);
}

/// The first requires grad, if it can; what comes after may be a target.
Tensors arguments(const Tensors& inputs) {
  Tensors copies = with_grad({inputs[0]});
  for (size_t i = 1; i < inputs.size(); ++i) copies.push_back(inputs[i].clone());
  return copies;
}

void expect_module_like_eager(const ModuleCase& one, bool training) {
  SCOPED_TRACE(one.name + (training ? ", train" : ", eval"));
  torch::manual_seed(3);
  nn::AnyModule eager = one.make();
  torch::manual_seed(3);
  nn::AnyModule own = one.make();
  eager.ptr()->train(training);
  own.ptr()->train(training);
  auto compiled =
      compile(aot::FlatFunction([&](const Tensors& in) -> Tensors { return {call(own, in)}; }),
              {.fullgraph = true, .confirm = 0});
  for (int i = 0; i < 3; ++i) {
    torch::manual_seed(i);
    const Tensors inputs = one.inputs(), eager_in = arguments(inputs), own_in = arguments(inputs);
    torch::manual_seed(i);
    const at::Tensor expected = call(eager, eager_in);
    torch::manual_seed(i);
    const at::Tensor actual = compiled(own_in)[0];
    EXPECT_EQ(tensor_difference(expected, actual), "");
    expected.sin().sum().backward();
    actual.sin().sum().backward();
    for (size_t k = 0; k < inputs.size(); ++k)
      EXPECT_EQ(tensor_difference(eager_in[k].grad(), own_in[k].grad()), "") << "input " << k;
    const auto parameters = own.ptr()->parameters(), buffers = own.ptr()->buffers();
    for (size_t k = 0; k < parameters.size(); ++k)
      EXPECT_EQ(tensor_difference(eager.ptr()->parameters()[k].grad(), parameters[k].grad()), "");
    for (size_t k = 0; k < buffers.size(); ++k)
      EXPECT_EQ(tensor_difference(eager.ptr()->buffers()[k], buffers[k]), "");
  }
  expect_hits(compiled);
}

TEST(AotSweeps, test_aot_autograd_module_exhaustive) {
  for (const ModuleCase& one : all_modules()) {
    expect_module_like_eager(one, true);
    expect_module_like_eager(one, false);
  }
}

}  // namespace aot_28_sweeps_test
}  // namespace ahead::conformance
