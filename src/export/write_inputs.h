#pragma once

#include "ahead/exported.h"

namespace ahead::exporting {

/// Lets an exported graph write to buffers and arguments itself, as its last nodes, rather than
/// return their new contents. Such a graph has no outputs for them.
void write_inputs(aot::ExportedModule& exported);

}  // namespace ahead::exporting
