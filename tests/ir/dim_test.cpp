#include "ahead/dim.h"

#include <gtest/gtest.h>

#include "ahead/errors.h"
#include "ahead/graph.h"
#include "ir/sizes/size_expression.h"
#include "ir/tensor_meta.h"
#include "support/round_trip.h"

namespace ahead {
namespace dim_test {

const Dim s0 = Dim::symbol(0), s1 = Dim::symbol(1);

TEST(Dims, AreIntegersWhereTheyCanBe) {
  EXPECT_TRUE((Dim(3) * 4 + 1).is_fixed());
  EXPECT_EQ((Dim(3) * 4 - 1).fixed(), 11);
  EXPECT_EQ((Dim(7) / 2).fixed(), 3);
  EXPECT_EQ((s0 - s0 + 2).fixed(), 2);
  EXPECT_FALSE(s0.is_fixed());
  EXPECT_THROW(s0.fixed(), InternalError);
  EXPECT_EQ(sizeof(Dim), sizeof(int64_t));
  EXPECT_EQ(Dim(std::numeric_limits<int64_t>::min()), Dim(std::numeric_limits<int64_t>::min() + 1));
}

TEST(Dims, AreEqualForAllSizesOrNot) {
  EXPECT_EQ((s0 + 1) * (s0 - 1), s0 * s0 - 1);
  EXPECT_EQ(((s0 + 1) * 2).str(), "2 + 2*s0");
  EXPECT_NE(s0, s1);
  EXPECT_NE(s0, Dim(3));
  EXPECT_EQ((s0 * 4) / 4, s0);
  EXPECT_EQ(((s0 + 1) / 2 * s1).at({6, 5}), 15);
  EXPECT_EQ(Dim(3).at({}), 3);
  EXPECT_THROW(s1.at({6}), UserError);
}

TEST(Dims, AreListsOfIntegersForLibTorch) {
  Dims dims = at::IntArrayRef({2, 3});
  EXPECT_TRUE(dims == at::IntArrayRef({2, 3}));
  EXPECT_EQ(at::IntArrayRef(dims).vec(), (std::vector<int64_t>{2, 3}));
  dims.push_back(s0 * 2);
  EXPECT_FALSE(dims.is_fixed());
  EXPECT_THROW(static_cast<void>(dims.fixed()), InternalError);
  EXPECT_EQ(at::IntArrayRef(dims.at({4})).vec(), (std::vector<int64_t>{2, 3, 8}));
}

TEST(Dims, DescribeTensors) {
  TensorMeta meta;
  meta.sizes = Dims{s0, 4, s1};
  meta.strides = contiguous_strides(meta.sizes);
  EXPECT_EQ(meta.str(), "f32[s0, 4, s1]");
  EXPECT_EQ(meta.numel(), s0 * s1 * 4);
  EXPECT_TRUE(meta.is_contiguous());
  EXPECT_EQ(fill_of(meta), Fill::Dense);
  std::swap(meta.strides[0], meta.strides[2]);
  std::swap(meta.sizes[0], meta.sizes[2]);
  EXPECT_EQ(meta.str(), "f32[s1, 4, s0]{1, s1, 4*s1}");
  EXPECT_FALSE(meta.is_contiguous());
  EXPECT_EQ(fill_of(meta), Fill::Dense);
  meta.strides[2] = s1 * 8;
  EXPECT_EQ(fill_of(meta), Fill::Gaps);
  meta.strides[2] = 0;
  EXPECT_EQ(fill_of(meta), Fill::Overlaps);
}

TEST(Dims, StandInTheTextOfGraphs) {
  const Graph graph = Graph::parse(
      "graph(%0: f32[s0, 8*s1 + 1]{16*s1, 1}+2*s0 + s1 Primal 0, %1: i64[2] Sizes 0 like [3, 5]):\n"
      "  %2: f32[floordiv(s0, 2), 4]+1 = aten.empty.memory_format([size(\"floordiv(s0, 2)\"), 4])\n"
      "  return (%2 Output 0)\n");
  graph.verify();
  expect_round_trip(graph);
  const TensorMeta& meta = graph.inputs()[0].value->meta;
  EXPECT_EQ(meta.sizes[1], s1 * 8 + 1);
  EXPECT_EQ(meta.offset, s0 * 2 + s1);
  EXPECT_EQ(graph.first()->result()->meta.sizes[0], s0 / 2);
  EXPECT_EQ(graph.example_sizes(), (std::vector<int64_t>{3, 5}));
  Graph other(graph);
  other.set_example_sizes({4, 5});
  EXPECT_EQ(graph.hash(), other.hash()) << "it is the same program";
  for (const char* size : {"t0", "s", "s0 +", "2*", "1.5", "size(\"s0\")"})
    EXPECT_THROW(Graph::parse("graph(%0: f32[" + std::string(size) +
                              "] Primal 0):\n"
                              "  return (%0 Output 0)\n"),
                 UserError)
        << size;
}

}  // namespace dim_test
}  // namespace ahead
