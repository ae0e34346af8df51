#include "runtime/call/surroundings.h"

#include <ATen/autocast_mode.h>

#include <mutex>

#include "base/generators.h"

namespace ahead::runtime {

Surroundings::Surroundings() : ambient_(Ambient::current()) {
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
  ambient_.apply_dtypes();
}

Surroundings::Scope::~Scope() {
  before_->apply();
  // Its cache may hold casts of weights that were made under the settings of the scope.
  at::autocast::clear_cache();
}

}  // namespace ahead::runtime
