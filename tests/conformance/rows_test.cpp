#include <ATen/FunctionalTensorWrapper.h>
#include <unistd.h>

#include <fstream>
#include <set>
#include <utility>

#include "conformance/aot_support.h"
#include "trace/tensor/fake_tensor.h"

/// Rows of the specification that no one of upstream's tests shows.
namespace ahead::conformance {
namespace rows_test {

std::vector<std::string> names_of(const std::vector<Program>& programs) {
  std::vector<std::string> names;
  for (const Program& program : programs) names.push_back(program.name);
  return names;
}

/// T01: one straight order. What is traced is functional, has mutations as leading outputs and the
/// gradient behind the forward; then it is cut, rewritten and compiled.
TEST(Rows, TransformsInOrder) {
  const auto f = [](const at::Tensor& x, at::Tensor y) {
    y.mul_(2);
    const at::Tensor z = x.sin();
    z.mul_(3);
    return z.sum() + y.sum();
  };
  auto compiled = compile(f, {.fullgraph = true,
                              .partitioner = Partitioner::Default,
                              .confirm = Confirm::Never,
                              .lazy_backward = false});
  compiled(leaf({3}), torch::randn({3}));
  const std::vector<Program> programs = compiled.programs();
  const std::vector<std::string> names = names_of(programs);
  const auto place = [&](const std::string& name) {
    const auto found = std::find(names.begin(), names.end(), name);
    EXPECT_NE(found, names.end()) << name;
    return found - names.begin();
  };
  EXPECT_EQ(place("trace"), 0);
  EXPECT_LT(place("trace"), place("partition.forward"));
  EXPECT_LT(place("partition.forward"), place("partition.backward"));
  EXPECT_LT(place("partition.backward"), place("keep_mutations.forward"));
  EXPECT_LT(place("keep_mutations.forward"), place("backend.forward"));

  const Graph& joint = *programs[0].graph;
  EXPECT_EQ(input_slots(joint), "Primal 0, Primal 1, Tangent 1");
  EXPECT_EQ(output_slots(joint), "MutatedInput 1, Output 0, GradOf 0");
  bool is_backward = false;
  for (const Node& node : joint.nodes()) {
    EXPECT_FALSE(node.op().schema().is_mutable()) << node.op().name();
    EXPECT_FALSE(is_backward && node.phase == Phase::Forward) << node.op().name();
    is_backward = node.phase == Phase::Backward;
  }
  EXPECT_TRUE(is_backward);

  const at::Tensor x = leaf({3}), y = torch::randn({3}), own = y.clone();
  const at::Tensor loss = compiled(x, y), expected = f(x, own);
  expect_same({expected.detach(), own, torch::autograd::grad({expected}, {x})[0]},
              {loss.detach(), y, torch::autograd::grad({loss}, {x})[0]});
  expect_hits(compiled);
}

/// D09: whatever the function writes to, its graphs write to inputs only, with copy_, once each.
/// A pass may have operators that make the new contents work on the input itself.
TEST(Rows, GraphsAreFunctional) {
  const auto f = [](const at::Tensor& x, at::Tensor y, at::Tensor z) {
    at::Tensor a = x * 2;
    a.mul_(1.5);
    a.select(0, 0).mul_(3);
    a.t().add_(1);
    y.mul_(a.detach());
    y.select(0, 1).zero_();
    z.copy_(y.sum(1));
    z.exp_();
    return a + y;
  };
  for (const bool in_graph : {false, true}) {
    auto compiled = compile(f, {.fullgraph = true,
                                .confirm = Confirm::Never,
                                .skip_passes = {"reinplace_mutations"},
                                .keep_input_mutations = in_graph,
                                .lazy_backward = false});
    const auto make = [] { return Tensors{leaf({2, 2}), torch::randn({2, 2}), torch::randn({2})}; };
    const Tensors first = make();
    compiled(first[0], first[1], first[2]);
    for (const Program& program : compiled.programs()) {
      std::multiset<const Value*> written;
      for (const Node& node : program.graph->nodes()) {
        if (!node.op().schema().is_mutable()) continue;
        EXPECT_EQ(node.op().name(), "aten.copy_") << program.name;
        const Value* target = node.args()[0].value();
        EXPECT_EQ(target->producer(), nullptr) << program.name;
        EXPECT_EQ(written.count(target), 0u) << program.name;
        written.insert(target);
      }
      const bool is_last = program.name == "backend.forward";
      if (is_last || !in_graph) {
        EXPECT_EQ(written.size(), in_graph ? 2u : 0u) << program.name << "\n" << program.str();
      }
    }
    const Tensors inputs = make();
    Tensors own;
    for (const at::Tensor& input : inputs) own.push_back(input.detach().clone());
    const at::Tensor expected = f(own[0], own[1], own[2]);
    expect_same({expected}, {compiled(inputs[0], inputs[1], inputs[2]).detach()});
    expect_same({own[1], own[2]}, {inputs[1], inputs[2]});
    expect_hits(compiled);
  }
}

/// D13: what is printed, kept and written to files has strides, offsets and devices.
TEST(Rows, ProgramsShowStridesAndDevices) {
  const auto f = [](const at::Tensor& x) { return x.t().contiguous().sin(); };
  const std::string folder =
      testing::TempDir() + "ahead_rows_" + std::to_string(::getpid()) + "/programs";
  auto compiled = compile(f, {.fullgraph = true, .confirm = Confirm::Never, .dump_folder = folder});
  compiled(torch::randn({2, 5}).slice(1, 1, 4));
  const std::vector<Program> programs = compiled.programs();
  ASSERT_FALSE(programs.empty());
  EXPECT_EQ(programs[0].name, "trace");
  EXPECT_NE(programs[0].str().find("%0: f32[2, 3]{5, 1}+1 Primal 0"), std::string::npos)
      << programs[0].str();
  EXPECT_NE(programs[0].str().find("f32[3, 2]{1, 5}+1 = aten.t"), std::string::npos)
      << programs[0].str();
  EXPECT_EQ(Graph::parse(programs[0].str()).hash(), programs[0].graph->hash());
  std::string path;
  for (int number = 0; number < 100 && path.empty(); ++number) {
    char name[64];
    std::snprintf(name, sizeof(name), "/%03d_CompiledFunction/000_trace.graph", number);
    if (std::ifstream(folder + name)) path = folder + name;
  }
  std::ifstream file(path);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  EXPECT_EQ(text, programs[0].graph->str()) << folder;
  const Graph cuda = Graph::parse(
      "graph(%0: f32[2, 3]{1, 2} @cuda:1 Primal 0):\n"
      "  %1: f32[2, 3]{1, 2} @cuda:1 = aten.sin(%0)\n"
      "  return (%1 Output 0)\n");
  EXPECT_NE(cuda.str().find("f32[2, 3]{1, 2} @cuda:1 = aten.sin"), std::string::npos);
}

/// D18: nothing that lives on after a trace holds a traced tensor: neither modules, nor graphs.
TEST(Rows, NoTracedTensorsStayBehind) {
  torch::nn::Sequential module(torch::nn::Linear(3, 4), torch::nn::BatchNorm1d(4),
                               torch::nn::Linear(4, 2));
  const auto expect_real = [&](const std::string& when) {
    for (const Tensors& tensors : {module->parameters(), module->buffers()}) {
      for (const at::Tensor& tensor : tensors) {
        EXPECT_FALSE(tracing::is_fake(tensor)) << when;
        EXPECT_FALSE(at::functionalization::impl::isFunctionalTensor(tensor)) << when;
        EXPECT_NE(tensor.data_ptr(), nullptr) << when;
        EXPECT_FALSE(tensor.grad().defined()) << when;
      }
    }
  };
  const at::Tensor x = torch::randn({5, 3});
  const JointGraph joint =
      trace_joint([&](const at::Tensor& in) { return module->forward(in).sum(); }, x);
  expect_real("after a trace");
  size_t num_captured = 0;
  for (const Graph::Input& input : joint.inputs()) {
    if (input.slot.kind != Slot::Kind::Captured) continue;
    ++num_captured;
    EXPECT_FALSE(tracing::is_fake(input.captured));
    EXPECT_FALSE(at::functionalization::impl::isFunctionalTensor(input.captured));
  }
  EXPECT_EQ(num_captured, 9u);
  EXPECT_THROW(
      trace([&](const at::Tensor& in) { return in * module->forward(in).sum().item<float>(); }, x),
      DataDependent);
  expect_real("after a trace that failed");
  auto compiled = aot::module(module.ptr(), {});
  compiled(x).sum();
  expect_real("once it is compiled");

  // A module that holds a tensor of another trace is refused.
  struct HoldingImpl : torch::nn::Module {
    at::Tensor forward(const at::Tensor& in) { return in + held; }
    at::Tensor held;
  };
  auto holding = std::make_shared<HoldingImpl>();
  trace_with(
      {.allow_escapes = true}, [&](const at::Tensor& in) { return holding->held = in * 2; }, x);
  const std::string said = error_of([&] { aot::module(holding, {})(x); });
  EXPECT_NE(said.find("aten.add.Tensor: tensors of two different traces meet"), std::string::npos)
      << said;
}

/// R30: arguments that are written to and share memory are views of one tensor to autograd, or they
/// are refused; without grad any two of them are merged.
TEST(Rows, DifferentiableViews) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    in[0].mul_(2);
    return {(in[0] * in[1]).sum()};
  };
  using Views = std::function<Tensors(const at::Tensor&)>;
  const std::vector<std::pair<const char*, Views>> related{
      {"the same object",
       [](const at::Tensor& base) {
         return Tensors{base, base};
       }},
      {"one base",
       [](const at::Tensor& base) {
         return Tensors{base.t(), base.view({2, 2})};
       }},
      {"the second is the base",
       [](const at::Tensor& base) {
         return Tensors{base.t(), base};
       }},
      {"the first is the base",
       [](const at::Tensor& base) {
         return Tensors{base, base.t()};
       }},
  };
  for (const auto& [name, views] : related) {
    SCOPED_TRACE(name);
    const auto compiled = aot::function(f, {});
    const at::Tensor start = leaf({2, 2}), other = start.detach().clone().requires_grad_();
    const at::Tensor expected = f(views(as_non_leaf(start)))[0];
    const at::Tensor result = compiled(views(as_non_leaf(other)))[0];
    expect_same({expected.detach()}, {result.detach()});
    expect_same(torch::autograd::grad({expected}, {start}),
                torch::autograd::grad({result}, {other}));
    EXPECT_EQ(compiled.stats().eager_calls, 0u);
  }
  // Autograd knows nothing of what these two have in common.
  const auto unrelated = [] {
    const at::Tensor first = as_non_leaf(leaf({2, 2}));
    return Tensors{first, first.detach().requires_grad_()};
  };
  const std::string said = error_of([&] { aot::function(f, {})(unrelated()); });
  EXPECT_NE(said.find("those that require grad have different ._base tensors"), std::string::npos)
      << said;
  const torch::NoGradGuard no_grad;
  const auto compiled = aot::function(f, {});
  const Tensors inputs = unrelated();
  const at::Tensor expected = (inputs[0] * 2).square().sum();
  expect_same({expected}, compiled(inputs));
  EXPECT_EQ(compiled.stats().eager_calls, 0u);
}

