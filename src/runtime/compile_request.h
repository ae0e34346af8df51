#pragma once

#include <string>

#include "ahead/executable.h"

namespace ahead::runtime {

/// What backends and logs call a compiled function; its graphs are that, a dot, and their kind.
constexpr const char* function_name = "CompiledFunction";

/// What a backend is told about a graph, the first `num_params_buffers` arguments of which are the
/// same in all calls. Nothing is donated.
aot::CompileRequest request_for(const Graph& graph, std::string name,
                                int64_t num_params_buffers = 0);

}  // namespace ahead::runtime
