#include <ahead/errors.h>
#include <ahead/interpret.h>
#include <ahead/trace.h>
#include <gtest/gtest.h>

/// Operators that are traced as others. That their results are eager's is checked by the operator
/// sample table; here is the rest.
namespace {

using Tensors = std::vector<at::Tensor>;

Tensors four_classes(const Tensors& in) {
  return {at::one_hot(in[0], 4)};
}

}  // namespace

TEST(Decompositions, OneHotRefusesClassesOutOfRangeWhenItRuns) {
  const at::Tensor classes = at::arange(4);
  const ahead::Graph graph = ahead::trace(four_classes, {classes});
  EXPECT_TRUE(at::equal(ahead::interpret(graph, {classes})[0], at::one_hot(classes, 4)));
  EXPECT_THROW(ahead::interpret(graph, {classes + 1}), c10::Error);
  EXPECT_THROW(ahead::interpret(graph, {classes - 1}), c10::Error);
}

TEST(Decompositions, OneHotWithoutNumberOfClassesReadsValues) {
  const auto function = [](const Tensors& in) -> Tensors { return {at::one_hot(in[0])}; };
  EXPECT_THROW(ahead::trace(function, {at::arange(4)}), ahead::DataDependent);
}

TEST(Decompositions, CtcLossWithLengthsInTensorsReadsValues) {
  const auto function = [](const Tensors& in) -> Tensors {
    return {at::ctc_loss(in[0].log_softmax(2), in[1], in[2], in[3])};
  };
  const Tensors inputs = {at::zeros({5, 2, 4}), at::ones({2, 3}, at::kLong),
                          at::full({2}, 5, at::kLong), at::full({2}, 3, at::kLong)};
  EXPECT_THROW(ahead::trace(function, inputs), ahead::DataDependent);
}
