#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>

#include "ahead/ahead.h"
#include "support/eager.h"

/// What each stage is given, makes and leaves behind.
namespace ahead {
namespace stages_test {

using at::Tensor;
using Tensors = std::vector<Tensor>;

aot::Executable run_by_interpreter(const Graph& graph) {
  auto interpreter = std::make_shared<const Interpreter>(graph);
  return [interpreter](Tensors&& args) { return (*interpreter)(std::move(args)); };
}

template <class C>
size_t count_programs(const C& compiled, const std::string& ending) {
  const std::vector<Program> programs = compiled.programs();
  return static_cast<size_t>(
      std::count_if(programs.begin(), programs.end(), [&](const Program& program) {
        const size_t length = program.name.size();
        return length > ending.size() &&
               program.name.compare(length - ending.size(), ending.size(), ending) == 0;
      }));
}

/// A backward in which a pass finds something to do.
Tensors twice_sigmoid(const Tensors& in) {
  return {in[0].sigmoid() * in[0].sigmoid()};
}

TEST(Stages, OfBackwardsAreKept) {
  auto compiled = aot::function(twice_sigmoid, {});
  const Tensor x = leaf({4});
  const Tensor y = compiled(Tensors{x})[0];
  const size_t before = count_programs(compiled, ".backward");
  EXPECT_EQ(before, 1u);  // as the partitioner cut it off
  y.sum().backward();
  const size_t expanded = count_programs(compiled, ".backward");
  EXPECT_GT(expanded, before);
  // A gradient that lies in another way is another backward.
  compiled(Tensors{x})[0].backward(at::rand({4}));
  EXPECT_GT(count_programs(compiled, ".backward"), expanded);
}

TEST(Stages, OfDerivativesAreKept) {
  auto compiled = aot::function(twice_sigmoid, {});
  const Tensor x = leaf({4});
  const Tensor gradient =
      torch::autograd::grad({compiled(Tensors{x})[0].sum()}, {x}, {}, true, true)[0];
  const size_t before = compiled.programs().size();
  gradient.sum().backward();
  EXPECT_GT(compiled.programs().size(), before);
}

TEST(Stages, CanBeSkippedByTheNamesThereAre) {
  try {
    compile(twice_sigmoid, {.skip_passes = {"eliminate_dead_code", "fuse_everything"}});
    FAIL() << "there is no such pass";
  } catch (const UserError& error) {
    EXPECT_NE(error.msg().find("\"fuse_everything\""), std::string::npos) << error.msg();
    EXPECT_NE(error.msg().find("clean_views"), std::string::npos) << error.msg();
  }
}

TEST(Stages, SkippedPassesAreSkippedInBackwardsToo) {
  Options options;
  for (const passes::Pass& pass : passes::all()) options.skip_passes.emplace_back(pass.name);
  aot::Config config;
  config.options = options;
  auto compiled = aot::function(twice_sigmoid, config);
  const Tensor x = leaf({4});
  compiled(Tensors{x})[0].sum().backward();
  EXPECT_EQ(count_programs(compiled, ".backward"),
            2u);  // as it was cut off, and as it was compiled
}

TEST(CompileRequest, SaysWhatABackendMayRelyOn) {
  const Tensor captured = at::rand({3});
  std::vector<std::string> names;
  size_t num_donated = 0;
  std::vector<bool> static_inputs;
  aot::Config config;
  config.forward = [&](const aot::CompileRequest& request) {
    names.push_back(request.name);
    static_inputs = request.static_inputs;
    EXPECT_EQ(request.inputs.size(), request.graph.inputs().size());
    EXPECT_EQ(request.target, at::Device(at::kCPU));
    return run_by_interpreter(request.graph);
  };
  config.backward = [&](const aot::CompileRequest& request) {
    names.push_back(request.name);
    EXPECT_EQ(request.donated.size(), request.graph.inputs().size());
    num_donated =
        static_cast<size_t>(std::count(request.donated.begin(), request.donated.end(), true));
    return run_by_interpreter(request.graph);
  };
  config.num_params_buffers = 1;
  config.options.partitioner = Partitioner::Default;
  auto compiled = aot::function(
      [captured](const Tensors& in) { return Tensors{(in[0] * in[1] * captured).exp().sin()}; },
      config);
  const Tensor weight = leaf({3}), x = leaf({3});
  compiled(Tensors{weight, x})[0].sum().backward();
  EXPECT_EQ(names,
            (std::vector<std::string>{"CompiledFunction.forward", "CompiledFunction.backward"}));
  EXPECT_EQ(static_inputs, (std::vector<bool>{true, false, true}));
  // What sin and exp saved is the node's alone.
  EXPECT_GE(num_donated, 1u);
}

TEST(CompileRequest, IsNotNeededByBackendsThatTakeGraphs) {
  const aot::GraphCompiler none, of_graph = [](const Graph&graph, const std::vector<TensorMeta>&) {
    return run_by_interpreter(graph);
  };
  EXPECT_FALSE(none);
  EXPECT_TRUE(of_graph);
  auto compiled = aot::function(twice_sigmoid, {.forward = of_graph});
  const Tensor x = leaf({4});
  EXPECT_TRUE(compiled(Tensors{x})[0].equal(twice_sigmoid({x})[0]));
}

}  // namespace stages_test
}  // namespace ahead
