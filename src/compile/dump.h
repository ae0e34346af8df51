#pragma once

#include "ahead/options.h"
#include "compile/pipeline.h"

namespace ahead::compiling {

/// Writes what one compilation gave as text into a new folder below Options::dump_folder, if there
/// is one: `options.txt`, `meta.txt` (what the trace found out), `plan.txt`, and a `.graph` for
/// each stage, numbered in order. Throws UserError if it cannot be written.
void dump(const Compilation& made, const Options& options);

}  // namespace ahead::compiling
