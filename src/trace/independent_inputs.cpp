#include "trace/independent_inputs.h"

namespace ahead::tracing {
namespace {

thread_local int num_independent = 0;

}  // namespace

IndependentInputs::IndependentInputs() {
  ++num_independent;
}
IndependentInputs::~IndependentInputs() {
  --num_independent;
}
bool IndependentInputs::is_active() {
  return num_independent > 0;
}

}  // namespace ahead::tracing
