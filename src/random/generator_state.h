#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include "ahead/graph.h"

namespace ahead {

/// Where a generator of random numbers stands, as tensors that a graph can hold. The numbers that
/// follow are decided by both together.
///
/// CUDA's generators count: `seed` and `offset` are one integer each. That of the CPU does not: its
/// `offset` is its whole state, some 5,000 bytes, and the seed only says how it began.
struct GeneratorState {
  at::Tensor seed;
  at::Tensor offset;

  /// Where the default generator of a device stands.
  static GeneratorState of_default(at::Device device);
  /// Where another generator stands. Callers hold its mutex.
  static GeneratorState of(const at::Generator& generator);

  /// Lets the default generator of a device go on from here.
  void make_default(at::Device device) const;
  /// Lets another generator go on from here. Callers hold its mutex.
  void apply_to(at::Generator& generator) const;

  /// What the two tensors look like for the generators of a device.
  static TensorMeta seed_meta();
  static TensorMeta offset_meta(at::Device device);
};

/// Whether the states of this device's generators can be kept in graphs.
bool has_generator_state(at::Device device);

/// `ahead::generator_state(Device device) -> (Tensor seed, Tensor offset)`: where the default
/// generator stands.
const Operator& generator_state_operator();
/// `ahead::set_generator_state(Tensor seed, Tensor offset, Device device) -> ()`: lets the default
/// generator go on from there.
const Operator& set_generator_state_operator();

}  // namespace ahead
