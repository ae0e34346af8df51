#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "ahead/ahead.h"
#include "export/modules.h"
#include "support/eager.h"
#include "support/new_process.h"

namespace ahead::exported_modules {
namespace archive_test {

using aot::ExportedModule;
using Tensors = std::vector<at::Tensor>;

std::string folder_of(const std::string& name) {
  return ::testing::TempDir() + "ahead_export_" + name;
}

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream all;
  all << file.rdbuf();
  return all.str();
}

void overwrite(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

Tensors batch() {
  torch::manual_seed(21);
  return {torch::randn({6, 8}), torch::randint(4, {6})};
}

/// What a file holds besides: results that the other process has to find as well.
void save_expected(const Tensors& results, const std::string& path) {
  torch::save(results, path);
}

bool all_same(const Tensors& expected, const Tensors& actual) {
  if (expected.size() != actual.size()) return false;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (!same_bits(expected[i], actual[i])) return false;
  }
  return true;
}

Tensors results_of(const ExportedModule& exported) {
  const aot::ExportedFunction function = exported.prepare();
  torch::manual_seed(4);
  Tensors all;
  for (int step = 0; step < 2; ++step) {
    const auto results = function.run(batch());
    all.insert(all.end(), results.outputs.begin(), results.outputs.end());
    const torch::NoGradGuard no_grad;
    for (const auto& [name, gradient] : results.gradients) {
      all.push_back(gradient);
      exported.tensor(name).sub_(gradient, 0.1);
    }
  }
  for (const at::Tensor& tensor : exported.tensors) all.push_back(tensor.detach());
  return all;
}

TEST(ExportArchive, TrainsInAnotherProcess) {
  const std::string folder = folder_of("training");
  Classifier module;
  const ExportedModule exported = aot::export_module(
      module, batch(),
      {.trace_joint = true, .output_loss_index = 0, .output_names = {"loss", "y"}});
  exported.save(folder);
  save_expected(results_of(exported), folder + "/expected.pt");
  test::expect_in_new_process([folder] {
    Tensors expected;
    torch::load(expected, folder + "/expected.pt");
    const ExportedModule loaded = ExportedModule::load(folder);
    return loaded.signature.user_outputs() == std::vector<std::string>{"loss", "y"} &&
           loaded.tensor("first.weight").requires_grad() &&
           !loaded.tensor("norm.running_mean").requires_grad() &&
           all_same(expected, results_of(loaded));
  });
}

TEST(ExportArchive, RunsFromTextAndTensorsAlone) {
  const std::string folder = folder_of("parts");
  Counting module;
  const at::Tensor x = torch::arange(12, torch::kFloat).reshape({4, 3});
  const ExportedModule exported = aot::export_module(module, {x});
  exported.save(folder);
  save_expected({module->forward(x).detach()}, folder + "/expected.pt");
  overwrite(folder + "/graph.txt", exported.graph.str());
  test::expect_in_new_process([folder] {
    Tensors expected, tensors;
    torch::load(expected, folder + "/expected.pt");
    torch::load(tensors, folder + "/tensors.pt");
    tensors.push_back(torch::arange(12, torch::kFloat).reshape({4, 3}));
    const Tensors made = interpret(Graph::parse(contents(folder + "/graph.txt")), tensors);
    return all_same(expected, {made.back()});
  });
}

TEST(ExportArchive, ReadsBackWhatWasWritten) {
  Tied module;
  const Tensors inputs{torch::randint(12, {2, 5}), torch::randint(12, {2, 5})};
  const ExportedModule exported =
      aot::export_module(module, inputs, {.trace_joint = true, .output_loss_index = 0});
  const std::string folder = folder_of("again");
  exported.save(folder);
  exported.save(folder);  // over the first
  const ExportedModule loaded = ExportedModule::load(folder);
  EXPECT_EQ(loaded.signature, exported.signature);
  EXPECT_EQ(loaded.graph.str(), exported.graph.str());
  EXPECT_EQ(loaded.tensors.size(), exported.tensors.size());
  expect_same({exported(inputs)}, {loaded(inputs)});
}

TEST(ExportArchive, TensorsThatShareMemoryShareItAgain) {
  const at::Tensor x = torch::rand({2, 3});
  const std::string folder = folder_of("alias");
  struct AliasImpl : torch::nn::Module {
    AliasImpl() : weight(register_parameter("weight", torch::rand({3}))) {}
    at::Tensor forward(const at::Tensor& in) { return in * weight + weight.data() * 2; }
    at::Tensor weight;
  };
  auto module = std::make_shared<AliasImpl>();
  const ExportedModule exported = aot::export_module(module, {x});
  exported.save(folder);
  const ExportedModule loaded = ExportedModule::load(folder);
  ASSERT_EQ(loaded.signature.constants().size(), 1u);
  EXPECT_TRUE(loaded.tensor("constant0").is_alias_of(loaded.tensor("weight")));
  const torch::NoGradGuard no_grad;
  module->weight.mul_(3);
  loaded.tensor("weight").mul_(3);
  expect_same({module->forward(x)}, loaded({x}));
  expect_same({module->forward(x)}, exported({x}));
}

TEST(ExportArchive, ModulesWithoutTensors) {
  const std::string folder = folder_of("empty");
  torch::nn::ReLU module;
  const at::Tensor x = torch::randn({3});
  aot::export_module(module, {x}).save(folder);
  expect_same({x.relu()}, ExportedModule::load(folder)({x}));
}

TEST(ExportArchive, DamageIsNoticed) {
  const std::string folder = folder_of("damage"), text = folder + "/program.txt",
                    tensors = folder + "/tensors.pt";
  torch::nn::Linear module(3, 2);
  aot::export_module(module, {torch::randn({4, 3})}).save(folder);
  const std::string good_text = contents(text), good_tensors = contents(tensors);
  const auto complaint = [&] {
    const std::string said = error_of([&] { ExportedModule::load(folder); });
    overwrite(text, good_text);
    overwrite(tensors, good_tensors);
    return said;
  };
  const auto expect_says = [&](const std::string& words) {
    const std::string said = complaint();
    EXPECT_NE(said.find(words), std::string::npos) << said;
  };
  ASSERT_NE(good_text.find("format 1"), std::string::npos);

  std::string bad = good_text;
  bad.replace(bad.find("format 1"), 8, "format 2");
  overwrite(text, bad);
  expect_says("its format is 2, and this is ahead " + std::string(version()));

  bad = good_text;
  bad[bad.rfind("Output 0") + 7] = '1';
  overwrite(text, bad);
  expect_says("it is damaged: its contents are not what was written");

  overwrite(text, good_text.substr(0, good_text.size() / 2));
  expect_says("it is damaged: its contents are not what was written");

  overwrite(text, good_text.substr(0, good_text.find('\n') + 8));
  expect_says("its second line is damaged");

  overwrite(text, "something else");
  expect_says("this is no exported module");

  bad = good_tensors;
  bad[bad.size() / 2] = static_cast<char>(bad[bad.size() / 2] ^ 1);
  overwrite(tensors, bad);
  expect_says("it is missing or damaged: it is not what was written");

  std::remove(tensors.c_str());
  expect_says("it is missing or damaged: it is not what was written");

  std::remove(text.c_str());
  expect_says("program.txt: it cannot be read");

  EXPECT_EQ(complaint(), "") << "nothing is wrong with the files themselves";
}

TEST(ExportArchive, WhatCannotBeSaved) {
  struct DrawingImpl : torch::nn::Module {
    at::Tensor forward(const at::Tensor& x) { return x * at::bernoulli(x, 0.5, generator); }
    at::Generator generator = at::detail::createCPUGenerator();
  };
  const ExportedModule exported =
      aot::export_module(std::make_shared<DrawingImpl>(), {torch::rand({3})});
  EXPECT_NE(error_of([&] {
              exported.save(folder_of("generator"));
            }).find("which lives in this process only"),
            std::string::npos);
  torch::nn::ReLU relu;
  EXPECT_NE(error_of([&] {
              aot::export_module(relu, {torch::rand({3})}).save("/proc/nowhere/folder");
            }).find("Save to another folder"),
            std::string::npos);
}

}  // namespace archive_test
}  // namespace ahead::exported_modules
