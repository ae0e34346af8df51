#include "base/generators.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

namespace ahead {

std::vector<at::Generator> default_generators() {
  std::vector<at::Generator> generators{at::detail::getDefaultCPUGenerator()};
  if (!at::globalContext().hasCUDA()) return generators;
  const auto& cuda = at::detail::getCUDAHooks();
  for (int8_t i = 0; i < cuda.deviceCount(); ++i) {
    if (cuda.hasPrimaryContext(i)) {
      generators.push_back(at::globalContext().defaultGenerator(at::Device(at::kCUDA, i)));
    }
  }
  return generators;
}

}  // namespace ahead
