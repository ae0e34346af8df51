#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/call/call_plan.h"

namespace ahead::compiling {

/// The integers in what happens after a graph, in order: what views are made with, and the new
/// layouts of inputs. None: there is something else in it that may depend on sizes.
std::optional<std::vector<int64_t>> numbers_of(const runtime::Epilogue& epilogue);

/// The same with other integers, as many as numbers_of() gives.
runtime::Epilogue with_numbers(runtime::Epilogue epilogue, const std::vector<int64_t>& numbers);

}  // namespace ahead::compiling
