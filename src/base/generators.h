#pragma once

#include <ATen/core/Generator.h>

#include <vector>

namespace ahead {

/// The default generators of random numbers of the CPU and of all CUDA devices in use.
std::vector<at::Generator> default_generators();

}  // namespace ahead
