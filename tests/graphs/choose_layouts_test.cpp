#include "passes/choose_layouts.h"

#include <gtest/gtest.h>

namespace ahead {
namespace choose_layouts_test {

const LayoutPreferences preferences = {
    .channels_last = {{"aten.convolution", 1, -1}, {"aten.convolution_backward", 1, -1}},
    .copy_in = 1,
    .copy_out = 1};

constexpr size_t npos = std::string::npos;

/// What the pass makes of a graph; checks that it then makes nothing more of it.
std::string laid_out(const std::string& text) {
  Graph graph = Graph::parse(text);
  graph.verify();
  passes::choose_layouts(graph, preferences);
  graph.verify();
  EXPECT_EQ(passes::choose_layouts(graph, preferences), 0u) << "a second run changes something";
  return graph.str();
}

/// The part of the text with the nodes, and the results.
std::string body(const std::string& text) {
  return text.substr(text.find("):\n") + 3);
}

const std::string convolution = "[1, 1], [1, 1], [1, 1], false, [0, 0], 1)";

TEST(ChooseLayouts, PassesLayoutsOnBetweenConvolutions) {
  const std::string text = laid_out(R"(
graph(%x: f32[8, 16, 32, 32] Primal 0, %w: f32[16, 16, 3, 3] Primal 1, %b: f32[16, 1, 1] Primal 2):
  %a: f32[8, 16, 32, 32] = aten.convolution(%x, %w, none, )" +
                                    convolution + R"(
  %c: f32[8, 16, 32, 32] = aten.add.Tensor(%a, %b, 1)
  %d: f32[8, 16, 32, 32] = aten.relu(%c)
  %e: f32[8, 16, 32, 32] = aten.convolution(%d, %w, none, )" +
                                    convolution + R"(
  %f: f32[8, 16] = aten.mean.dim(%e, [2, 3], false, none)
  return (%f Output 0)
)");
  EXPECT_EQ(body(text),
            R"(  %3: f32[8, 16, 32, 32]{16384, 1, 512, 16} = aten.clone(%0, format.channels_last)
  %4: f32[8, 16, 32, 32]{16384, 1, 512, 16} = aten.convolution(%3, %1, none, [1, 1], [1, 1], [1, 1], false, [0, 0], 1)
  %5: f32[8, 16, 32, 32]{16384, 1, 512, 16} = aten.add.Tensor(%4, %2, 1)
  %6: f32[8, 16, 32, 32]{16384, 1, 512, 16} = aten.relu(%5)
  %7: f32[8, 16, 32, 32]{16384, 1, 512, 16} = aten.convolution(%6, %1, none, [1, 1], [1, 1], [1, 1], false, [0, 0], 1)
  %8: f32[8, 16] = aten.mean.dim(%7, [2, 3], false, none)
  return (%8 Output 0)
)");
}

TEST(ChooseLayouts, CopiesWhatViewsAndUsersNeed) {
  const std::string text = laid_out(R"(
graph(%x: f32[8, 16, 32, 32] Primal 0, %w: f32[16, 16, 3, 3] Primal 1):
  %a: f32[8, 16, 32, 32] = aten.convolution(%x, %w, none, )" +
                                    convolution + R"(
  %b: f32[8, 16, 32, 32] = aten.convolution(%a, %w, none, )" +
                                    convolution + R"(
  %c: f32[8, 16, 32, 32] = aten.convolution(%b, %w, none, )" +
                                    convolution + R"(
  %d: f32[8, 16, 32, 32] = aten.relu(%c)
  %e: f32[8, 16384] = aten.view(%c, [8, 16384])
  %f: f32[8, 16384] = aten.neg(%e)
  return (%d Output 0, %f Output 1)
)");
  EXPECT_NE(text.find("%6: f32[8, 16, 32, 32] = aten.clone(%5, format.contiguous)"), npos) << text;
  EXPECT_NE(text.find("aten.relu(%5)"), npos) << text;
  EXPECT_NE(text.find("%8: f32[8, 16, 32, 32] = aten.clone(%7, format.contiguous)"), npos) << text;
  EXPECT_NE(text.find("aten.view(%6"), npos) << text;
  EXPECT_NE(text.find("return (%8 Output 0"), npos) << text;
}

TEST(ChooseLayouts, GradientsOfWeightsKeepTheirLayout) {
  const std::string text = laid_out(R"(
graph(%x: f32[8, 16, 32, 32] Primal 0, %w: f32[16, 16, 3, 3] Primal 1, %t: f32[8, 16, 32, 32] Tangent 0):
  %a: f32[8, 16, 32, 32] = aten.convolution(%x, %w, none, )" +
                                    convolution + R"(
  %b: f32[8, 16, 32, 32] = aten.relu(%a)
  %c: f32[8, 16, 32, 32] = aten.convolution(%b, %w, none, )" +
                                    convolution + R"(
  %h: f32[8, 16, 32, 32], %i: f32[16, 16, 3, 3], _ = aten.convolution_backward(%t, %b, %w, [0], [1, 1], [1, 1], [1, 1], false, [0, 0], 1, [true, true, false]) !backward
  %g: f32[8, 16, 32, 32] = aten.threshold_backward(%h, %b, 0) !backward
  %s: f32[] = aten.sum(%c, none)
  %u: f32[] = aten.sum(%g, none) !backward
  return (%s Output 0, %u GradOf 0, %i GradOf 1)
)");
  EXPECT_NE(text.find("%9: f32[16, 16, 3, 3]{144, 1, 48, 16}"), npos) << text;
  EXPECT_NE(text.find("%10: f32[16, 16, 3, 3] = aten.clone(%9, format.contiguous)"), npos) << text;
  EXPECT_NE(text.find("%10 GradOf 1"), npos) << text;
}

TEST(ChooseLayouts, ChannelsOfImagesLieLikeThem) {
  const std::string text = laid_out(R"(
graph(%x: f32[8, 16, 32, 32] Primal 0, %w: f32[32, 16, 3, 3] Primal 1, %v: f32[16, 16, 3, 3] Primal 2):
  %a: f32[8, 32, 32, 32] = aten.convolution(%x, %w, none, )" +
                                    convolution + R"(
  %b: f32[8, 16, 32, 32]{32768, 1024, 32, 1}+16384 = aten.slice.Tensor(%a, 1, 16, 32, 1)
  %c: f32[8, 16, 32, 32] = aten.relu(%b)
  %d: f32[8, 16, 32, 32] = aten.convolution(%c, %v, none, )" +
                                    convolution + R"(
  %e: f32[] = aten.sum(%d, none)
  return (%e Output 0)
)");
  EXPECT_NE(text.find("f32[8, 16, 32, 32]{32768, 1, 1024, 32}+16 = aten.slice.Tensor"), npos)
      << text;
}

TEST(ChooseLayouts, LeavesWhatCostsMoreThanItGains) {
  const std::string text = R"(graph(%0: f32[8, 3, 8, 8] Primal 0, %1: f32[256, 3, 3, 3] Primal 1):
  %2: f32[8, 256, 8, 8] = aten.convolution(%0, %1, none, )" +
                           convolution + R"(
  %3: f32[8, 256, 8, 8] = aten.relu(%2)
  return (%3 Output 0)
)";
  EXPECT_EQ(laid_out(text), text);
}

TEST(ChooseLayouts, RandomNumbersAreDrawnInTheOrderOfMemory) {
  const std::string text = laid_out(R"(
graph(%x: f32[8, 16, 32, 32] Primal 0, %w: f32[16, 16, 3, 3] Primal 1):
  %a: f32[8, 16, 32, 32] = aten.convolution(%x, %w, none, )" +
                                    convolution + R"(
  %b: f32[8, 16, 32, 32] = aten.convolution(%a, %w, none, )" +
                                    convolution + R"(
  %c: f32[8, 16, 32, 32] = aten.convolution(%b, %w, none, )" +
                                    convolution + R"(
  %d: f32[8, 16, 32, 32] = aten.bernoulli.p(%c, 0.5, none) !random
  %e: f32[] = aten.sum(%d, none)
  return (%e Output 0)
)");
  EXPECT_NE(text.find("%7: f32[8, 16, 32, 32] = aten.bernoulli.p(%6"), npos) << text;
}

}  // namespace choose_layouts_test
}  // namespace ahead
