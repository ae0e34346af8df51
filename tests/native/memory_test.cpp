#include "models/memory.h"

#include <torch/torch.h>

#include <chrono>
#include <thread>

#include "ahead/ahead.h"
#include "ahead/interpret.h"
#include "models/speed_models.h"
#include "native/backend.h"
#include "native/loops/term_builder.h"
#include "native/lower/lower.h"
#include "native/place/reuse.h"
#include "native/slices/node_cuts.h"
#include "native/slices/slices.h"

namespace ahead::native::memory_test {

using at::Tensor;
using Tensors = std::vector<Tensor>;
using Arguments = std::vector<std::vector<int32_t>>;

/// For each output of a graph, over which arguments its kernel may write it.
Arguments overwritable(const std::string& text) {
  const Graph graph = Graph::parse(text);
  return overwritable_arguments(lower(graph), graph.outputs().size());
}

TEST(Overwritable, OperandsThatLieAlike) {
  EXPECT_EQ(overwritable(R"(
graph(%0: f32[64, 32] Primal 0, %1: f32[64, 32] Primal 1, %2: f32[32] Primal 2):
  %3: f32[64, 32] = aten.mul.Tensor(%0, %1)
  %4: f32[64, 32] = aten.add.Tensor(%3, %2, 1)
  return (%4 Output 0)
)"),
            (Arguments{{0, 1}}));
}

TEST(Overwritable, NotOperandsOfOtherDtypes) {
  EXPECT_EQ(overwritable(R"(
graph(%0: f32[64, 32] Primal 0, %1: f64[64, 32] Primal 1):
  %2: f32[64, 32] = aten.exp(%0)
  %3: f64[64, 32] = aten.mul.Tensor(%2, %1)
  return (%3 Output 0)
)"),
            (Arguments{{1}}));
}

TEST(Overwritable, NotWhatALaterPassReads) {
  // The first result is written in the pass in which the largest number is looked for.
  EXPECT_EQ(overwritable(R"(
graph(%0: f32[64, 32] Primal 0):
  %1: f32[64, 32] = aten.neg(%0)
  %2: f32[64, 32] = aten._softmax(%0, 1, false)
  return (%1 Output 0, %2 Output 1)
)"),
            (Arguments{{}, {0}}));
}

TEST(Overwritable, NotWhatIsReadInTwoWays) {
  Kernel kernel;
  kernel.rows = {8};
  kernel.columns = {8};
  TermBuilder builder(kernel);
  const auto load = [&](int32_t argument, Sizes rows, Sizes columns) {
    kernel.buffers.push_back({at::kFloat, false, argument, std::move(rows), std::move(columns)});
    Term term;
    term.op = Op::Load;
    term.buffer = static_cast<int32_t>(kernel.buffers.size()) - 1;
    term.by_row = term.by_column = true;
    return builder.add(std::move(term));
  };
  const TermId plain = load(0, {8}, {1}), turned = load(0, {1}, {8}), other = load(1, {8}, {1});
  const TermId sum = builder.apply(Op::Add, Type::F32, {plain, turned});
  kernel.buffers.push_back({at::kFloat, true, 0, {8}, {1}});
  kernel.stores.push_back({builder.apply(Op::Add, Type::F32, {sum, other}), 3});
  EXPECT_EQ(overwritable_arguments(kernel, 1), (Arguments{{1}}));
}

TEST(Overwritable, NotWhatHasSeveralParts) {
  EXPECT_EQ(overwritable(R"(
graph(%0: f32[64, 32]{64, 1} Primal 0, %1: f32[64, 32] Primal 1):
  %2: f32[64, 32] = aten.exp(%0)
  %3: f32[64, 32] = aten.neg(%2)
  %4: f32[64, 64] = aten.cat([%3, %2], 1)
  return (%4 Output 0)
)"),
            (Arguments{{}}));
}

TEST(Overwritable, NoSumsOverRows) {
  EXPECT_EQ(overwritable(R"(
graph(%0: f32[64, 32] Primal 0, %1: f32[32] Primal 1):
  %2: f32[64, 32] = aten.mul.Tensor(%0, %1)
  %3: f32[32] = aten.sum.dim_IntList(%2, [0], false, none)
  return (%2 Output 0, %3 Output 1)
)"),
            (Arguments{{0}, {}}));
}

TEST(Overwritable, NothingThatMayBeRefusedAfterwards) {
  Kernel kernel = lower(Graph::parse(R"(
graph(%0: f32[64, 32] Primal 0):
  %1: f32[64, 32] = aten.exp(%0)
  %2: f32[64, 32] = aten.neg(%1)
  return (%2 Output 0)
)"));
  EXPECT_EQ(overwritable_arguments(kernel, 1), (Arguments{{0}}));
  kernel.demands.push_back({0, nullptr});
  EXPECT_EQ(overwritable_arguments(kernel, 1), (Arguments{{}}));
}

TEST(Donated, TensorsAreWrittenOverButNotMemoryThatSomebodyLent) {
  const Graph graph = Graph::parse(R"(
graph(%0: f32[4, 4] Primal 0):
  %1: f32[4, 4] = aten.exp(%0)
  %2: f32[4, 4] = aten.neg(%1)
  return (%2 Output 0)
)");
  const aot::CompileRequest request{graph, {}, {true}};
  const Interpreter plan(graph, aot::GraphCompiler(), {true});
  const aot::Executable by_plan = [&](Tensors&& args) { return plan(std::move(args)); };
  for (const aot::Executable& run : {by_plan, compile(request)}) {
    const auto run_on = [&](Tensor&& given) {
      Tensors args;
      args.push_back(std::move(given));
      return run(std::move(args))[0];
    };
    Tensor own = at::zeros({4, 4});
    const void* const place = own.data_ptr();
    EXPECT_EQ(run_on(std::move(own)).data_ptr(), place);
    std::vector<float> lent(16, 0);
    EXPECT_EQ(run_on(at::from_blob(lent.data(), {4, 4})).sum().item<float>(), -16);
    EXPECT_EQ(lent, std::vector<float>(16, 0));
  }
}

/// What oneDNN works in while it multiplies.
constexpr int64_t library_bytes = 4096;

/// What a call of a compiled function takes beyond what was there, and leaves.
template <class Function>
int64_t peak_of(Function&& function) {
  models::MemoryCounter counter;
  int64_t peak = 0;
  for (int call = 0; call < 4; ++call) peak = counter.peak(function);
  return peak;
}

Options native() {
  return {.backend = "native", .fullgraph = true, .confirm = Confirm::Never};
}

void expect_near(const Tensor& actual, const Tensor& expected) {
  const double scale = expected.abs().max().item<double>();
  EXPECT_LE((actual - expected).abs().max().item<double>(), 1e-4 * scale);
}

TEST(NativeMemory, KernelsWriteOverWhatNobodyNeeds) {
  const Tensor x = torch::randn({256, 256}), w = torch::randn({256, 256});
  const auto function = [&](const Tensor& in) {
    return torch::softmax(torch::gelu(in.mm(w)) * 2, -1);
  };
  auto compiled = compile(function, native());
  EXPECT_LE(peak_of([&] { compiled(x); }), static_cast<int64_t>(x.nbytes()) + library_bytes);
  expect_near(compiled(x), function(x));
}

TEST(NativeMemory, ArgumentsAndWhatIsSeenElsewhereStay) {
  const Tensor x = torch::randn({128, 128}), w = torch::randn({128, 128});
  const Tensor before = x.clone();
  const auto function = [&](const Tensor& in) {
    const Tensor product = in.mm(w);
    const Tensor turned = product.t();
    const Tensor bent = torch::exp(torch::tanh(product));
    return Tensors{bent, turned.mm(w), torch::sin(in) + 1, torch::relu(product.view({-1})) * 3};
  };
  auto compiled = compile(function, native());
  for (int call = 0; call < 4; ++call) {
    const Tensors actual = compiled(x), expected = function(x);
    for (size_t i = 0; i < expected.size(); ++i) expect_near(actual[i], expected[i]);
    EXPECT_TRUE(torch::equal(x, before));
  }
  EXPECT_GT(compiled.stats().cache_hits, 0u);
}

/// Gradients are eager's however often the backward runs, and saved tensors are only written over
/// by the last.
TEST(NativeMemory, SavedTensorsServeEachBackward) {
  const Tensor x = torch::randn({64, 96}), w = torch::randn({96, 96}).requires_grad_();
  const auto function = [&](const Tensor& in) {
    const Tensor h = torch::layer_norm(in.mm(w), {96});
    return (torch::gelu(h).mm(w).tanh() * h).pow(2).mean();
  };
  const Tensor expected = torch::autograd::grad({function(x)}, {w})[0];
  auto compiled = compile(function, native());
  for (int call = 0; call < 4; ++call) {
    const Tensor loss = compiled(x);
    for (const bool is_kept : {true, true, false})
      expect_near(torch::autograd::grad({loss}, {w}, {}, is_kept)[0], expected);
  }
  EXPECT_GT(compiled.stats().cache_hits, 0u);
}

/// Results, which are views of intermediates or what the backward reads, and gradients that hooks
/// and callers keep are not written over by the rest of a backward, nor by later calls.
TEST(NativeMemory, WhatIsKeptStaysInLaterCalls) {
  const auto function = [](const Tensor& x, const Tensor& w) {
    const Tensor product = torch::gelu(x.mm(w)), bent = torch::exp(product * 0.1);
    return Tensors{product.t(), bent, product.view({-1}) * 2, (bent * product).mm(w)[3]};
  };
  auto compiled = compile(function, native());
  torch::manual_seed(0);
  Tensors kept, copies;
  const auto keep = [&](const Tensor& tensor) {
    kept.push_back(tensor);
    copies.push_back(tensor.detach().clone());
  };
  for (int call = 0; call < 4; ++call) {
    const Tensor x = torch::randn({64, 96}).requires_grad_();
    const Tensor w = torch::randn({96, 96}).requires_grad_();
    Tensor sum, expected_sum;
    for (const Tensor& result : function(x, w)) {
      const Tensor part = (result * 0.001).sin().sum();
      expected_sum = expected_sum.defined() ? expected_sum + part : part;
    }
    const Tensors expected = torch::autograd::grad({expected_sum}, {x, w});
    x.register_hook([&](const Tensor& gradient) { keep(gradient); });
    w.register_hook([&](const Tensor& gradient) { keep(gradient); });
    for (const Tensor& result : compiled(x, w)) {
      keep(result);
      const Tensor part = (result * 0.001).sin().sum();
      sum = sum.defined() ? sum + part : part;
    }
    for (const bool is_kept : {true, false}) {
      const Tensors gradients = torch::autograd::grad({sum}, {x, w}, {}, is_kept);
      for (size_t i = 0; i < expected.size(); ++i) {
        expect_near(gradients[i], expected[i]);
        keep(gradients[i]);
      }
    }
  }
  for (size_t i = 0; i < kept.size(); ++i) EXPECT_TRUE(torch::equal(kept[i], copies[i])) << i;
  EXPECT_EQ(compiled.stats().cache_hits, 3u);
}

/// A training step, from the loss to the gradients.
template <class Loss>
int64_t peak_of_step(const models::Workload& workload, const Loss& loss) {
  models::MemoryCounter counter;
  int64_t peak = 0;
  for (int step = 0; step < 4; ++step) {
    for (const Tensor& parameter : workload.parameters) parameter.mutable_grad().reset();
    for (const Tensor& input : workload.inputs) {
      if (input.requires_grad()) input.mutable_grad().reset();
    }
    peak = counter.peak([&] { loss(workload.inputs)[0].backward(); });
  }
  return peak;
}

TEST(NativeMemory, NoHigherPeakThanEagerOrTheInterpreter) {
  for (const std::string& name : models::speed_models()) {
    SCOPED_TRACE(name);
    const models::Workload workload = models::speed_workload(name, models::SpeedSize::Small);
    const auto peak = [&](const std::string& backend) {
      Options options = native();
      options.backend = backend;
      const auto compiled = compile(workload.loss, options);
      const int64_t bytes = peak_of_step(workload, compiled);
      EXPECT_GT(compiled.stats().cache_hits, 0u);
      return bytes;
    };
    const int64_t eager = peak_of_step(workload, workload.loss), ours = peak("native");
    EXPECT_LE(ours, eager + library_bytes);
    EXPECT_LE(ours, peak("interpreter") + library_bytes);
  }
}

/// A backward through time computes gates and activations again step by step, not all at once, and
/// no gradient of all states is there as a whole.
TEST(NativeMemory, LoopsOverTimeAreComputedAgainStepByStep) {
  const models::Workload workload = models::speed_workload("lstm");
  Options options = native();
  options.backend = "interpreter";
  const int64_t before = peak_of_step(workload, compile(workload.loss, options));
  const auto compiled = compile(workload.loss, native());
  EXPECT_LE(peak_of_step(workload, compiled), before * 3 / 4);
  EXPECT_GT(compiled.stats().cache_hits, 0u);
}

/// A step with its optimizer inside takes no more than one without.
TEST(NativeMemory, WholeStepsTakeWhatTheirHalvesTake) {
  for (const char* name : {"norm_chain", "lstm", "unet", "gpt12"}) {
    SCOPED_TRACE(name);
    const models::Workload workload = models::speed_workload(name);
    const auto halves = compile(workload.loss, native());
    const int64_t apart = peak_of_step(workload, halves);
    EXPECT_GT(halves.stats().cache_hits, 0u);
    ahead::optim::AdamW optimizer(workload.parameters, torch::optim::AdamWOptions(1e-4));
    auto whole = compile(
        [&] {
          optimizer.zero_grad();
          const Tensor loss = workload.loss(workload.inputs)[0];
          loss.backward();
          optimizer.step();
          return loss.detach();
        },
        native());
    models::MemoryCounter counter;
    int64_t peak = 0;
    for (int step = 0; step < 5; ++step) {
      for (const Tensor& parameter : workload.parameters) parameter.mutable_grad().reset();
      peak = counter.peak([&] { whole(); });
    }
    EXPECT_GT(whole.stats().cache_hits, 0u);
    EXPECT_LE(peak, apart + apart / 50 + library_bytes);
  }
}

struct Attention {
  at::IntArrayRef sizes;  ///< of queries, keys and values
  std::vector<int64_t> mask;
};

/// Attention with explicit operators, of which the products of queries and keys take 8 MB.
void expect_sliced(const Attention& attention) {
  torch::manual_seed(0);
  Tensors leaves;
  for (int i = 0; i < 3; ++i) leaves.push_back(torch::randn(attention.sizes).requires_grad_());
  const Tensor mask = torch::randn(attention.mask);
  const auto loss = [&](const Tensor& added) {
    const Tensor scores = leaves[0].matmul(leaves[1].transpose(-1, -2)) / 6.0 + added;
    return torch::softmax(scores, -1).matmul(leaves[2]).pow(2).sum();
  };
  auto compiled = compile(loss, native());
  const Tensors expected = torch::autograd::grad({loss(mask)}, leaves);
  for (int call = 0; call < 3; ++call) {
    const Tensors actual = torch::autograd::grad({compiled(mask)}, leaves);
    for (size_t i = 0; i < leaves.size(); ++i) expect_near(actual[i], expected[i]);
  }
  EXPECT_GT(compiled.stats().cache_hits, 0u);
  EXPECT_LT(peak_of([&] { torch::autograd::grad({compiled(mask)}, leaves); }),
            static_cast<int64_t>(8 * leaves[0].nbytes()) + (int64_t{5} << 20));
}

TEST(Slices, AttentionNeedsNoWholeScores) {
  expect_sliced({{2, 4, 512, 32}, {512, 512}});
  expect_sliced({{2, 4, 512, 32}, {2, 1, 1, 512}});
  expect_sliced({{2, 4, 512, 32}, {1, 4, 512, 1}});
  expect_sliced({{2, 4, 512, 32}, {2, 4, 512, 512}});
  expect_sliced({{8, 512, 32}, {512, 512}});
  expect_sliced({{3, 5, 400, 24}, {1}});
}

bool is_cut(const std::string& result, const std::string& call) {
  const Graph graph =
      Graph::parse("\ngraph(%0: f32[8, 2, 64, 64] Primal 0, %1: f32[] Primal 1):\n  %2: f32[" +
                   result + "] = " + call + "\n  return (%2 Output 0)\n");
  return cuts_of(*graph.last(), 8).has_value() || cuts_of(*graph.last(), 16).has_value();
}

TEST(Slices, OnlyOperatorsThatDoTheSameWithEachMatrix) {
  EXPECT_TRUE(is_cut("8, 2, 64, 64", "aten.mul.Tensor(%0, %1)"));
  EXPECT_TRUE(is_cut("8, 2, 64, 64", "aten._softmax(%0, -1, false)"));
  EXPECT_FALSE(is_cut("8, 2, 64, 64", "aten._softmax(%0, 0, false)"));
  // They divide by the number of elements, know rows and columns, or halve a dimension.
  EXPECT_FALSE(is_cut("8, 2, 64, 64", "aten.mse_loss_backward(%1, %0, %0, 1)"));
  EXPECT_FALSE(is_cut("8, 2, 64, 64", "aten.tril(%0, 0)"));
  EXPECT_FALSE(is_cut("4, 2, 64, 64", "aten.glu(%0, 0)"));
}

/// The first dimension of the result is not that of the batch.
TEST(Slices, NotWhatIsRepeatedForEachMatrix) {
  const Graph graph = Graph::parse(R"(
graph(%0: f32[8, 512, 32] Primal 0, %1: f32[8, 32, 512] Primal 1, %2: f32[8, 1, 1, 1] Primal 2):
  %3: f32[8, 512, 512] = aten.bmm(%0, %1)
  %4: f32[8, 8, 512, 512] = aten.mul.Tensor(%3, %2)
  return (%4 Output 0)
)");
  EXPECT_TRUE(slice_batches(graph, Multiplier::ATen).calls.empty());
}

TEST(Slices, ProductsOfTwoSizesThatMeet) {
  const Graph graph = Graph::parse(R"(
graph(%0: f32[8, 512, 32] Primal 0, %1: f32[8, 32, 512] Primal 1, %2: f32[8, 1024, 32] Primal 2):
  %3: f32[8, 512, 512] = aten.bmm(%0, %1)
  %4: f32[8, 1, 512, 512] = aten.view(%3, [8, 1, 512, 512])
  %5: f32[8, 1024, 512] = aten.bmm(%2, %1)
  %6: f32[8, 2, 512, 512] = aten.view(%5, [8, 2, 512, 512])
  %7: f32[8, 2, 512, 512] = aten.mul.Tensor(%6, %4)
  %8: f32[8, 1024, 512] = aten.view(%7, [8, 1024, 512])
  %9: f32[8, 512, 32] = aten.transpose.int(%1, 1, 2)
  %10: f32[8, 1024, 32] = aten.bmm(%8, %9)
  return (%10 Output 0)
)");
  EXPECT_EQ(slice_batches(graph, Multiplier::ATen).calls.size(), 1u);
}

Tensor attention_loss(const Tensor& q, const Tensor& k, const Tensor& v) {
  return torch::softmax(q.matmul(k.transpose(-1, -2)) / 6.0, -1).matmul(v).pow(2).sum();
}

TEST(Slices, KernelsOfSlicesAreCounted) {
  const Tensor q = torch::randn({8, 512, 32}), k = torch::randn({8, 512, 32});
  auto compiled = compile([&](const Tensor& in) { return attention_loss(in, k, k); }, native());
  expect_near(compiled(q), attention_loss(q, k, k));
  EXPECT_GT(compiled.stats().kernels, 1u);
  EXPECT_EQ(compiled.stats().kernels_failed, 0u);
}

TEST(Slices, BisectLooksIntoSlices) {
  const Tensor q = torch::randn({8, 512, 32}), k = torch::randn({8, 512, 32});
  const auto once = bisect([&](const Tensor& in) { return attention_loss(in, k, k); }, q);
  EXPECT_GE(once.kernels_checked, 8u);
  EXPECT_FALSE(once.found());
}

TEST(Slices, CompiledWhileTheGraphRuns) {
  const Tensor q = torch::randn({8, 512, 32}), k = torch::randn({8, 512, 32});
  Options options = native();
  options.compile_mode = CompileMode::Background;
  auto compiled = compile([&](const Tensor& in) { return attention_loss(in, k, k); }, options);
  const Tensor expected = attention_loss(q, k, k);
  for (int wait = 0; wait < 600 && compiled.stats().kernels == 0; ++wait) {
    expect_near(compiled(q), expected);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  ASSERT_GT(compiled.stats().kernels, 0u);
  for (int call = 0; call < 4; ++call) expect_near(compiled(q), expected);
}

TEST(Slices, ScoresThatAreResultsAreWhole) {
  const Tensor q = torch::randn({8, 512, 32}), k = torch::randn({8, 32, 512});
  const auto function = [&](const Tensor& in) {
    const Tensor scores = torch::softmax(in.bmm(k), -1);
    return Tensors{scores, scores.bmm(q)};
  };
  auto compiled = compile(function, native());
  for (int call = 0; call < 3; ++call) {
    const Tensors actual = compiled(q), expected = function(q);
    for (size_t i = 0; i < expected.size(); ++i) expect_near(actual[i], expected[i]);
  }
}

}  // namespace ahead::native::memory_test
