#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>

#include "ahead/interpret.h"
#include "native/backend.h"
#include "native/fuse/fuse.h"
#include "native/fuse/slice_operands.h"

namespace ahead::native {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;

size_t count(const Graph& graph, const std::string& name) {
  size_t found = 0;
  for (const Node& node : graph.nodes()) found += node.op().name() == name ? 1 : 0;
  return found;
}

/// Random tensors for the inputs of a graph.
Tensors arguments_of(const Graph& graph) {
  torch::manual_seed(0);
  Tensors arguments;
  for (const Graph::Input& input : graph.inputs()) {
    const Dims& sizes = input.value->meta.sizes;
    const Tensor wide = torch::randn(at::IntArrayRef(sizes), at::kDouble) * 3;
    arguments.push_back(wide.to(input.value->meta.dtype));
  }
  return arguments;
}

void expect_same_bits(const Tensors& actual, const Tensors& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(actual[i].scalar_type(), expected[i].scalar_type());
    EXPECT_TRUE(torch::equal(actual[i], expected[i])) << "result " << i;
  }
}

/// Slices the operands of a graph, whose results stay the same to the bit. Returns how many nodes
/// with this name are left.
size_t left_after_slicing(const std::string& text, const std::string& name, bool changes = true) {
  const Graph graph = Graph::parse(text);
  Graph sliced(graph);
  EXPECT_NE(slice_operands(sliced).empty(), changes) << sliced.str();
  sliced.verify();
  expect_same_bits(interpret(sliced, arguments_of(graph)), interpret(graph, arguments_of(graph)));
  Graph again(sliced);
  EXPECT_TRUE(slice_operands(again).empty());
  return count(sliced, name);
}

/// The gradients of states that were stacked, and what is made of each; of two dtypes.
std::string stacked(const std::string& dtype, const std::string& dim) {
  const std::string row = dtype + "[5, 7]", all = dtype + "[3, 5, 7]";
  return "\ngraph(%0: " + row + " Primal 0, %1: " + row + " Primal 1, %2: " + row +
         " Primal 2, %3: " + dtype + "[] Primal 3, %4: " + dtype + "[7] Primal 4):\n  %5: " + all +
         " = aten.stack([%0, %1, %2], " + dim + ")\n  %6: " + all +
         "{0, 0, 0} = aten.expand(%3, [3, 5, 7], false)\n  %7: " + all +
         " = aten.mul.Tensor(%6, %5)\n  %8: " + all + " = aten.add.Tensor(%7, %4, 1)\n  %9: " + row +
         " = aten.select.int(%8, 0, 0)\n  %10: " + row +
         "+35 = aten.select.int(%8, 0, 1)\n  %11: " + row +
         "+70 = aten.select.int(%8, -3, -1)\n  %12: " + row +
         " = aten.neg(%9)\n  %13: " + row + " = aten.mul.Tensor(%10, %12)\n  %14: " + row +
         " = aten.add.Tensor(%11, %13, 1)\n  return (%14 Output 0, %12 Output 1)\n";
}

TEST(SliceOperands, TheSlicesOfAStackAreItsOperands) {
  for (const char* dtype : {"f32", "f64", "bf16", "f16", "i64"}) {
    SCOPED_TRACE(dtype);
    EXPECT_EQ(left_after_slicing(stacked(dtype, "0"), "aten.stack"), 0u);
    EXPECT_EQ(left_after_slicing(stacked(dtype, "-3"), "aten.stack"), 0u);
  }
}

TEST(SliceOperands, ThePartsOfACatAreItsOperands) {
  const std::string text = R"(
graph(%0: f32[2, 9] Primal 0, %1: f32[3, 9] Primal 1, %2: f32[5, 1] Primal 2):
  %3: f32[5, 9] = aten.cat([%0, %1], 0)
  %4: f32[5, 9] = aten.mul.Tensor(%3, %2)
  %5: f32[2, 9] = aten.slice.Tensor(%4, 0, 0, 2, 1)
  %6: f32[3, 9]+18 = aten.slice.Tensor(%4, 0, 2, 9223372036854775807, 1)
  %7: f32[2, 9] = aten.exp(%5)
  %8: f32[3, 9] = aten.neg(%6)
  return (%7 Output 0, %8 Output 1)
)";
  EXPECT_EQ(left_after_slicing(text, "aten.cat"), 0u);
}

