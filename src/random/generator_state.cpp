#include "random/generator_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <mutex>

namespace ahead {
namespace {

/// Past the dispatcher: states are read and set inside traces, too.
at::Tensor tensor_of(uint64_t number) {
  at::Tensor tensor = at::detail::empty_cpu({}, at::kLong);
  *tensor.mutable_data_ptr<int64_t>() = static_cast<int64_t>(number);
  return tensor;
}

uint64_t number_of(const at::Tensor& tensor) {
  return static_cast<uint64_t>(*tensor.const_data_ptr<int64_t>());
}

std::tuple<at::Tensor, at::Tensor> read_state(at::Device device) {
  GeneratorState state = GeneratorState::of_default(device);
  return {std::move(state.seed), std::move(state.offset)};
}

void set_state(const at::Tensor& seed, const at::Tensor& offset, at::Device device) {
  GeneratorState{seed, offset}.make_default(device);
}

at::Tensor meta_of(const TensorMeta& meta) {
  return at::Tensor(at::detail::empty_meta(meta.sizes.fixed(), meta.dtype));
}

std::tuple<at::Tensor, at::Tensor> describe_state(at::Device device) {
  return {meta_of(GeneratorState::seed_meta()), meta_of(GeneratorState::offset_meta(device))};
}

void ignore_state(const at::Tensor&, const at::Tensor&, at::Device) {}

const Operator& find_own(const char* name) {
  return Operator::of(c10::Dispatcher::singleton().findSchemaOrThrow(name, ""));
}

}  // namespace

GeneratorState GeneratorState::of(const at::Generator& generator) {
  return {tensor_of(generator.current_seed()),
          generator.device().is_cpu() ? generator.get_state() : tensor_of(generator.get_offset())};
}

GeneratorState GeneratorState::of_default(at::Device device) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return of(generator);
}

void GeneratorState::apply_to(at::Generator& generator) const {
  if (generator.device().is_cpu()) return generator.set_state(offset);
  generator.set_current_seed(number_of(seed));
  generator.set_offset(number_of(offset));
}

void GeneratorState::make_default(at::Device device) const {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  apply_to(generator);
}

TensorMeta GeneratorState::seed_meta() {
  return TensorMeta::contiguous({}, at::kLong);
}

TensorMeta GeneratorState::offset_meta(at::Device device) {
  if (!device.is_cpu()) return TensorMeta::contiguous({}, at::kLong);
  static const int64_t size = at::detail::getDefaultCPUGenerator().get_state().numel();
  return TensorMeta::contiguous({size}, at::kByte);
}

bool has_generator_state(at::Device device) {
  return device.is_cpu() || device.is_cuda();
}

const Operator& generator_state_operator() {
  static const Operator& op = find_own("ahead::generator_state");
  return op;
}

const Operator& set_generator_state_operator() {
  static const Operator& op = find_own("ahead::set_generator_state");
  return op;
}

TORCH_LIBRARY_FRAGMENT(ahead, library) {
  library.def("generator_state(Device device) -> (Tensor seed, Tensor offset)",
              {at::Tag::nondeterministic_seeded});
  library.def("set_generator_state(Tensor seed, Tensor offset, Device device) -> ()",
              {at::Tag::nondeterministic_seeded});
}

TORCH_LIBRARY_IMPL(ahead, CompositeExplicitAutograd, library) {
  library.impl("generator_state", read_state);
  library.impl("set_generator_state", set_state);
}

TORCH_LIBRARY_IMPL(ahead, Meta, library) {
  library.impl("generator_state", describe_state);
  library.impl("set_generator_state", ignore_state);
}

}  // namespace ahead
