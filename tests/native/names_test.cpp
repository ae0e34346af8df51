#include <ATen/record_function.h>
#include <torch/torch.h>

#include "ahead/ahead.h"

namespace ahead::native::names_test {

std::vector<std::string>& names() {
  static std::vector<std::string> all;
  return all;
}

std::unique_ptr<at::ObserverContext> note_name(const at::RecordFunction& call) {
  names().emplace_back(call.name());
  return nullptr;
}

TEST(Profiler, SeesKernelsByTheirOperators) {
  const at::Tensor x = torch::randn({5, 7});
  auto compiled = ahead::compile([](const at::Tensor& t) { return at::sigmoid(at::tanh(t) * 2); },
                                 {.backend = "native", .confirm = Confirm::Never});
  for (int i = 0; i < 3; ++i) compiled(x);
  const at::CallbackHandle callback =
      at::addThreadLocalCallback(at::RecordFunctionCallback(note_name));
  compiled(x);
  at::removeCallback(callback);
  const auto is_kernel = [](const std::string& name) {
    return name.starts_with("tanh_mul_sigmoid_");
  };
  EXPECT_EQ(std::count_if(names().begin(), names().end(), is_kernel), 1);
  EXPECT_EQ(compiled.stats().kernels, 1u);
}

}  // namespace ahead::native::names_test