/// R42: a backward that is not retained owns what was saved, and frees each after its last use.
TEST(Rows, SavedTensorsAreFreedEarly) {
  struct Seen {
    std::vector<size_t> owners;
    std::vector<bool> freed;
  } seen;
  aot::Config config;
  config.forward = [](const Graph& graph, const std::vector<TensorMeta>&) {
    auto interpreter = std::make_shared<Interpreter>(graph);
    return aot::Executable(
        [interpreter](Tensors&& arguments) { return (*interpreter)(std::move(arguments)); });
  };
  config.backward = [&seen](const Graph& graph, const std::vector<TensorMeta>&) {
    auto interpreter = std::make_shared<Interpreter>(graph);
    std::vector<size_t> saved;
    for (size_t i = 0; i < graph.inputs().size(); ++i) {
      if (graph.inputs()[i].slot.kind == Slot::Kind::Saved) saved.push_back(i);
    }
    return aot::Executable([&seen, interpreter, saved](Tensors&& arguments) {
      seen = {};
      std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> watched;
      for (const size_t i : saved) {
        seen.owners.push_back(arguments[i].use_count());
        watched.emplace_back(arguments[i].getIntrusivePtr());
      }
      Tensors results = (*interpreter)(std::move(arguments));
      for (const auto& tensor : watched) seen.freed.push_back(tensor.expired());
      return results;
    });
  };
  // The backward of exp needs its results only, none of which is an argument or a result.
  const auto compiled =
      aot::function([](const Tensors& in) -> Tensors { return {in[0].exp().exp().sum()}; }, config);
  const at::Tensor x = leaf({3});
  const at::Tensor loss = compiled(Tensors{x})[0];
  loss.backward({}, /*retain_graph=*/true);
  ASSERT_EQ(seen.owners.size(), 2u);
  EXPECT_EQ(seen.freed, (std::vector<bool>{false, false}));
  loss.backward();
  EXPECT_EQ(seen.owners, (std::vector<size_t>{1, 1}));
  EXPECT_EQ(seen.freed, (std::vector<bool>{true, true}));
  EXPECT_EQ(compiled.stats().eager_calls, 0u);
}

