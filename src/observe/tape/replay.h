#pragma once

#include <memory>
#include <vector>

#include "ahead/executable.h"
#include "observe/tape/parts.h"
#include "observe/tape/tape.h"

namespace ahead::observe {

/// A part of a recording as a function of Part::ins, to be traced; without a tracer it does on real
/// tensors what the user's code did. Hooks are left out.
aot::FlatFunction replay(std::shared_ptr<const Tape> tape, Part part);

}  // namespace ahead::observe
