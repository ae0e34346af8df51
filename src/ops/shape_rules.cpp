#include "ops/shape_rules.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include "ops/shapes/families.h"

namespace ahead::ops {
namespace {

thread_local at::Device current_device = at::kCPU;

void ask_kernel(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, op.operator_name(), ": only the kernel knows the result");
}

}  // namespace

void ShapeRules::add_unknowable(const char* name) {
  kernels_.emplace(name, c10::KernelFunction::makeFromBoxedFunction<&ask_kernel>());
}

const c10::KernelFunction* ShapeRules::find(const std::string& name) const {
  auto found = kernels_.find(name);
  return found == kernels_.end() ? nullptr : &found->second;
}

const ShapeRules& shape_rules() {
  static const ShapeRules* rules = [] {
    auto* table = new ShapeRules;
    shapes::add_activation_rules(*table);
    shapes::add_arithmetic_rules(*table);
    shapes::add_attention_rules(*table);
    shapes::add_convolution_rules(*table);
    shapes::add_distance_rules(*table);
    shapes::add_embedding_rules(*table);
    shapes::add_factory_rules(*table);
    shapes::add_fake_quantize_rules(*table);
    shapes::add_fft_rules(*table);
    shapes::add_histogram_rules(*table);
    shapes::add_indexing_rules(*table);
    shapes::add_linalg_rules(*table);
    shapes::add_loss_rules(*table);
    shapes::add_matmul_rules(*table);
    shapes::add_normalisation_rules(*table);
    shapes::add_optimiser_rules(*table);
    shapes::add_padding_rules(*table);
    shapes::add_pooling_rules(*table);
    shapes::add_random_rules(*table);
    shapes::add_rearranging_rules(*table);
    shapes::add_recurrent_rules(*table);
    shapes::add_reduction_rules(*table);
    shapes::add_sampling_rules(*table);
    shapes::add_view_rules(*table);
    return table;
  }();
  return *rules;
}

at::Device rule_device() {
  return current_device;
}

RuleDeviceGuard::RuleDeviceGuard(at::Device device) : previous_(current_device) {
  current_device = device;
}

RuleDeviceGuard::~RuleDeviceGuard() {
  current_device = previous_;
}

}  // namespace ahead::ops