TEST(SliceOperands, OtherPartsOfACatAreSlicesOfIt) {
  const std::string text = R"(
graph(%0: f32[2, 9] Primal 0, %1: f32[3, 9] Primal 1, %2: f32[1, 9] Primal 2):
  %3: f32[5, 9] = aten.cat([%0, %1], 0)
  %4: f32[5, 9] = aten.mul.Tensor(%3, %2)
  %5: f32[1, 9] = aten.slice.Tensor(%4, 0, -5, 1, 1)
  %6: f32[3, 9]+9 = aten.slice.Tensor(%4, 0, 1, 4, 1)
  %7: f32[1, 9] = aten.exp(%5)
  %8: f32[3, 9] = aten.neg(%6)
  return (%7 Output 0, %8 Output 1)
)";
  EXPECT_EQ(left_after_slicing(text, "aten.cat"), 1u);
}

/// A function of a tensor of 4 rows, of which slices are read.
std::string sliced(const std::string& slices, const std::string& outputs) {
  return "\ngraph(%0: f32[4, 6] Primal 0):\n  %1: f32[4, 6] = aten.exp(%0)\n" + slices +
         "  return (" + outputs + ")\n";
}

TEST(SliceOperands, NotWhatIsComputedTwiceOrWanted) {
  const std::string first = "  %2: f32[2, 6] = aten.slice.Tensor(%1, 0, 0, 2, 1)\n",
                    used = "  %4: f32[2, 6] = aten.neg(%2)\n  %5: f32[2, 6] = aten.sin(%3)\n";
  const auto left = [&](const std::string& second, const std::string& outputs, bool changes) {
    left_after_slicing(sliced(first + second + used, outputs), "aten.exp", changes);
  };
  const std::string both = "%4 Output 0, %5 Output 1";
  left("  %3: f32[2, 6]+12 = aten.slice.Tensor(%1, 0, 2, 4, 1)\n", both, true);
  left("  %3: f32[2, 6]+6 = aten.slice.Tensor(%1, 0, 1, 3, 1)\n", both, false);  // they overlap
  left("  %3: f32[2, 6]{12, 1} = aten.slice.Tensor(%1, 0, 0, 4, 2)\n", both, false);  // by steps
  left("  %3: f32[2, 6]+12 = aten.slice.Tensor(%1, 0, 2, 4, 1)\n", both + ", %1 Output 2", false);
  left("  %3: f32[2, 6]+12 = aten.slice.Tensor(%1, 0, 2, 4, 1)\n", both + ", %3 Output 2", false);
  // Slices that lie in rows with gaps, and one that a view is made of.
  left_after_slicing(sliced("  %2: f32[4, 2]{6, 1} = aten.slice.Tensor(%1, 1, 0, 2, 1)\n"
                            "  %3: f32[4, 2] = aten.neg(%2)\n",
                            "%3 Output 0"),
                     "aten.exp", false);
  left_after_slicing(sliced("  %2: f32[6]+6 = aten.select.int(%1, 0, 1)\n"
                            "  %3: f32[2, 3]+6 = aten.view(%2, [2, 3])\n"
                            "  %4: f32[2, 3] = aten.neg(%3)\n",
                            "%4 Output 0"),
                     "aten.exp", false);
}

// Computing late.

/// Runs a graph by kernels and operator by operator.
void expect_like_interpreter(const Graph& graph) {
  const Tensors arguments = arguments_of(graph), expected = interpret(graph, arguments);
  aot::Executable run = compile({graph, {}});
  for (int call = 0; call < 2; ++call) {
    Tensors given(arguments);
    const Tensors actual = run(std::move(given));
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_TRUE(torch::allclose(actual[i], expected[i], 1e-5, 1e-5, /*equal_nan=*/true))
          << "result " << i;
  }
}

/// The kernels of a graph.
std::vector<const Graph*> kernels_of(const FusedGraph& fused) {
  std::vector<const Graph*> kernels;
  for (const Node& node : fused.graph.nodes()) {
    if (!node.op().in_dispatcher()) kernels.push_back(node.args()[0].graph().get());
  }
  return kernels;
}

size_t count_in(const std::vector<const Graph*>& kernels, const std::string& name) {
  size_t found = 0;
  for (const Graph* kernel : kernels) found += count(*kernel, name);
  return found;
}

