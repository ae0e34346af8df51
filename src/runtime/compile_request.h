#pragma once

#include <string>
#include <vector>

#include "ahead/executable.h"

namespace ahead::runtime {

/// What backends and logs call a compiled function; its graphs are that, a dot, and their kind.
constexpr const char* function_name = "CompiledFunction";

/// For each argument of a function, whether it has the same memory in all calls; those that are not
/// listed have not.
using StaticArguments = std::vector<bool>;

/// Whether the input in this slot has the same memory in all calls.
bool is_static(Slot slot, const StaticArguments& arguments);

/// What a backend is told about a graph. Nothing is donated.
aot::CompileRequest request_for(const Graph& graph, std::string name,
                                const StaticArguments& arguments = {});

}  // namespace ahead::runtime
