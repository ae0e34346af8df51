#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>

#include "ahead/ahead.h"
#include "eager/harness.h"

/// What a compiled function says of itself.
namespace ahead::test {
namespace {

/// While it exists, LibTorch's warnings are kept.
class Heard {
 public:
  const std::vector<std::string>& lines() const { return handler_.lines; }
  bool has(const std::string& text) const {
    return std::any_of(lines().begin(), lines().end(), [&](const std::string& line) {
      return line.find(text) != std::string::npos;
    });
  }

 private:
  struct Handler : c10::WarningHandler {
    std::vector<std::string> lines;
    void process(const c10::Warning& warning) override { lines.push_back(warning.msg()); }
  };
  Handler handler_;
  c10::WarningUtils::WarningHandlerGuard guard_{&handler_};
};

TEST(Reasons, AreSaidByEachFunction) {
  for (int i = 0; i < 2; ++i) {
    const Heard heard;
    auto f = compile([](const at::Tensor& x) { return x * x.sum().item<double>(); });
    for (int call = 0; call < 12; ++call) f(at::rand({3}));
    EXPECT_EQ(heard.lines().size(), 1u);
    EXPECT_TRUE(heard.has("a value that is read"));
  }
}

TEST(Reasons, AreOneForAllSizes) {
  const Heard heard;
  auto f = compile([](const at::Tensor& x) { return x.nonzero(); }, {.recompile_limit = 100});
  for (int call = 0; call < 60; ++call) f(at::rand({3 + call / 3}));
  EXPECT_EQ(heard.lines().size(), 1u) << heard.lines().back();
}

}  // namespace
}  // namespace ahead::test