/// Saved gates, of which a backward computes activations again; products stand between its steps.
constexpr const char* gates = R"(
graph(%0: f32[6, 16] Saved 0, %1: f32[6, 16] Saved 1, %2: f32[8, 8] Primal 2):
  %4: f32[6, 8]{16, 1} = aten.slice.Tensor(%0, 1, 0, 8, 1)
  %5: f32[6, 8]{16, 1}+8 = aten.slice.Tensor(%0, 1, 8, 16, 1)
  %6: f32[6, 8]{16, 1} = aten.slice.Tensor(%1, 1, 0, 8, 1)
  %7: f32[6, 8]{16, 1}+8 = aten.slice.Tensor(%1, 1, 8, 16, 1)
  %8: f32[6, 8] = aten.sigmoid(%4)
  %9: f32[6, 8] = aten.tanh(%5)
  %10: f32[6, 8] = aten.mul.Tensor(%8, %9)
  %11: f32[6, 8] = aten.sigmoid(%6)
  %12: f32[6, 8] = aten.tanh(%7)
  %13: f32[6, 8] = aten.mul.Tensor(%11, %10)
  %14: f32[6, 8] = aten.add.Tensor(%13, %12, 1)
  %15: f32[6, 8] = aten.tanh(%14)
  %16: f32[6, 8] = aten.mm(%15, %2)
  %17: f32[6, 8] = aten.mul.Tensor(%11, %12)
  %18: f32[6, 8] = aten.tanh_backward(%16, %15)
  %19: f32[6, 8] = aten.mul.Tensor(%18, %17)
  %20: f32[6, 8] = aten.mul.Tensor(%18, %11)
  %21: f32[6, 8] = aten.tanh_backward(%18, %12)
  %22: f32[6, 8] = aten.mm(%20, %2)
  %23: f32[6, 8] = aten.mul.Tensor(%22, %8)
  %24: f32[6, 8] = aten.tanh_backward(%23, %9)
  %25: f32[6, 8] = aten.mul.Tensor(%23, %10)
  return (%19 Output 0, %21 Output 1, %24 Output 2, %25 Output 3)
)";

TEST(ComputeLate, StepByStep) {
  for (const char* dtype : {"f32", "f64"}) {
    std::string text = gates;
    for (size_t at = 0; (at = text.find("f32", at)) != std::string::npos; ++at)
      text.replace(at, 3, dtype);
    const Graph graph = Graph::parse(text);
    const FusedGraph fused = fuse(graph);
    fused.graph.verify();
    // The first one wrote six results; now it writes the one that a product reads.
    const auto kernels = kernels_of(fused);
    ASSERT_EQ(kernels.size(), 3u) << fused.graph.str();
    EXPECT_EQ(kernels[0]->outputs().size(), 1u) << fused.graph.str();
    EXPECT_EQ(count_in(kernels, "aten.sigmoid"), 4u);
    expect_like_interpreter(graph);
  }
}

TEST(ComputeLate, NotStrictly) {
  const Graph graph = Graph::parse(gates);
  const auto kernels = kernels_of(fuse(graph, {}, /*strict=*/true));
  EXPECT_GT(count_in(kernels, "aten.tanh"), 0u);
  EXPECT_LE(count_in(kernels, "aten.tanh"), count(graph, "aten.tanh"));
}

/// A function of two saved tensors that a kernel makes, with `last` and a sum of it, and what is
/// made of both behind a product.
size_t results_of_first_kernel(const std::string& slot, const std::string& last) {
  const Graph graph = Graph::parse("\ngraph(%0: f32[8, 8] " + slot + " 0, %1: f32[8, 8] " + slot +
                                   R"( 1):
  %2: f32[8, 8] = aten.add.Tensor(%0, %1, 1)
  %3: f32[8, 8] = )" + last + R"(
  %4: f32[8, 8] = aten.mul.Tensor(%2, 2.0)
  %5: f32[8, 8] = aten.neg(%3)
  %6: f32[8, 8] = aten.mm(%5, %1)
  %7: f32[8, 8] = aten.mul.Tensor(%6, %3)
  %8: f32[8, 8] = aten.add.Tensor(%7, %4, 1)
  %9: f32[8, 8] = aten.sub.Tensor(%8, %2, 1)
  return (%9 Output 0)
)");
  expect_like_interpreter(graph);
  const FusedGraph fused = fuse(graph);
  return kernels_of(fused).at(0)->outputs().size();
}

TEST(ComputeLate, WhereLessIsKept) {
  // Both operands belong to the caller.
  EXPECT_EQ(results_of_first_kernel("Primal", "aten.relu(%2)"), 1u);
  // Instead of three results two operands are kept, of which the product reads one.
  EXPECT_EQ(results_of_first_kernel("Saved", "aten.relu(%2)"), 1u);
  // Operands of two results are as large as these.
  EXPECT_EQ(results_of_first_kernel("Saved", "aten._softmax(%2, 1, false)"), 4u);
  // A sum along rows is not computed twice, nor what is dear.
  EXPECT_EQ(results_of_first_kernel("Primal", "aten._softmax(%2, 1, false)"), 2u);
  EXPECT_EQ(results_of_first_kernel("Primal", "aten.pow.Tensor_Scalar(%2, 2.5)"), 2u);
}

// Joining results.

size_t joins_outside(const Graph& graph) {
  const FusedGraph fused = fuse(graph);
  fused.graph.verify();
  return count(fused.graph, "aten.cat") + count(fused.graph, "aten.stack");
}

