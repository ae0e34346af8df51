#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "support/eager.h"
#include "support/engine_check.h"

/// Sparse gradients in graphs, and behind them.
namespace ahead {
namespace sparse_gradients_test {

using Tensors = std::vector<at::Tensor>;

at::Tensor rows_of(const at::Tensor& table, const at::Tensor& x) {
  return at::embedding(table, x, -1, /*scale_grad_by_freq=*/false, /*sparse=*/true);
}

void expect_same_parts(const at::Tensor& expected, const at::Tensor& actual) {
  ASSERT_TRUE(expected.is_sparse());
  ASSERT_TRUE(actual.is_sparse());
  EXPECT_EQ(expected.is_coalesced(), actual.is_coalesced());
  expect_same({expected._indices(), expected._values()}, {actual._indices(), actual._values()});
}

/// The gradient of a table that eager gives.
template <class Loss>
at::Tensor eager_gradient(const Loss& loss, const at::Tensor& table) {
  const at::Tensor own = table.detach().clone().requires_grad_();
  loss(own).backward();
  return own.grad();
}

TEST(SparseGradientGraphs, JointGraphsMakeThemOfTheirParts) {
  const at::Tensor table = leaf({5, 3}), x = torch::tensor({1, 4, 1});
  const auto f = [](const at::Tensor& table, const at::Tensor& x) {
    return rows_of(table, x).exp();
  };
  const JointGraph joint = trace_joint(f, table, x);
  joint.verify();
  EXPECT_EQ(Graph::parse(joint.str()).hash(), joint.hash());
  EXPECT_EQ(joint.outputs().back().value->producer()->op().name(),
            "aten._sparse_coo_tensor_with_dims_and_tensors");
  const at::Tensor expected =
      eager_gradient([&](const at::Tensor& own) { return f(own, x).sum(); }, table);
  expect_same_parts(expected, interpret(joint, {table.detach(), x, at::ones({3, 3})}).back());
}

TEST(SparseGradientGraphs, BackendsAreGivenDenseOnes) {
  auto seen = std::make_shared<std::vector<std::string>>();
  register_backend("dense.only", [seen](const aot::CompileRequest& request) -> aot::Executable {
    seen->push_back(request.graph.str());
    auto interpreter = std::make_shared<const Interpreter>(request.graph);
    return [interpreter](Tensors&& args) { return (*interpreter)(std::move(args)); };
  });
  const at::Tensor table = leaf({5, 3});
  auto compiled = compile(
      [&](const at::Tensor& x) { return rows_of(table, x) * rows_of(table, x.flip(0)); },
      {.backend = "dense.only", .fullgraph = true, .confirm = Confirm::Never});
  for (int call = 0; call < 3; ++call) {
    const at::Tensor x = torch::tensor({call, 4, 1});
    table.mutable_grad().reset();
    compiled(x).sum().backward();
    expect_same_parts(eager_gradient(
                          [&](const at::Tensor& own) {
                            return (rows_of(own, x) * rows_of(own, x.flip(0))).sum();
                          },
                          table),
                      table.grad());
  }
  ASSERT_GE(seen->size(), 2u);
  for (const std::string& graph : *seen) EXPECT_EQ(graph.find("sparse_coo"), std::string::npos);
  EXPECT_EQ(compiled.stats().cache_hits, 2u);
}

/// What a backward returned is not written over by later ones.
TEST(SparseGradientGraphs, GradientsStayAsTheyAre) {
  for (const char* backend : {"interpreter", "native"}) {
    const at::Tensor table = leaf({50, 16}), matrix = leaf({16, 16});
    auto compiled = compile(
        [&](const at::Tensor& x) { return at::gelu(rows_of(table, x).matmul(matrix)); },
        {.backend = backend, .fullgraph = true, .confirm = Confirm::Never});
    Tensors kept, copies;
    for (int call = 0; call < 12; ++call) {
      table.mutable_grad().reset();
      compiled(at::randint(0, 50, {20})).pow(2).sum().backward();
      kept.push_back(table.grad());
      copies.push_back(table.grad().clone());
    }
    for (size_t i = 0; i < kept.size(); ++i) {
      EXPECT_TRUE(at::equal(kept[i]._values(), copies[i]._values())) << backend << " " << i;
      EXPECT_TRUE(at::equal(kept[i]._indices(), copies[i]._indices())) << backend << " " << i;
    }
    EXPECT_EQ(compiled.stats().cache_hits, 11u);
  }
}

TEST(SparseGradientGraphs, AreCheckedWithAsserts) {
  const at::Tensor table = leaf({5, 3});
  auto compiled =
      compile([&](const at::Tensor& x) { return rows_of(table, x).exp(); },
              {.fullgraph = true, .confirm = Confirm::Never, .debug_asserts = true});
  for (int call = 0; call < 3; ++call) compiled(torch::tensor({1, 4, 1})).sum().backward();
  EXPECT_EQ(compiled.stats().cache_hits, 2u);
  EXPECT_TRUE(table.grad().is_sparse());
}

TEST(SparseGradientGraphs, WithoutSecondDerivativesThereIsAnError) {
  const at::Tensor table = leaf({5, 3});
  auto compiled = compile([&](const at::Tensor& x) { return rows_of(table, x).exp(); },
                          {.fullgraph = true, .confirm = Confirm::Never, .double_backward = false});
  compiled(torch::tensor({1, 4, 1}));
  const at::Tensor result = compiled(torch::tensor({1, 4, 1}));
  const at::Tensor gradient =
      torch::autograd::grad({result.sum()}, {table}, {}, true, /*create_graph=*/true)[0];
  EXPECT_TRUE(gradient.is_sparse());
  EXPECT_THROW(gradient.to_dense().sum().backward(), c10::Error);
}

/// The node of the compiled function runs as it does without compiled autograd.
TEST(SparseGradientGraphs, InCapturedBackwards) {
  const auto counted = test::expect_as_eager([] {
    const at::Tensor table = leaf({5, 3});
    auto compiled = compile([&](const at::Tensor& x) { return rows_of(table, x).exp(); },
                            {.fullgraph = true, .confirm = Confirm::Never});
    Tensors all;
    for (int call = 0; call < 3; ++call) {
      compiled(torch::tensor({call, 4, 1})).pow(2).sum().backward();
      all.push_back(table.grad().clone());
    }
    EXPECT_EQ(compiled.stats().cache_hits, 2u);
    return all;
  });
  EXPECT_GT(counted.eager_nodes, 0u);
}

/// A function that is traced itself could read it.
TEST(SparseGradientGraphs, ArgumentsOfTracesHaveNoSparseOnes) {
  const at::Tensor table = leaf({5, 3}), x = torch::tensor({1, 4, 1});
  table.mutable_grad() = at::eye(5, 3).to_sparse();
  const std::string error = error_of([&] { trace_joint(rows_of, table, x); });
  EXPECT_NE(error.find("the .grad of an argument is sparse"), std::string::npos) << error;
}

template <class F>
std::string refusal_of(const F& f, const Tensors& inputs) {
  return error_of([&] { trace_joint(f, inputs); });
}

TEST(SparseGradientGraphs, OthersAreRefused) {
  const Tensors inputs{leaf({3, 3}), torch::tensor({1, 2, 1})};
  const std::string reason = "it makes a sparse tensor, and values of graphs are dense";
  struct Same : torch::autograd::Function<Same> {
    static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
      return x.clone();
    }
    static Tensors backward(torch::autograd::AutogradContext*, Tensors gradients) {
      return gradients;
    }
  };
  const auto refused = [&](const aot::FlatFunction& f) {
    EXPECT_NE(refusal_of(f, inputs).find(reason), std::string::npos) << refusal_of(f, inputs);
  };
  refused([](const Tensors& in) -> Tensors { return {rows_of(in[0] * 2, in[1])}; });
  refused([](const Tensors& in) -> Tensors { return {rows_of(Same::apply(in[0]), in[1])}; });
  refused([](const Tensors& in) -> Tensors {
    return {at::_sparse_coo_tensor_unsafe(in[1].view({1, 3}), in[0], {9, 3})};
  });
  refused([](const Tensors& in) -> Tensors {
    return torch::autograd::grad({rows_of(in[0], in[1]).exp().sum()}, {in[0]});
  });
  refused([](const Tensors& in) -> Tensors {
    in[0].register_hook([](const at::Tensor& gradient) { return gradient; });
    return {rows_of(in[0], in[1])};
  });
}

}  // namespace sparse_gradients_test
}  // namespace ahead
