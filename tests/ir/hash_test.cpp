#include <unordered_set>

#include "ahead/graph.h"
#include "base/hash.h"
#include "support/random_graph.h"

namespace ahead {
namespace hash_test {

uint64_t hash_of(const std::string& text) {
  return Graph::parse(text).hash();
}

/// The hash of a graph with one call; the parts can be replaced one by one.
struct Program {
  std::string input = "f32[2, 3] Primal 0";
  std::string result = "f32[2, 3]";
  std::string call = "aten.add.Tensor(%x, 1.0, 1)";
  std::string tags = "";
  std::string output = "Output 0";

  uint64_t hash() const {
    return hash_of("graph(%x: " + input + "): %y: " + result + " = " + call + " " + tags +
                   " return (%y " + output + ")");
  }
};

template <class Change>
uint64_t changed(Change&& change) {
  Program program;
  change(program);
  return program.hash();
}

TEST(GraphHash, IgnoresNamesSequenceAndProvenance) {
  const uint64_t plain = Program().hash();
  EXPECT_EQ(plain, changed([](Program& p) { p.tags = "seq=3 from=\"AddBackward0\""; }));
  EXPECT_EQ(plain,
            hash_of("graph(%7: f32[2, 3] Primal 0): %a: f32[2, 3] = aten.add.Tensor(%7, 1.0) "
                    "return (%a Output 0)"));
}

TEST(GraphHash, SeesEverythingElse) {
  std::unordered_set<uint64_t> seen{Program().hash()};
  auto differs = [&](auto&& change) { return seen.insert(changed(change)).second; };
  for (const char* input :
       {"f32[3, 2] Primal 0", "f32[6] Primal 0", "f32[2, 3]{1, 2} Primal 0", "f32[2, 3]+1 Primal 0",
        "f64[2, 3] Primal 0", "f32[2, 3] @cuda:0 Primal 0", "f32[2, 3] @cuda:1 Primal 0",
        "f32[2, 3] Primal 1", "f32[2, 3] Captured 0", "f32[2, 3] Primal 0 requires_grad"}) {
    EXPECT_TRUE(differs([&](Program& p) { p.input = input; })) << input;
  }
  for (const char* call :
       {"aten.add.Tensor(%x, 1, 1)",
        "aten.add.Tensor(%x, true, 1)",
        "aten.add.Tensor(%x, 2.0, 1)",
        "aten.add.Tensor(%x, 1.0, 1.0)",
        "aten.add.Tensor(%x, %x, 1)",
        "aten.add.Scalar(%x, 1.0, 1)",
        "aten.sub.Tensor(%x, 1.0, 1)",
        "aten.add.Tensor(1.0, %x, 1)",
        "aten.add.Tensor(%x, 0.0, 1)",
        "aten.add.Tensor(%x, -0.0, 1)",
        "aten.add.Tensor(%x, nan, 1)",
        "aten.add.Tensor(%x, inf, 1)",
        "aten.add.Tensor(%x, none, 1)",
        "aten.add.Tensor(%x, complex(1.0, 0.0), 1)",
        "aten.sum.dim_IntList(%x, [])",
        "aten.sum.dim_IntList(%x, none)",
        "aten.sum.dim_IntList(%x, [1])",
        "aten.gelu(%x, \"none\")",
        "aten.gelu(%x, \"tanh\")",
        "ahead.call(graph(%0: f32[2, 3] Primal 0): { return (%0 Output 0) }, %x)",
        "ahead.call(graph(%0: f32[2, 3] Primal 0): { return (%0 Output 1) }, %x)"}) {
    EXPECT_TRUE(differs([&](Program& p) { p.call = call; })) << call;
  }
  for (const char* tags : {"!backward", "!no_grad", "!random", "!random !effect"}) {
    EXPECT_TRUE(differs([&](Program& p) { p.tags = tags; })) << tags;
  }
  for (const char* output : {"Output 1", "MutatedInput 0", "Output 0 requires_grad"}) {
    EXPECT_TRUE(differs([&](Program& p) { p.output = output; })) << output;
  }
  EXPECT_TRUE(differs([](Program& p) { p.result = "f32[2, 3] requires_grad"; }));
}

TEST(GraphHash, TakesAllNansForOne) {
  Graph graph =
      Graph::parse("graph(%x: f32[2] Primal 0): %y: f32[2] = aten.add.Scalar(%x, nan) return ()");
  const uint64_t before = graph.hash();
  graph.set_argument(graph.first(), 1, -std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(graph.hash(), before);
}

TEST(GraphHash, IsTheSameInEveryProcess) {
  EXPECT_EQ(hash_of("graph(): return ()"), 14965600529066536485u);
  EXPECT_EQ(hash_bytes("ahead"), 8047827076795596740u);
}

TEST(GraphHash, SpreadsWell) {
  std::unordered_set<uint64_t> hashes;
  std::unordered_set<uint32_t> low_bits;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const uint64_t hash = random_graph(seed, 5).hash();
    hashes.insert(hash);
    low_bits.insert(static_cast<uint32_t>(hash) & 0xffff);
  }
  EXPECT_EQ(hashes.size(), 300u);
  EXPECT_GE(low_bits.size(), 290u);
}

TEST(Hashing, DependsOnEveryByteAndOnOrder) {
  EXPECT_NE(hash_bytes("a"), hash_bytes(std::string_view("a\0", 2)));
  EXPECT_NE(hash_bytes(""), hash_bytes(std::string_view("\0", 1)));
  EXPECT_NE(hash_bytes("12345678abcdefgh"), hash_bytes("abcdefgh12345678"));
  EXPECT_NE(hash_combine(1, 2), hash_combine(2, 1));
}

}  // namespace hash_test
}  // namespace ahead