/// Runs a graph by kernels, which give the same bits.
void expect_exact(const Graph& graph) {
  const Tensors arguments = arguments_of(graph);
  Tensors given(arguments);
  expect_same_bits(compile({graph, {}})(std::move(given)), interpret(graph, arguments));
}

/// Functions of two tensors that nobody but a `cat` or `stack` reads.
Graph joined_alone(const std::string& dtype, const std::string& sizes, const std::string& join,
                   const std::string& meta) {
  const std::string one = dtype + "[" + sizes + "]";
  return Graph::parse("\ngraph(%0: " + one + " Primal 0, %1: " + one + " Primal 1):\n  %2: " + one +
                      " = aten.add.Tensor(%0, %1, 1)\n  %3: " + one +
                      " = aten.neg(%2)\n  %4: " + one + " = aten.mul.Tensor(%2, %0)\n  %5: " + one +
                      " = aten.sub.Tensor(%2, %1, 1)\n  %6: " + dtype + "[" + meta + "] = " + join +
                      "\n  return (%6 Output 0, %5 Output 1)\n");
}

TEST(JoinResults, KernelsWriteThemWhereTheyBelong) {
  const std::vector<std::array<std::string, 3>> cases = {
      {"5, 7", "aten.cat([%3, %4], 0)", "10, 7"},
      {"5, 7", "aten.cat([%4, %3], 1)", "5, 14"},
      {"5, 7", "aten.cat([%4, %3], -1)", "5, 14"},
      {"3, 4, 33", "aten.cat([%3, %4], 1)", "3, 8, 33"},
      {"3, 4, 33", "aten.stack([%3, %4], 1)", "3, 2, 4, 33"},
      {"3, 4, 33", "aten.stack([%4, %3], -2)", "3, 4, 2, 33"},
      {"70", "aten.stack([%4, %3], 0)", "2, 70"},
      {"1, 19", "aten.cat([%4, %3], 0)", "2, 19"},
      {"300, 130", "aten.cat([%3, %4], 1)", "300, 260"}};
  for (const auto& [sizes, join, meta] : cases) {
    for (const char* dtype : {"f32", "f64", "bf16", "f16", "i64", "i32"}) {
      SCOPED_TRACE(join + " of " + dtype + "[" + sizes + "]");
      const Graph graph = joined_alone(dtype, sizes, join, meta);
      EXPECT_EQ(joins_outside(graph), 0u);
      expect_exact(graph);
    }
  }
}

TEST(JoinResults, NotWhatOthersReadOrMake) {
  const auto outside = [](const std::string& join, const std::string& sizes = "5, 7") {
    const Graph graph = joined_alone("f32", "5, 7", join, sizes);
    expect_exact(graph);
    return joins_outside(graph);
  };
  EXPECT_EQ(outside("aten.cat([%3, %5], 0)", "10, 7"), 1u);  // a result of the graph
  EXPECT_EQ(outside("aten.cat([%3, %0], 0)", "10, 7"), 1u);  // an argument
  EXPECT_EQ(outside("aten.cat([%3, %3], 0)", "10, 7"), 1u);
  EXPECT_EQ(outside("aten.stack([%3, %4], 2)", "5, 7, 2"), 1u);  // elements would lie apart
}

/// Parts that are summed up over rows are not written element by element.
TEST(JoinResults, NotSums) {
  const Graph graph = Graph::parse(R"(
graph(%0: f32[6, 40] Primal 0, %1: f32[6, 40] Primal 1):
  %2: f32[6, 40] = aten.mul.Tensor(%0, %1)
  %3: f32[1, 40] = aten.sum.dim_IntList(%2, [0], true, none)
  %4: f32[6, 40] = aten.neg(%2)
  %5: f32[7, 40] = aten.cat([%3, %4], 0)
  return (%5 Output 0)
)");
  EXPECT_EQ(joins_outside(graph), 1u);
  expect_like_interpreter(graph);
}

/// Softmax and its rows, by a kernel with several passes.
TEST(JoinResults, RowsThatAreReducedFirst) {
  const Graph graph = Graph::parse(R"(
graph(%0: f32[9, 37] Primal 0, %1: f32[37] Primal 1):
  %2: f32[9, 37] = aten.mul.Tensor(%0, %1)
  %3: f32[9, 37] = aten._softmax(%2, 1, false)
  %4: f32[9, 37] = aten.exp(%2)
  %5: f32[9, 74] = aten.cat([%4, %3], 1)
  return (%5 Output 0)
)");
  EXPECT_EQ(joins_outside(graph), 0u);
  expect_like_interpreter(graph);
}

}  // namespace
}  // namespace ahead::native
