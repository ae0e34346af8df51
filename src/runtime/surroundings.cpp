#include "runtime/surroundings.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DefaultDtype.h>

#include <mutex>

namespace ahead::runtime {
namespace {

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

}  // namespace

Surroundings::Surroundings()
    : autocast_(AutocastState::current()), default_dtype_(c10::get_default_dtype_as_scalartype()) {
  for (at::Generator& generator : default_generators()) {
    std::lock_guard<std::mutex> lock(generator.mutex());
    at::Tensor state = generator.get_state();
    generators_.emplace_back(std::move(generator), std::move(state));
  }
}

void Surroundings::apply() const {
  for (auto [generator, state] : generators_) {
    std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_state(state);
  }
  autocast_.apply();
  c10::set_default_dtype(c10::scalarTypeToTypeMeta(default_dtype_));
}

Surroundings::Scope::~Scope() {
  before_->apply();
  // It may hold casts of weights that belong to what ran in the scope.
  at::autocast::clear_cache();
}

}  // namespace ahead::runtime
