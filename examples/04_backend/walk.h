#pragma once

#include <ahead/ahead.h>

/// A backend: keeps the graph, and walks it at each call, operator by operator. It knows neither
/// sub-graphs nor operators that write to their arguments nor lists with gaps, and says so.
ahead::aot::Executable walk(const ahead::Graph& graph,
                            const std::vector<ahead::TensorMeta>& inputs);