/// M21: a view that is alone on the memory of an intermediate, or the only one besides views that
/// come from one operator, behaves as in eager; one that eager makes without telling autograd is a
/// plain result.
TEST(Rows, ViewsThatAreAloneOnAnIntermediate) {
  const aot::FlatFunction alone = [](const Tensors& in) -> Tensors {
    return {(in[0] * 3).view({-1})};
  };
  const aot::FlatFunction beside_parts = [](const Tensors& in) -> Tensors {
    const at::Tensor y = in[0] * 3;
    const Tensors rows = y.unbind(0);
    return {rows[0], rows[1], y.view({-1})};
  };
  const aot::FlatFunction parts = [](const Tensors& in) -> Tensors {
    return (in[0] * 3).split(1, 0);
  };
  for (const aot::FlatFunction& f : {alone, beside_parts, parts})
    expect_with_and_without_grad(f, {torch::randn({2, 3})});
  const auto compiled = compiled_once(beside_parts, {leaf({2, 3})});
  EXPECT_EQ(output_slots(program(compiled, "partition.forward")), "IntermediateBase 0");

  // matmul reshapes its result by _unsafe_view.
  const aot::FlatFunction product = [](const Tensors& in) -> Tensors {
    return {in[0].matmul(in[1])};
  };
  const Tensors factors{torch::randn({2, 3, 4}), torch::randn({4, 5})};
  EXPECT_FALSE(product(factors)[0].is_view());
  expect_with_and_without_grad(product, factors);
  const auto by_product = compiled_once(product, with_grad(factors));
  const Graph forward = program(by_product, "partition.forward");
  EXPECT_EQ(forward.outputs()[0].slot.str(), "Output 0");
  EXPECT_EQ(forward.find_output({Slot::Kind::IntermediateBase, 0}), -1);
}

}  // namespace rows_test
}  // namespace ahead::conformance
