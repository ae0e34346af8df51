#pragma once

#include <memory>
#include <vector>

#include "ahead/executable.h"
#include "observe/tape.h"

namespace ahead::observe {

/// A recording as a function of the call's arguments and then of what the call before had stored,
/// to be traced: it returns what the call returned and then what it stored outside itself.
aot::FlatFunction replay(std::shared_ptr<const Tape> tape);

}  // namespace ahead::observe
