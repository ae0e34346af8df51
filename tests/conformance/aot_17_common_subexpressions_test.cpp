#include "conformance/aot_support.h"

namespace ahead::conformance {
namespace aot_17_common_subexpressions_test {

/// Merges equal calls and expects the values to stay and a second run to find nothing more. Returns
/// how many nodes went.
size_t removed(const aot::FlatFunction& f, const Tensors& inputs) {
  Graph graph = trace(f, inputs);
  const size_t before = graph.num_nodes();
  torch::manual_seed(0);
  const Tensors expected = interpret(graph, inputs);
  passes::eliminate_common_subexpressions(graph);
  passes::eliminate_dead_code(graph);
  const size_t after = graph.num_nodes();
  torch::manual_seed(0);
  const Tensors actual = interpret(graph, inputs);
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(tensor_difference(expected[i], actual[i]), "");
  EXPECT_EQ(passes::eliminate_common_subexpressions(graph), 0u);
  EXPECT_LE(after, before);
  return before - after;
}

const Tensors square = {at::randn({2, 2})};

TEST(AotCommonSubexpressions, test_nochange) {
  EXPECT_EQ(removed(
                [](const Tensors& in) -> Tensors {
                  const at::Tensor a = in[0] + 1, b = in[0] + a, c = in[0], d = in[0] + c;
                  return {b + d};
                },
                square),
            0u);
}

TEST(AotCommonSubexpressions, test_empty) {
  EXPECT_EQ(removed([](const Tensors&) -> Tensors { return {}; }, square), 0u);
}

TEST(AotCommonSubexpressions, test_rand_like) {
  EXPECT_EQ(removed([](const Tensors& in)
                        -> Tensors { return {at::rand_like(in[0]) + at::rand_like(in[0])}; },
                    square),
            0u);
}

TEST(AotCommonSubexpressions, test_rand_n) {
  EXPECT_EQ(
      removed([](const Tensors&) -> Tensors { return {at::randn({4}) + at::randn({4})}; }, square),
      0u);
}

TEST(AotCommonSubexpressions, test_hash_with_numbers) {
  EXPECT_EQ(removed([](const Tensors& in) -> Tensors { return {(in[0] - 1) * (in[0] - 1.0)}; },
                    {at::arange(4)}),
            0u);
}

TEST(AotCommonSubexpressions, test_immutable_list_type) {
  EXPECT_EQ(removed(
                [](const Tensors& in) -> Tensors {
                  const at::Tensor a = in[0].sum(1), b = in[0].sum(1), c = in[0].sum(),
                                   d = in[0].sum();
                  return {a + b + c + d};
                },
                square),
            2u);
}

TEST(AotCommonSubexpressions, test_immutable_list_multiple_entries) {
  EXPECT_EQ(removed(
                [](const Tensors& in) -> Tensors {
                  const at::Tensor a = in[0].sum(at::IntArrayRef({0, 1})),
                                   b = in[0].sum(at::IntArrayRef({0, 1})), c = in[0].sum(1),
                                   d = in[0].sum(1);
                  return {a + b + c + d};
                },
                square),
            2u);
}

TEST(AotCommonSubexpressions, test_simple) {
  EXPECT_EQ(removed(
                [](const Tensors& in) -> Tensors {
                  const at::Tensor a = in[0].cos(), b = in[0].cos(), c = a + a, d = b + b;
                  return {c + d};
                },
                square),
            2u);
}

TEST(AotCommonSubexpressions, test_simple_2) {
  EXPECT_EQ(removed(
                [](const Tensors& in) -> Tensors {
                  const at::Tensor a = in[0].cos().sin(), b = in[0].cos().sin(), c = a + a,
                                   d = b + b;
                  return {c + d};
                },
                square),
            3u);
}

TEST(AotCommonSubexpressions, test_two_args_default) {
  EXPECT_EQ(removed(
                [](const Tensors& in) -> Tensors {
                  const at::Tensor a = in[0].sum(1), b = in[0].sum(1, /*keepdim=*/false),
                                   c = in[0].sum(1, /*keepdim=*/false), d = in[0].sum(1);
                  return {a + b + c + d};
                },
                square),
            3u);
}

TEST(AotCommonSubexpressions, test_two_args) {
  EXPECT_EQ(removed(
                [](const Tensors& in) -> Tensors {
                  const at::Tensor a = in[0].sum(1), b = in[0].sum(1, /*keepdim=*/true),
                                   c = in[0].sum(1, /*keepdim=*/true), d = in[0].sum(1);
                  return {a + b + c + d};
                },
                square),
            2u);
}

TEST(AotCommonSubexpressions, test_simple_multiple_same_ops) {
  EXPECT_EQ(removed(
                [](const Tensors& in) -> Tensors {
                  const at::Tensor a = in[0].sum(), b = in[0].sum(), c = in[0].sum(),
                                   d = in[0].sum();
                  return {a + b + c + d};
                },
                square),
            3u);
}

TEST(AotCommonSubexpressions, test_nested_immutable_list_type) {
  EXPECT_EQ(removed(
                [](const Tensors& in) -> Tensors {
                  return {at::cat({in[0], in[0]}) + at::cat({in[0], in[0]})};
                },
                square),
            1u);
}

TEST(AotCommonSubexpressions, test_kwarg) {
  EXPECT_EQ(removed([](const Tensors& in)
                        -> Tensors { return {at::ones_like(in[0]) + at::ones_like(in[0])}; },
                    square),
            1u);
}

/// A chain of operators, each on one of the values so far, the same for the same seed.
at::Tensor random_chain(const at::Tensor& x, uint64_t seed) {
  Tensors values = {x};
  uint64_t state = seed;
  const auto draw = [&state](uint64_t bound) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % bound;
  };
  for (int i = 0; i < 100; ++i) {
    const at::Tensor& source = values[draw(values.size())];
    switch (draw(4)) {
      case 0:
        values.push_back(source.clone());
        break;
      case 1:
        values.push_back(source.cos());
        break;
      case 2:
        values.push_back(source.tanh());
        break;
      default:
        values.push_back(at::gelu(source));
    }
  }
  return at::stack(values).sum(0);
}

TEST(AotCommonSubexpressions, test_random) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    removed([seed](const Tensors& in) -> Tensors { return {random_chain(in[0], seed)}; }, square);
  }
}

}  // namespace aot_17_common_subexpressions_test
}  // namespace ahead::conformance
