#include "native/build/kernel_library.h"

#include <gtest/gtest.h>

#include "native/print/prelude.h"

namespace ahead::native::build_test {

KernelSource adding(const std::string& name, const std::string& number) {
  return {name, with_prelude("extern \"C\" void " + name +
                                 "(float* out, long n) {\n"
                                 "  const Full m;\n"
                                 "  for (long i = 0; i < n; i += LANES)\n"
                                 "    store_f32(out + i, load_f32(out + i, m) + " +
                                 number + ", m);\n}\n",
                             8)};
}

TEST(Build, CompilesAndRuns) {
  const std::vector<KernelAddress> kernels =
      build_kernels({adding("add_one", "1.f"), adding("add_two", "2.f")});
  ASSERT_NE(kernels[0], nullptr);
  ASSERT_NE(kernels[1], nullptr);
  std::vector<float> numbers(16, 3.0f);
  for (KernelAddress kernel : kernels)
    reinterpret_cast<void (*)(float*, long)>(kernel)(numbers.data(), 16);
  EXPECT_EQ(numbers, std::vector<float>(16, 6.0f));
}

}  // namespace ahead::native::build_test
